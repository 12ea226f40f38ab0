"""The hdc protocols as a separate library: both ends of a session, and the client of a server."""
