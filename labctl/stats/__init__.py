"""Statistics and physics as pure functions."""

from labctl.stats.describe import mad, mean, median, percentile, ratio
from labctl.stats.energy import (
    Energy,
    NoEnergy,
    Reading,
    energy_of_counter,
    energy_of_power,
)
from labctl.stats.intervals import Interval, mean_interval, ratio_interval, student_quantile
from labctl.stats.roofline import (
    Bound,
    Prediction,
    bandwidth_from,
    predict,
)

__all__ = [
    "Bound",
    "Energy",
    "Interval",
    "NoEnergy",
    "Prediction",
    "Reading",
    "bandwidth_from",
    "energy_of_counter",
    "energy_of_power",
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
