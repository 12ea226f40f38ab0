"""Serving: load on a server, and how fast it answers under it."""
