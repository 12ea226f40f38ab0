"""Judge a reproduction, number by number: reproduced, not reproduced, or unclear."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from labctl.bundle.form import BundleManifest
from labctl.compare.comparison import Row, Verdict
from labctl.compare.estimates import History
from labctl.compare.sides import Pair, Side, run_sides
from labctl.compare.thresholds import Thresholds
from labctl.compare.verdicts import compare
from labctl.records.board import BoardFacts, Execution
from labctl.records.run import RunRecord
from labctl.records.trial import TrialRecord
from labctl.results.summary import good_trials
from labctl.stats.describe import geometric_mean
from labctl.stats.log_ratio import unpaired

#: Shares of a ceiling that differ by at most this are the same: ceilings come from probes, and
#: repeated probes of one board differ by less (see ``labctl.board.probe_files``).
SHARE_WITHIN = 0.15
_ERROR = 0.05
#: Keys in which two boards of one kind may differ apart from their hardware, or which a stranger
#: cannot reproduce.
_ALLOWED = ("board",)
_NOT_A_BOARD = {
    Execution.EMULATED: "EMULATED: times of an emulator say nothing about a board",
    Execution.NATIVE_HOST: "NATIVE HOST: times of a computer say nothing about a board",
}


class Judgement(StrEnum):
    """Judgement of one number."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    CANT_TELL = "can't tell"


@dataclass(frozen=True)
class Number:
    """One number of the bundle, and its reproduction. Values are in ns, or tokens/s."""

    variant: str
    what: str
    judgement: Judgement
    reason: str
    there: float | None = None
    here: float | None = None


@dataclass(frozen=True)
class Measured:
    """One side: a run's records."""

    run: RunRecord
    trials: Sequence[TrialRecord]

    def good(self, variant: str) -> list[TrialRecord]:
        """Return the repeats of a variant that count."""
        return [trial for trial in good_trials(self.trials) if trial.variant == variant]


def judge(there: Measured, here: Measured, history: History | None = None) -> list[Number]:
    """Return a judgement for each number of the bundle's run.

    If both boards are of one kind, compares times as ``labctl compare`` does, with labctl's default
    limits, not the bundle's. Otherwise, and if the comparison of times is unclear, compares each
    side's share of its own board's ceiling: see :data:`SHARE_WITHIN`. Runs that were not on a board
    have no such share.
    """
    others = {side.variant: side for side in run_sides(here.run, here.trials, "here")}
    numbers = []
    for side in run_sides(there.run, there.trials, "there"):
        if (other := others.get(side.variant)) is None:
            why = "the run here has no such variant"
            numbers.append(Number(side.variant, "all", Judgement.CANT_TELL, why))
            continue
        numbers += _of_variant(there, here, (side, other), history)
    return numbers


def _of_variant(
    there: Measured, here: Measured, pair: Pair, history: History | None
) -> list[Number]:
    execution = next(
        (
            run.facts.execution
            for run in (there.run, here.run)
            if run.facts.execution in _NOT_A_BOARD
        ),
        None,
    )
    limits = Thresholds.of_recipe({})
    rows = compare([pair], thresholds=limits, allow=_ALLOWED, history=history).rows
    numbers = [_number(pair[0], row, execution) for row in rows]
    by_share = None if execution else _share(pair)
    if by_share is None:
        return numbers
    direct = next((one for one in numbers if one.what == "per token"), None)
    if direct is None or direct.judgement is Judgement.CANT_TELL:
        return [*numbers, by_share]
    return numbers


def _number(side: Side, row: Row, execution: Execution | None) -> Number:
    judgements = {
        Verdict.SAME: Judgement.REPRODUCED,
        Verdict.FASTER: Judgement.NOT_REPRODUCED,
        Verdict.SLOWER: Judgement.NOT_REPRODUCED,
    }
    found = judgements.get(row.verdict, Judgement.CANT_TELL)
    reason = f"{row.verdict}: {row.reason}"
    if execution is not None:
        found, reason = Judgement.CANT_TELL, _NOT_A_BOARD[execution]
    return Number(side.variant, row.label, found, reason, row.left_value, row.right_value)


