"""labctl: measure large language models on OpenHarmony edge boards.

``labctl.open_lab()`` opens a lab and gives its runs to a script or a notebook.
"""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.api.lab import Lab, Runs, open_lab
    from labctl.api.run import Run, Trial, Trials
    from labctl.api.telemetry import Telemetry
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "api.lab": "Lab Runs open_lab",
            "api.run": "Run Trial Trials",
            "api.telemetry": "Telemetry",
        },
    )

__all__ = ["Lab", "Run", "Runs", "Telemetry", "Trial", "Trials", "open_lab"]


def __dir__() -> list[str]:
    """Return the names, also those that are not imported yet: notebooks complete them."""
    return sorted({*globals(), *__all__})
