"""Nights: compare builds with the last good build on every board, and find the commit to blame."""
