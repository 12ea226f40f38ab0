"""Comparison of measurements: two sides are alike, one is slower, or it is unknown."""
