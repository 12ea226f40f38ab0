"""Power meters: a board's meter in ``devices.yaml`` is read while a program runs.

A kind of meter is a class with one method. A faulty meter does not affect the measurement: a thread
of this host reads it, each reply has a time-out, and a meter that hangs is abandoned.
"""

import math
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from http import HTTPStatus

from labctl import interrupts, process
from labctl.config.power import JOULES, WATTS, CommandMeter, HttpMeter
from labctl.config.power import Meter as MeterConfig
from labctl.config.printed import NUMBER, read_json, text_at
from labctl.errors import HostError, HostTimeout, LabctlError
from labctl.http import Unreachable, pieces, request

#: Maximum length of a reply. Plugs send about 2 kB.
_MOST_BYTES = 64 << 10
#: Time (s) beyond a meter's own time-out after which it is abandoned.
_GRACE_SECONDS = 2.0
#: Upper limit of a plausible value, in watts or joules.
_BEYOND = 1e12


class Meter(ABC):
    """A meter that shows its present value."""

    def __init__(self, location: str, unit: str, interval_s: float, timeout_s: float):
        self.location = location
        self.interval_s = interval_s
        self.timeout_s = timeout_s
        #: True if it counts joules; otherwise it shows watts.
        self.counts_joules = unit in JOULES
        self._factor = JOULES[unit] if self.counts_joules else WATTS[unit]

    @abstractmethod
    def ask(self) -> str:
        """Return the meter's raw text. Raises HostError."""

    def read(self) -> float:
        """Return watts, or joules since some moment. Raises HostError for anything else."""
        reading = self.ask().strip()
        value = float(reading) * self._factor if NUMBER.fullmatch(reading) else math.nan
        if not 0 <= value < _BEYOND:
            raise HostError(
                f"the meter ({self.location}) returned {reading[:80]!r}:"
                " not a power or energy value"
            )
        return value


class _ProgramMeter(Meter):
    def __init__(self, config: CommandMeter):
        super().__init__(config.location, config.unit, config.interval, config.timeout)
        self._config = config

    def ask(self) -> str:
        printed = bytearray()

        def take(piece: bytes) -> None:
            printed.extend(piece)
            if len(printed) > _MOST_BYTES:
                raise HostError(f"the meter ({self.location}) prints without end")

        argv, folder = self._config.command, self._config.folder
        status = process.run_live(argv, timeout=self.timeout_s, write=take, cwd=folder)
        reading = printed.decode(errors="replace")
        if status != 0:
            words = " ".join(reading.split())[-200:]
            raise HostError(f"the meter ({self.location}) ended with status {status}: {words}")
        return reading


class _NetworkMeter(Meter):
    def __init__(self, config: HttpMeter):
        super().__init__(config.location, config.unit, config.interval, config.timeout)
        self._config = config

    def ask(self) -> str:
        try:
            document = read_json(self._answer())
        except Unreachable as error:
            why = f"not within {self.timeout_s:g} s" if error.timed_out else error.reason
            raise HostError(f"the meter ({self.location}) does not answer: {why}") from error
        except ValueError as error:
            raise HostError(f"the meter ({self.location}) does not answer with JSON") from error
        found = text_at(document, self._config.field)
        if found is None:
            raise HostError(
                f"the answer of the meter ({self.location}) has no {self._config.field}"
            )
        return found

    def _answer(self) -> bytes:
        until = time.monotonic() + self.timeout_s
        body = bytearray()
        with request(
            "GET",
            self._config.address,
            connect_s=self.timeout_s,
            silence_s=self.timeout_s,
            follow=False,
            direct=True,  # the meter is in this network: no proxy, no ~/.netrc
        ) as answer:
            if answer.status_code != HTTPStatus.OK:
                raise HostError(
                    f"the meter ({self.location}) answers with status {answer.status_code}"
                )
            for piece in pieces(answer):
                body.extend(piece)
                if len(body) > _MOST_BYTES:
                    raise HostError(f"the meter ({self.location}) answers without end")
                if time.monotonic() > until:
                    raise HostTimeout(f"the meter ({self.location}) answers too slowly")
        return bytes(body)


def meter_of(config: MeterConfig) -> Meter:
    """Create the meter described in a board's ``power``."""
    return _ProgramMeter(config) if isinstance(config, CommandMeter) else _NetworkMeter(config)


@dataclass(frozen=True)
class Answer:
    """A reading or an error, between two times of this host's monotonic clock."""

    asked_ns: int
    answered_ns: int
    value: float | None
    error: str | None = None


class PowerLog:
    """Reads a meter repeatedly, in a thread. The meter's errors are not raised."""

    def __init__(self, meter: Meter):
        self.meter = meter
        self._answers: list[Answer] = []
        self._answered, self._ending = threading.Event(), threading.Event()
        self._in_peace = False
        self._thread = threading.Thread(target=self._ask_on, name="power meter", daemon=True)

    def start(self) -> None:
        """Start, and wait a limited time for the first reply."""
        self._thread.start()
        interrupts.wait(self._answered, self.meter.timeout_s + _GRACE_SECONDS)

    def end(self, *, in_peace: bool) -> None:
        """Stop; if ``in_peace``, after one more reading. Waits a limited time."""
        self._in_peace = in_peace
        self._ending.set()
        # One reply may be pending, and one more is requested.
        interrupts.join(self._thread, 2 * self.meter.timeout_s + _GRACE_SECONDS)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Readings in order of time."""
        return tuple(self._answers)

    @property
    def hangs(self) -> bool:
        """True if the meter was abandoned while it owed a reply."""
        return self._ending.is_set() and self._thread.is_alive()

    def _ask_on(self) -> None:
        due = time.monotonic()
        while not self._ending.is_set():
            self._ask()
            due = max(due + self.meter.interval_s, time.monotonic())
            self._ending.wait(due - time.monotonic())
        if self._in_peace:
            self._ask()

    def _ask(self) -> None:
        asked, value, why = time.monotonic_ns(), None, None
        try:
            value = self.meter.read()
        except LabctlError as error:
            why = error.message
        except Exception as error:  # even a bug must not cost a trial the meter's other replies
            why = f"bug in labctl: {type(error).__name__}: {error}"
        self._answers.append(Answer(asked, time.monotonic_ns(), value, why))
        self._answered.set()
