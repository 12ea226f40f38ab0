"""Tables made from records."""

from labctl.report.rows import TimingRow, timing_rows
from labctl.report.tables import print_experiment, print_timing_table

__all__ = ["TimingRow", "print_experiment", "print_timing_table", "timing_rows"]
