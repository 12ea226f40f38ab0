"""The Python interface to a lab's runs: the names of ``import labctl``.

It reads only. Durations are ns, sizes bytes, as in the records.
"""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.api.lab import Lab, Runs, open_lab
    from labctl.api.run import Run, Trial, Trials
    from labctl.api.telemetry import Telemetry
else:
    __getattr__ = lazy_names(
        __name__, {"lab": "Lab Runs open_lab", "run": "Run Trial Trials", "telemetry": "Telemetry"}
    )

__all__ = ["Lab", "Run", "Runs", "Telemetry", "Trial", "Trials", "open_lab"]
