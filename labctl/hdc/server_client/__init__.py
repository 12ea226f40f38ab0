"""The client side of an hdc server."""
