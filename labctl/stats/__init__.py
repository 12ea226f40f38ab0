"""Statistics and physics as pure functions."""

from labctl.stats.describe import mad, mean, median, percentile, ratio
from labctl.stats.intervals import Interval, mean_interval, ratio_interval, student_quantile
from labctl.stats.roofline import (
    Bound,
    Prediction,
    bandwidth_from,
    predict,
)

__all__ = [
    "Bound",
    "Interval",
    "Prediction",
    "bandwidth_from",
    "mad",
    "mean",
    "mean_interval",
    "median",
    "percentile",
    "predict",
    "ratio",
    "ratio_interval",
    "student_quantile",
]
