"""Boards made of software: an hdc daemon, a shell, a directory, and what can go wrong with them."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.virtual.board import Served, VirtualBoard, serve, serving
    from labctl.virtual.control import Control
    from labctl.virtual.faults import FAULTS, Fault, FaultScript, load_script
    from labctl.virtual.injection import Faults
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "board": "Served VirtualBoard serve serving",
            "control": "Control",
            "faults": "FAULTS Fault FaultScript load_script",
            "injection": "Faults",
        },
    )

__all__ = [
    "FAULTS",
    "Control",
    "Fault",
    "FaultScript",
    "Faults",
    "Served",
    "VirtualBoard",
    "load_script",
    "serve",
    "serving",
]
