"""The index of runs: a cache of the run directories, which can be rebuilt at any time."""
