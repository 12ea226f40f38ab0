"""The index of runs: a cache of what the run directories say, made again at any time."""
