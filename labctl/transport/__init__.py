"""Transports: commands and bytes to and from a board."""
