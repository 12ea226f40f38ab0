"""Plan the files that a board needs, send them, verify them."""
