"""Serving: load tests of a server, and its speed under load."""
