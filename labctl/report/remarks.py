"""Remarks for the reader of a run's table: moves, gates, reasons, failures, notes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from labctl.records.run import GateRecord, RunRecord
from labctl.records.trial import TrialRecord
from labctl.report.details import reasons
from labctl.report.status import last_lines
from labctl.report.table import Tone
from labctl.results.repeats import vague
from labctl.results.summary import VariantSummary, summarise, wanted_precision
from labctl.units import ranges


@dataclass(frozen=True)
class Remark:
    """A line that the reader needs; ``lead`` begins it.

    ``last_lines``: last lines of a failed program's standard error, shown below it.
    """

    text: str
    lead: str = ""
    tone: Tone = ""
    last_lines: Sequence[str] = ()


def remarks(
    run: RunRecord,
    trials: Sequence[TrialRecord],
    gates: Sequence[GateRecord],
    told: Sequence[str] = (),
) -> list[Remark]:
    """Return remarks for the reader of a table. ``told``: last lines that the reader has seen."""
    rows = summarise(trials, run.variants, wanted_precision(run))
    found = [*_moves(trials), *map(gate_remark, gates), *map(Remark, reasons(run, trials))]
    found += [Remark(f"note: {note}") for note in run.plan_notes]
    return [*found, *(one for row in rows for one in _of_variant(row, trials, told))]


def _moves(trials: Sequence[TrialRecord]) -> Iterator[Remark]:
    """Yield a line on the moves of a run from board to board."""
    numbers: dict[str, list[int]] = {}
    for trial in trials:
        numbers.setdefault(trial.board, []).append(trial.number)
    if len(numbers) > 1:
        label = [f"{board} (trials {ranges(n)})" for board, n in numbers.items()]
        text = f"{', '.join(label)}; each round of repeats is whole on one of them"
        yield Remark(text, f"measured on {len(numbers)} boards: ", "strong")


def gate_remark(gate: GateRecord) -> Remark:
    """Return the judgement of a gate."""
    tones: dict[bool | None, tuple[str, Tone]] = {
        True: ("kept", "good"),
        False: ("MISSED", "bad"),
        None: ("open", "open"),
    }
    word, tone = tones[gate.passed]
    return Remark(gate.sentence, f"gate {word}: ", tone)


def _of_variant(
    row: VariantSummary, trials: Sequence[TrialRecord], told: Sequence[str]
) -> Iterator[Remark]:
    if row.token_interval and row.token_interval.is_vague:
        yield Remark(f"{row.variant}: {vague(row.token_interval, 'trials')}")
    if 0 < row.trials_timed < row.trials_ok:
        of = f"{row.trials_timed} of {row.trials_ok} good trials"
        yield Remark(f"{row.variant}: the time per token is of {of}: the others have none")
    failures = [trial.failure for trial in trials if trial.variant == row.variant]
    lines = {failure.sentence: last_lines(failure) for failure in reversed(failures) if failure}
    for sentence in row.failures:
        shown = lines.get(sentence, [])
        yield Remark(f"{row.variant}: {sentence}", last_lines=() if shown == told else shown)
    if row.skip_reason:
        what = f"{row.trials_skipped} of its trials were not measured"
        yield Remark(f"{row.variant}: {what}: {row.skip_reason}")
    if row.energy is not None and row.energy.absent:
        what = f"the energy of {row.energy.absent} of its trials is not known"
        yield Remark(f"{row.variant}: {what}: {row.energy.reason}")
    for doubt in row.energy.doubts if row.energy else ():
        yield Remark(f"{row.variant}: {doubt}")
