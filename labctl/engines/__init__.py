"""Engines: run inference programs and read their output."""
