"""Keep a run on disk: its directory and its journal."""
