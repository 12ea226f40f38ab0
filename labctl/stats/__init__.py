"""Statistics and physics as pure functions."""

from labctl.stats.describe import mad, mean, median, percentile, ratio
from labctl.stats.roofline import (
    Bound,
    Prediction,
    bandwidth_from,
    predict,
)

__all__ = [
    "Bound",
    "Prediction",
    "bandwidth_from",
    "mad",
    "mean",
    "median",
    "percentile",
    "predict",
    "ratio",
]
