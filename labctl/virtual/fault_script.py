"""Faults of a virtual board, as tests and scripts define them.

A script is a YAML file::

    seed: 7
    faults:
      - {fault: drop, on: send, after_bytes: 100kB}
      - {fault: freeze, on: shell, matching: llama, nth: 2, lasting: 3s}

Each fault waits for matching operations. Random choices depend only on ``seed``: the same
operations in the same order get the same faults. An injected fault counts its operations.
"""

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import ConfigDict, Field, TypeAdapter, field_validator, model_validator

from labctl.config.types import Duration, Size
from labctl.config.yaml.document import StrictModel, load, refuse
from labctl.suggestions import listed

Kind = Literal[
    "handshake", "shell", "interactive", "send", "receive", "forward", "reverse", "reboot"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
On = Literal[Kind, "any", "now"]
#: Kinds of requests to a board after the handshake.
WORK: tuple[Kind, ...] = KINDS[1:]


class Fault(StrictModel):
    """Common keys of all faults: the operations that it affects."""

    model_config = ConfigDict(use_attribute_docstrings=True)  # not in documents' schemas
    possible: ClassVar[tuple[str, ...]] = KINDS

    on: On = "any"
    """Operation that the fault affects; `any`: all except a handshake; `now`: at once, without an
    operation."""
    matching: str | None = None
    """A regular expression; the fault affects only operations whose text it matches: the command,
    the path on the board, the node that is forwarded."""
    nth: Annotated[int, Field(ge=1)] = 1
    """Number of the first of those operations that it affects, counted from 1."""
    times: Annotated[int, Field(ge=1)] | None = 1
    """Number of operations that the fault affects from there on; null: all."""
    probability: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Probability that each of them is affected, drawn with the seed."""
    after_bytes: Size = 0
    """Number of bytes that pass first: of the operation's packets in both directions; of the file
    or the output itself for `truncate`, `corrupt` and `no-space`."""

    @field_validator("matching")
    @classmethod
    def _is_expression(cls, text: str | None) -> str | None:
        try:
            re.compile(text or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return text

    @model_validator(mode="after")
    def _is_possible(self) -> "Fault":
        if self.on not in (*self.possible, "any"):
            raise refuse(f"must be {listed([*self.possible, 'any'])} for this fault", "on")
        return self

    @property
    def name(self) -> str:
        """Name of the fault in scripts."""
        name: str = type(self).model_fields["fault"].default
        return name

    def concerns(self, kind: Kind, text: str) -> bool:
        """Return True if the fault may affect an operation."""
        meant = self.on == kind or (self.on == "any" and kind in self.possible and kind in WORK)
        return meant and (self.matching is None or re.search(self.matching, text) is not None)


class Timed(Fault):
    """A fault that happens at a moment of an operation, or at once."""

    possible: ClassVar[tuple[str, ...]] = (*KINDS, "now")

    after: Duration | None = None
    """Delay before the fault, after the bytes have passed."""


class Drop(Timed):
    """The connection is cut without notice. (`now`: every connection of the board.)"""

    fault: Literal["drop"] = "drop"


class Freeze(Timed):
    """hdcd stops answering: connections stay, new ones are accepted, no request is answered."""

    fault: Literal["freeze"] = "freeze"
    lasting: Duration | None = None
    """Duration; by default until the board is thawed or reboots."""


class HangUp(Timed):
    """The board ends the operation normally, but before it is complete: the output just ends."""

    possible: ClassVar[tuple[str, ...]] = WORK
    fault: Literal["hang-up"] = "hang-up"


class Garbage(Timed):
    """Random bytes are sent to the host between two packets."""

    possible: ClassVar[tuple[str, ...]] = KINDS
    fault: Literal["garbage"] = "garbage"
    size: Size = 64
    """Number of bytes."""


class HalfFrame(Fault):
    """Half of the next packet is sent to the host, and nothing more on that connection."""

    fault: Literal["half-frame"] = "half-frame"


class Delay(Fault):
    """Packets are delayed, in order: a slow answer, or latency."""

    fault: Literal["delay"] = "delay"
    by: Duration
    """Delay of each of them."""
    direction: Literal["in", "out"] = "out"
    """Packets from the host, or to it."""
    packet: Annotated[int, Field(ge=1)] | None = None
    """Number of the packet in the operation, counted from 1; by default all."""


class Slow(Fault):
    """The link is limited to a few bytes per second during the operation."""

    fault: Literal["slow"] = "slow"
    rate: Annotated[Size, Field(gt=0)]
    """Bytes per second, in each direction."""


class Duplicate(Fault):
    """A packet is sent twice."""

    fault: Literal["duplicate"] = "duplicate"
    direction: Literal["in", "out"] = "out"
    """A packet from the host, or to it."""
    packet: Annotated[int, Field(ge=1)] = 1
    """Number of the packet in the operation, counted from 1."""


class Truncate(Fault):
    """Success is reported, but all bytes after `after_bytes` are lost: of a sent file, of a
    received one (it looks shorter), of a command's output."""

    possible: ClassVar[tuple[str, ...]] = ("shell", "interactive", "send", "receive")
    fault: Literal["truncate"] = "truncate"


class Corrupt(Fault):
    """One bit of a file changes during the transfer, at `after_bytes`; success is reported."""

    possible: ClassVar[tuple[str, ...]] = ("send", "receive")
    fault: Literal["corrupt"] = "corrupt"


class Lie(Fault):
    """Success is reported, but nothing was done: no file is written, the board does not reboot."""

    possible: ClassVar[tuple[str, ...]] = ("send", "reboot")
    fault: Literal["lie"] = "lie"


class NoSpace(Fault):
    """The disk is full after `after_bytes` of a file."""

    possible: ClassVar[tuple[str, ...]] = ("send",)
    fault: Literal["no-space"] = "no-space"


class ReadOnly(Fault):
    """The file system is mounted read-only."""

    possible: ClassVar[tuple[str, ...]] = ("send",)
    fault: Literal["read-only"] = "read-only"


class PermissionDenied(Fault):
    """The file may not be opened."""

    possible: ClassVar[tuple[str, ...]] = ("send", "receive")
    fault: Literal["permission-denied"] = "permission-denied"


class Reboot(Timed):
    """The board restarts: processes end, connections drop, the boot id changes."""

    fault: Literal["reboot"] = "reboot"


class KillProcesses(Timed):
    """All processes of the board are killed; hdcd and its connections stay."""

    fault: Literal["kill-processes"] = "kill-processes"


class OomKill(Timed):
    """The kernel is out of memory: it kills the board's largest process and counts the kill."""

    fault: Literal["oom-kill"] = "oom-kill"


class Throttle(Timed):
    """The on-board agent reads a hot chip with a lowered clock.

    A board with such a fault in its script has simulated sensors from the start, else from the
    moment when the fault is added: 45 °C, four cores at 1992 MHz, memory at 1560 MHz.
    """

    fault: Literal["throttle"] = "throttle"
    celsius: Annotated[float, Field(ge=-40, le=150)] = 95.0
    """Temperature that is reached."""
    mhz: Annotated[int, Field(ge=1)] = 816
    """Frequency that remains."""
    memory_mhz: Annotated[int, Field(ge=1)] = 1560
    """Frequency of the memory that remains."""
    within: Duration | None = None
    """Time to get there; by default none."""


class ThermalZone(Timed):
    """A thermal zone reads what the kernel of a vendor may write, `78` for 78 °C for instance.

    It reads that until a `throttle` moves zone 0. Sensors are simulated as for `throttle`.
    """

    fault: Literal["thermal-zone"] = "thermal-zone"
    zone: Annotated[int, Field(ge=0, le=63)] = 0
    """Number of the zone; made if it does not exist."""
    reads: Annotated[str, Field(max_length=16)]
    """Text of its file `temp`."""


class ClockJump(Timed):
    """The wall clock of `date` and of the on-board agent jumps; monotonic time continues."""

    fault: Literal["clock-jump"] = "clock-jump"
    seconds: Annotated[int, Field(ge=-1_000_000_000, le=1_000_000_000)]
    """Offset from the present time of the clock; below 0: back."""


AnyFault = Annotated[
    Drop
    | Freeze
    | HangUp
    | Garbage
    | HalfFrame
    | Delay
    | Slow
    | Duplicate
    | Truncate
    | Corrupt
    | Lie
    | NoSpace
    | ReadOnly
    | PermissionDenied
    | Reboot
    | KillProcesses
    | OomKill
    | Throttle
    | ThermalZone
    | ClockJump,
    Field(discriminator="fault"),
]
#: All fault classes by their names in scripts.
FAULTS: dict[str, type[Fault]] = {
    member.model_fields["fault"].default: member for member in get_args(get_args(AnyFault)[0])
}
ANY_FAULT: TypeAdapter[AnyFault] = TypeAdapter(AnyFault)


class FaultScript(StrictModel):
    """Faults of a board, in the order in which they are checked."""

    seed: int = 0
    """Seed of all random choices."""
    faults: tuple[AnyFault, ...]
    """The faults."""


class OneFault(StrictModel):
    """One fault, as given on the command line."""

    fault: AnyFault


def load_script(path: Path) -> FaultScript:
    """Load a script from a file. Raises ConfigError with one line per problem in it."""
    return load(path, FaultScript)


@dataclass(frozen=True)
class FaultState:
    """Number of operations that a fault matched, and that it affected."""

    number: int
    name: str
    fault: dict[str, object]
    matched: int
    fired: int


class Injected:
    """A fault that waits for its operations. ``fired`` counts the operations it affected."""

    def __init__(self, number: int, fault: Fault, seed: int):
        self.number = number
        self.fault = fault
        self.matched = 0
        self.fired = 0
        #: Random choices of this fault, independent of other faults.
        self.random = random.Random(f"{seed}:{number}")  # noqa: S311 - must be reproducible
        self._chosen = 0

    def chooses(self, kind: Kind, text: str) -> bool:
        """Decide if the fault affects this operation, which is about to begin."""
        fault = self.fault
        if not fault.concerns(kind, text):
            return False
        self.matched += 1
        used_up = fault.times is not None and self._chosen >= fault.times
        if self.matched < fault.nth or used_up or self.random.random() >= fault.probability:
            return False
        self._chosen += 1
        return True

    @property
    def state(self) -> FaultState:
        """Counters of the fault so far."""
        return FaultState(
            self.number,
            self.fault.name,
            self.fault.model_dump(mode="json", exclude_defaults=True),
            self.matched,
            self.fired,
        )
