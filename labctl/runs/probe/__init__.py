"""Probe a board: memory, storage and compute benchmarks."""
