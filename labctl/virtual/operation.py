"""Operations of a host on a board, and the faults that affect them."""

from dataclasses import dataclass, field
from typing import TypeVar

from labctl.hdc.messages import TransferConfig
from labctl.hdc.wire import Command
from labctl.virtual.fault_script import Fault, Injected, Kind

F = TypeVar("F", bound=Fault)

#: The packets that begin an operation. (FILE_MODE may come before FILE_CHECK, without the path.)
_BEGINNINGS: dict[int, Kind] = {
    Command.HANDSHAKE: "handshake",
    Command.UNITY_EXECUTE: "shell",
    Command.UNITY_HILOG: "shell",
    Command.SHELL_INIT: "interactive",
    Command.FILE_CHECK: "send",
    Command.FILE_INIT: "receive",
    Command.FORWARD_CHECK: "forward",
    Command.FORWARD_INIT: "reverse",
    Command.UNITY_REBOOT: "reboot",
}
#: In FORWARD_CHECK the node follows the context's number and 8 empty bytes.
_NODE_OFFSET = 12


@dataclass
class FaultMatch:
    """One fault that may affect one operation."""

    injected: Injected
    due: bool = False
    applied: bool = False

    @property
    def fault(self) -> Fault:
        """The fault."""
        return self.injected.fault

    def apply(self) -> None:
        """Count the operation once, when the fault has affected it."""
        if not self.applied:
            self.applied = True
            self.injected.fired += 1


@dataclass
class Operation:
    """One running operation: ``moved`` bytes of its packets, ``printed`` bytes of its output."""

    kind: Kind
    text: str
    matches: list[FaultMatch] = field(default_factory=list)
    moved: int = 0
    printed: int = 0
    packets: dict[str, int] = field(default_factory=lambda: {"in": 0, "out": 0})

    def move(self, direction: str, size: int) -> None:
        """Count a packet."""
        self.moved += size
        self.packets[direction] += 1

    def active(self, kind: type[F]) -> list[tuple[FaultMatch, F]]:
        """Return the faults of a class that are due: ``after_bytes`` have passed."""
        return [
            (match, match.fault)
            for match in self.matches
            if isinstance(match.fault, kind) and self.moved >= match.fault.after_bytes
        ]

    def all(self, kind: type[F]) -> list[tuple[FaultMatch, F]]:
        """Return the faults of a class."""
        return [(match, match.fault) for match in self.matches if isinstance(match.fault, kind)]


def begun_by(command: int, data: memoryview) -> tuple[Kind, str] | None:
    """Return the kind and text of the operation a packet begins. Raises ProtocolError."""
    kind = _BEGINNINGS.get(command)
    if kind is None or kind == "handshake":
        return None if kind is None else (kind, "")
    raw = bytes(data)
    if kind == "send":
        return kind, TransferConfig.decode(data).path
    if kind == "forward":
        raw = raw[_NODE_OFFSET:]
    return kind, raw.split(b"\0")[0].decode(errors="replace")
