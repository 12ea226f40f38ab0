"""Data sets: questions from files and hubs."""
