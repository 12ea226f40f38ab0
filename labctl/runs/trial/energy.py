"""The energy of a trial: a meter's answers, converted to the board's time.

The meter is asked by this host's clock; the program ran by the board's clock. A question to the
board that left at ``a`` and was answered at ``b`` with the board's ``m`` in it shows that the
board's clock is behind this host's by ``a - m`` to ``b - m``; several questions narrow this range.
They are asked after the program has ended, and disturb nothing.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from labctl.board.meter import Meter, PowerLog, meter_of
from labctl.config.lab import Board
from labctl.errors import HostError, InfraError
from labctl.files import write_atomic
from labctl.records.energy import EnergyRecord, PhaseEnergy
from labctl.records.timing import TimingRecord
from labctl.records.trial import JobStatus
from labctl.retry import wait_until
from labctl.runs.observer import Observer
from labctl.stats.energy import (
    Energy,
    IdlePower,
    NoEnergy,
    Reading,
    energy_of_counter,
    energy_of_power,
    idle_power,
    net_energy,
)

POWER = "power.jsonl"
_QUESTIONS = 3
#: The idle board is read for this number of readings, and this time (s), at least.
_IDLE_READINGS, _IDLE_SECONDS = 20, 1.0
#: A slow meter has fewer readings, in this time (s).
_MOST_IDLE_SECONDS = 60.0
#: Readings further apart than this number of intervals count as a gap.
_GAP_INTERVALS = 3
#: Maximum uncertainty of the clocks' offset, as a share of the program's time.
_MOST_UNSURE = 0.05


@dataclass(frozen=True)
class ClockOffset:
    """Offset in ns from a board's monotonic clock to this host's."""

    ns: int
    uncertainty_ns: int

    @classmethod
    def measure(cls, ask_board_ns: Callable[[], int]) -> "ClockOffset":
        """Measure it by questions for the board's clock. Raises InfraError."""
        least, most = [], []
        for _ in range(_QUESTIONS):
            asked = time.monotonic_ns()
            board = ask_board_ns()
            answered = time.monotonic_ns()
            least.append(asked - board)
            most.append(answered - board)
        low, high = max(least), min(most)
        if low > high:
            raise HostError("the clocks of board and host do not go alike")
        return cls((low + high) // 2, (high - low + 1) // 2)


def trouble(meter: Meter) -> str | None:
    """Read a meter once and return why it does not work; None if it does."""
    log = PowerLog(meter)
    log.start()
    log.end(in_peace=False)
    return log.answers[0].error if log.answers else f"the meter ({meter.location}) hangs"


def working_meter(board: Board, observer: Observer) -> Meter | None:
    """Return the meter of a board's power, if it has one; report a meter that does not work."""
    meter = meter_of(board.power) if board.power else None
    if meter and (why := trouble(meter)):
        observer.note(f"note: energy will not be measured: {why}")
    return meter


def idle_floor(meter: Meter) -> IdlePower | str:
    """Measure the power of the idle board; return the reason if it is not known."""
    log, began = PowerLog(meter), time.monotonic()
    log.start()
    longest = min(
        _IDLE_READINGS * meter.interval_s + 2 * meter.timeout_s + _IDLE_SECONDS, _MOST_IDLE_SECONDS
    )

    def enough() -> bool:
        lasted = time.monotonic() - began >= _IDLE_SECONDS
        return lasted and len(log.answers) >= _IDLE_READINGS

    wait_until(enough, timeout=longest, interval=meter.interval_s)
    log.end(in_peace=False)
    try:
        return idle_power(_readings(log), counts_joules=meter.counts_joules)
    except NoEnergy as error:
        return str(error)


def _readings(log: PowerLog) -> list[Reading]:
    return [
        Reading((answer.asked_ns + answer.answered_ns) // 2, answer.value)
        for answer in log.answers
        if answer.value is not None
    ]


class Metering:
    """A context in which a program runs on a board and its meter, if any, is asked.

    ``ask_board_ns`` asks the board for its monotonic clock. The raw answers are kept in ``folder``.
    ``idle``: as returned by :func:`idle_floor`; None: not measured. Raises no errors of the meter,
    but HostError if the answers cannot be written.
    """

    def __init__(
        self,
        meter: Meter | None,
        folder: Path,
        ask_board_ns: Callable[[], int],
        idle: IdlePower | str | None = None,
    ):
        self._idle = idle
        self._log = PowerLog(meter) if meter else None
        self._folder = folder
        self._ask_board_ns = ask_board_ns
        self._offset: ClockOffset | str = "the program was not followed to its end"

    def __enter__(self) -> Self:
        if self._log:
            self._log.start()
        return self

    def __exit__(self, kind: object, _error: object, _trace: object) -> None:
        if self._log is None:
            return
        self._log.end(in_peace=kind is None)
        if kind is None:
            try:
                self._offset = ClockOffset.measure(self._ask_board_ns)
            except InfraError as lost:
                self._offset = f"the board's clock is not known: {lost.message}"
        lines = [json.dumps(asdict(answer)) + "\n" for answer in self._log.answers]
        write_atomic(self._folder / POWER, "".join(lines))

    def record(self, job: JobStatus | None, timing: TimingRecord | None) -> EnergyRecord | None:
        """Return the joules if the readings show them, else the reason; None without a meter."""
        if self._log is None:
            return None
        failed = [answer.error for answer in self._log.answers if answer.error is not None]
        plain = EnergyRecord(
            source=self._log.meter.location, readings=0, failed_readings=len(failed)
        )
        if isinstance(self._offset, str) or job is None:
            return plain.model_copy(update={"absent": str(self._offset)})
        start, end = (ns + self._offset.ns for ns in (job.start_mono_ns, job.end_mono_ns))
        readings = _readings(self._log)
        found: dict[str, object] = {
            "readings": sum(start <= reading.at_ns <= end for reading in readings),
            "clock_uncertainty_ns": self._offset.uncertainty_ns,
        }
        try:
            found |= asdict(self._between(readings, start, end))
            found["joules_per_token"] = self._per_token(readings, start, timing)
            found |= self._phases(readings, start, timing)
        except NoEnergy as error:
            hangs = ["the meter hangs"] if self._log.hangs else []
            found["absent"] = "; ".join([str(error), *hangs, *failed[:1]])
        return plain.model_copy(update=found)

    def _phases(
        self, readings: Sequence[Reading], start_ns: int, timing: TimingRecord | None
    ) -> dict[str, object]:
        """Return the fields of the idle power and of the phases whose times are known."""
        found: dict[str, object] = {}
        if isinstance(self._idle, IdlePower):
            found["idle_watts"] = self._idle.watts
            found["idle_spread_watts"] = self._idle.spread_watts
            found["idle_readings"] = self._idle.readings
        if timing is None or timing.ttft_ns is None:
            return found
        first = start_ns + timing.ttft_ns
        if timing.prompt_tokens and timing.prompt_eval_ns:
            begin = max(start_ns, first - timing.prompt_eval_ns)
            found["prompt"] = self._phase(readings, begin, first, timing.prompt_tokens)
        if timing.token_ns and timing.mean_ns:
            span = sum(timing.token_ns)
            # The intervals between N tokens: N - 1.
            found["decode"] = self._phase(readings, first, first + span, span / timing.mean_ns)
        return found

    def _phase(
        self, readings: Sequence[Reading], start_ns: int, end_ns: int, tokens: float
    ) -> PhaseEnergy:
        assert self._log is not None
        assert isinstance(self._offset, ClockOffset)
        if not isinstance(self._idle, IdlePower):
            why = self._idle or "the run was resumed in the middle of the trial"
            return PhaseEnergy(absent=f"the power of the idle board is not known: {why}")
        try:
            self._check_clock(start_ns, end_ns)
            energy = net_energy(
                readings,
                start_ns,
                end_ns,
                self._idle,
                longest_gap_ns=self._gap_ns,
                clock_ns=self._offset.uncertainty_ns,
                counts_joules=self._log.meter.counts_joules,
            )
        except NoEnergy as error:
            return PhaseEnergy(absent=str(error))
        return PhaseEnergy(
            joules_per_token=energy.joules / tokens,
            gross_joules_per_token=energy.gross_joules / tokens,
            uncertainty_joules=energy.uncertainty_joules / tokens,
            readings=energy.readings,
        )

    @property
    def _gap_ns(self) -> int:
        assert self._log is not None
        return round(_GAP_INTERVALS * self._log.meter.interval_s * 1e9)

    def _check_clock(self, start_ns: int, end_ns: int) -> None:
        assert isinstance(self._offset, ClockOffset)
        if self._offset.uncertainty_ns > _MOST_UNSURE * (end_ns - start_ns):
            raise NoEnergy("the board's clock is not known well enough for so short a time")

    def _between(self, readings: Sequence[Reading], start_ns: int, end_ns: int) -> Energy:
        assert self._log is not None
        self._check_clock(start_ns, end_ns)
        energy = energy_of_counter if self._log.meter.counts_joules else energy_of_power
        return energy(readings, start_ns, end_ns, longest_gap_ns=self._gap_ns)

    def _per_token(
        self, readings: Sequence[Reading], start_ns: int, timing: TimingRecord | None
    ) -> float | None:
        """Return joules per token after the first arrival: only these times are known."""
        if timing is None or timing.ttft_ns is None or not timing.token_ns or not timing.mean_ns:
            return None
        first = start_ns + timing.ttft_ns
        try:
            energy = self._between(readings, first, first + sum(timing.token_ns))
        except NoEnergy:
            return None
        return energy.mean_watts * timing.mean_ns / 1e9
