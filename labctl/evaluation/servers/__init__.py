"""Servers that labctl starts and stops for an evaluation."""
