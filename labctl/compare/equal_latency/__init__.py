"""Which model answers better in the same time: accuracy of evaluations, time of timing runs."""
