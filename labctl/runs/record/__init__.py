"""Storage of a run: its directory and its journal."""
