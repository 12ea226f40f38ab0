"""The host side of a session, and a host's requests to a board over any link."""
