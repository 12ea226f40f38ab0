"""Hold one board for a run: its state, its deploy, and its other users."""
