"""Nights: builds are compared with the last good one on every board, and commits blamed."""
