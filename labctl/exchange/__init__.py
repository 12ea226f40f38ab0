"""Read and write results in formats of other programs. Import its modules by name."""
