"""Statistics and physics as pure functions."""

from labctl.stats.describe import MAD_TO_SIGMA, mad, mean, median, percentile, ratio
from labctl.stats.energy import (
    Energy,
    NoEnergy,
    Reading,
    energy_of_counter,
    energy_of_power,
)
from labctl.stats.intervals import (
    STOPPING_COST,
    Interval,
    geometric_interval,
    mean_interval,
    ratio_interval,
    student_quantile,
)
from labctl.stats.roofline import (
    UNSURE,
    Bound,
    Prediction,
    experts_read,
    near_border,
    predict,
    surely_fits,
)
from labctl.stats.trend import Trend, find_trend

__all__ = [
    "MAD_TO_SIGMA",
    "STOPPING_COST",
    "UNSURE",
    "Bound",
    "Energy",
    "Interval",
    "NoEnergy",
    "Prediction",
    "Reading",
    "Trend",
    "energy_of_counter",
    "energy_of_power",
    "experts_read",
    "find_trend",
    "geometric_interval",
    "mad",
    "mean",
    "mean_interval",
    "median",
    "near_border",
    "percentile",
    "predict",
    "ratio",
    "ratio_interval",
    "student_quantile",
    "surely_fits",
]
