"""Builds tools for targets: sources, local builder, checks of built files, and artifact cache."""
