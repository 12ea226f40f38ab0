"""Statistics and physics as pure functions."""

from labctl.stats.describe import (
    MAD_TO_SIGMA,
    Trend,
    find_trend,
    mad,
    mean,
    median,
    percentile,
    ratio,
)
from labctl.stats.energy import (
    Energy,
    NoEnergy,
    Reading,
    energy_of_counter,
    energy_of_power,
)
from labctl.stats.holm import holm
from labctl.stats.intervals import (
    STOPPING_COST,
    Interval,
    geometric_interval,
    mean_interval,
    student_quantile,
)
from labctl.stats.log_ratio import (
    LEAST_SESSIONS,
    LogRatio,
    Repeat,
    between_sessions,
    known_sessions,
    paired,
    unpaired,
    within_run,
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

__all__ = [
    "LEAST_SESSIONS",
    "MAD_TO_SIGMA",
    "STOPPING_COST",
    "UNSURE",
    "Bound",
    "Energy",
    "Interval",
    "LogRatio",
    "NoEnergy",
    "Prediction",
    "Reading",
    "Repeat",
    "Trend",
    "between_sessions",
    "energy_of_counter",
    "energy_of_power",
    "experts_read",
    "find_trend",
    "geometric_interval",
    "holm",
    "known_sessions",
    "mad",
    "mean",
    "mean_interval",
    "median",
    "near_border",
    "paired",
    "percentile",
    "predict",
    "ratio",
    "student_quantile",
    "surely_fits",
    "unpaired",
    "within_run",
]
