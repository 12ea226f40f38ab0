"""Upload of large files to a board in chunks that its agent verifies."""
