"""Boards made of software: an hdc daemon, a shell, a directory, and injected faults."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.virtual.board import Served, VirtualBoard, serve, serving
    from labctl.virtual.control import Control
    from labctl.virtual.fault_injector import FaultInjector
    from labctl.virtual.fault_script import FAULTS, Fault, FaultScript, load_script
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "board": "Served VirtualBoard serve serving",
            "control": "Control",
            "fault_script": "FAULTS Fault FaultScript load_script",
            "fault_injector": "FaultInjector",
        },
    )

__all__ = [
    "FAULTS",
    "Control",
    "Fault",
    "FaultInjector",
    "FaultScript",
    "Served",
    "VirtualBoard",
    "load_script",
    "serve",
    "serving",
]