def _share(pair: Pair) -> Number | None:
    """Compare the shares of the nearest ceiling; None if the bundle has no ceiling."""
    theirs, mine = (side.shares for side in pair)
    variant = pair[0].variant
    if not theirs:
        return None
    kind = max(theirs, key=lambda one: geometric_mean(theirs[one]))
    what = f"share of the {kind} ceiling"
    at = geometric_mean(theirs[kind])
    if kind not in mine:
        why = f"this board's {kind} rate is unknown: `labctl boards probe`"
        return Number(variant, what, Judgement.CANT_TELL, why, at)
    now = geometric_mean(mine[kind])
    nearest = max(mine, key=lambda one: geometric_mean(mine[one]))
    if nearest != kind:
        share = f"{geometric_mean(mine[nearest]):.0%}"
        why = f"{nearest} is nearer here ({share}), which {kind} was there"
        return Number(variant, what, Judgement.CANT_TELL, why, at, now)
    return Number(variant, what, *_judged_share(mine[kind], theirs[kind]), at, now)


def _judged_share(mine: Sequence[float], theirs: Sequence[float]) -> tuple[Judgement, str]:
    if min(len(mine), len(theirs)) < 2:
        return Judgement.CANT_TELL, "a single repeat on a side shows no scatter"
    found = unpaired(mine, theirs)
    low, high = 1 - SHARE_WITHIN, 1 / (1 - SHARE_WITHIN)
    same, different = found.interval(1 - 2 * _ERROR), found.interval(1 - _ERROR)
    text = f"{found.ratio:.2f} times, {different.low:.2f} to {different.high:.2f}"
    if low <= same.low and same.high <= high:
        return Judgement.REPRODUCED, f"{text}; within {SHARE_WITHIN:.0%}"
    if different.high < low or different.low > high:
        return Judgement.NOT_REPRODUCED, f"{text}; beyond {SHARE_WITHIN:.0%}"
    return Judgement.CANT_TELL, f"{text}; more repeats would decide about {SHARE_WITHIN:.0%}"


def texts(
    there: Measured,
    here: Measured,
    manifest: BundleManifest,
    hashes: dict[str, str],
) -> list[Number]:
    """Judge the generated texts: the same bytes, or not.

    ``hashes``: of the new run's outputs, by variant. Texts are compared if the output contains
    nothing else and the seed is fixed.
    """
    engine = there.run.recipe_resolved.get("engine")
    task = engine.get("task") if isinstance(engine, dict) else "none"
    if (
        not isinstance(engine, dict)
        or engine.get("name") != "llama_cpp"
        or task not in (None, "completion")
    ):
        return []
    altered = {entry for one in manifest.left_out for entry in one.entries}
    found = []
    for variant in there.run.variants:
        first = next(iter(there.good(variant)), None)
        if first is None or variant not in hashes:
            continue
        name = f"run/trials/{first.number:03d}-{first.slug}/stdout"
        entry = manifest.entries.get(name)
        if entry is None or name in altered:
            judgement, reason = Judgement.CANT_TELL, "the bundle does not have the original"
        elif entry.sha256 == hashes[variant]:
            judgement, reason = Judgement.REPRODUCED, "the same bytes"
        elif _alike(there.run.facts, here.run.facts):
            judgement, reason = Judgement.NOT_REPRODUCED, "another text on the same kind of CPU"
        else:
            judgement, reason = Judgement.CANT_TELL, "another CPU may round differently"
        found.append(Number(variant, "generated text", judgement, reason))
    return found


def _alike(one: BoardFacts, other: BoardFacts) -> bool:
    return (one.execution, one.cpus) == (other.execution, other.cpus)
