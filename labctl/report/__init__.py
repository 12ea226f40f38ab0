"""Tables made from records."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.report.tables import print_experiment, print_timing_table
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "tables": "print_experiment print_timing_table",
        },
    )

__all__ = [
    "print_experiment",
    "print_timing_table",
]
