"""Boards made of software: an hdc daemon, a shell, a directory, and injected faults."""
