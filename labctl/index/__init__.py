"""The index of runs: a cache of what the run directories say, made again at any time."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.index.filters import Filter
    from labctl.index.index import Index, IndexedRun, IndexedTrial
    from labctl.index.rows import SCHEMA_VERSION, Entry, ModelRow, ProbeRow, RunRow, TrialRow
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "filters": "Filter",
            "index": "Index IndexedRun IndexedTrial",
            "rows": "SCHEMA_VERSION Entry ModelRow ProbeRow RunRow TrialRow",
        },
    )

__all__ = [
    "SCHEMA_VERSION",
    "Entry",
    "Filter",
    "Index",
    "IndexedRun",
    "IndexedTrial",
    "ModelRow",
    "ProbeRow",
    "RunRow",
    "TrialRow",
]
