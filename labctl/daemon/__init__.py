"""Parts that the daemons of virtual boards share, for any protocol."""
