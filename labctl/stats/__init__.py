"""Statistics and physics as pure functions."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
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
    from labctl.stats.many_tests import holm
    from labctl.stats.paired_answers import (
        McNemar,
        always_valid_p,
        count_wins,
        difference_shown,
        mcnemar,
        paired_difference,
        questions_for_difference,
    )
    from labctl.stats.proportions import (
        LOOK,
        clustered_interval,
        half_width_reached,
        interval_of_variance,
        wilson_interval,
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
    from labctl.stats.sampled_answers import majority_vote, pass_at_k, pass_at_k_interval
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "describe": "MAD_TO_SIGMA Trend find_trend mad mean median percentile ratio",
            "energy": "Energy NoEnergy Reading energy_of_counter energy_of_power",
            "intervals": "STOPPING_COST Interval geometric_interval mean_interval student_quantile",
            "log_ratio": "LEAST_SESSIONS LogRatio Repeat between_sessions known_sessions paired"
            " unpaired within_run",
            "many_tests": "holm",
            "paired_answers": "McNemar always_valid_p count_wins difference_shown mcnemar"
            " paired_difference questions_for_difference",
            "proportions": "LOOK clustered_interval half_width_reached interval_of_variance"
            " wilson_interval",
            "roofline": "UNSURE Bound Prediction experts_read near_border predict surely_fits",
            "sampled_answers": "majority_vote pass_at_k pass_at_k_interval",
        },
    )

__all__ = [
    "LEAST_SESSIONS",
    "LOOK",
    "MAD_TO_SIGMA",
    "STOPPING_COST",
    "UNSURE",
    "Bound",
    "Energy",
    "Interval",
    "LogRatio",
    "McNemar",
    "NoEnergy",
    "Prediction",
    "Reading",
    "Repeat",
    "Trend",
    "always_valid_p",
    "between_sessions",
    "clustered_interval",
    "count_wins",
    "difference_shown",
    "energy_of_counter",
    "energy_of_power",
    "experts_read",
    "find_trend",
    "geometric_interval",
    "half_width_reached",
    "holm",
    "interval_of_variance",
    "known_sessions",
    "mad",
    "majority_vote",
    "mcnemar",
    "mean",
    "mean_interval",
    "median",
    "near_border",
    "paired",
    "paired_difference",
    "pass_at_k",
    "pass_at_k_interval",
    "percentile",
    "predict",
    "questions_for_difference",
    "ratio",
    "student_quantile",
    "surely_fits",
    "unpaired",
    "wilson_interval",
    "within_run",
]
