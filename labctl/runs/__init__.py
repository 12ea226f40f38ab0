"""Run a recipe on a board, and keep the records."""
