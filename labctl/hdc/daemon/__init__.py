"""The board side of a session."""
