"""labctl: measure large language models on OpenHarmony edge boards.

``labctl.open_lab()`` opens a lab and gives its runs to a script or a notebook.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labctl.api.comparison import Comparison
    from labctl.api.lab import Lab, Runs, open_lab
    from labctl.api.run import Run, Trial, Trials
    from labctl.api.telemetry import Telemetry

#: Imported when they are first used: a command needs none of them.
_MODULES = {
    "Comparison": "labctl.api.comparison",
    "Lab": "labctl.api.lab",
    "Run": "labctl.api.run",
    "Runs": "labctl.api.lab",
    "Telemetry": "labctl.api.telemetry",
    "Trial": "labctl.api.run",
    "Trials": "labctl.api.run",
    "open_lab": "labctl.api.lab",
}
__all__ = ["Comparison", "Lab", "Run", "Runs", "Telemetry", "Trial", "Trials", "open_lab"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
