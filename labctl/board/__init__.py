"""One board: its facts, its store of files, its agent, its lease."""
