"""Endpoints: servers that answer questions over HTTP."""
