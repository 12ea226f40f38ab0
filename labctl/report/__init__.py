"""Tables made from records."""

from labctl.report.tables import print_experiment, print_timing_table

__all__ = ["print_experiment", "print_timing_table"]
