"""Comparison of measurements: two sides are alike, one is slower, or it is unknown."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.compare.estimates import History
    from labctl.compare.figures import DEFAULT_FIGURES, FIGURES, Figure
    from labctl.compare.judging import compare
    from labctl.compare.likeness import Difference, differences
    from labctl.compare.selecting import find_pairs, find_sides
    from labctl.compare.session_noise import board_history
    from labctl.compare.sides import Pair, Session, Side, match_sides, run_sides
    from labctl.compare.thresholds import Thresholds
    from labctl.compare.verdicts import Basis, Comparison, Row, Verdict
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "estimates": "History",
            "figures": "DEFAULT_FIGURES FIGURES Figure",
            "judging": "compare",
            "likeness": "Difference differences",
            "selecting": "find_pairs find_sides",
            "session_noise": "board_history",
            "sides": "Pair Session Side match_sides run_sides",
            "thresholds": "Thresholds",
            "verdicts": "Basis Comparison Row Verdict",
        },
    )

__all__ = [
    "DEFAULT_FIGURES",
    "FIGURES",
    "Basis",
    "Comparison",
    "Difference",
    "Figure",
    "History",
    "Pair",
    "Row",
    "Session",
    "Side",
    "Thresholds",
    "Verdict",
    "board_history",
    "compare",
    "differences",
    "find_pairs",
    "find_sides",
    "match_sides",
    "run_sides",
]
