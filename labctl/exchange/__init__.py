"""Results in the formats of other programs, written and read. Import its modules by name."""
