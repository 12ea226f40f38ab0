"""Hold one board for a run: its state, its deploy, and who else uses it."""
