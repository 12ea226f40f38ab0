"""The host side of a session, and what a host asks of a board over any link."""
