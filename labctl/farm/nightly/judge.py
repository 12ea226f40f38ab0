"""Judge the pairs of a row: the screening excludes slowdowns, the confirmation shows them.

A board's verdict flips if a night contradicts the night before on the same builds.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import stdev

from labctl.compare.comparison import Row, Verdict
from labctl.compare.estimates import estimate_pairs
from labctl.compare.thresholds import Thresholds
from labctl.compare.verdicts import judged
from labctl.compare.words import percent
from labctl.config.lab import LabFile
from labctl.errors import Blame
from labctl.farm.nightly.budget import LOOKS, MISSED, MOST_PAIRS, look_error, smallest_slowdown
from labctl.farm.nightly.nights import nights_of, past_result
from labctl.farm.nightly.state import RowState
from labctl.records.night import NightFinding, NightResult, NightRow, NightVerdict, Stage
from labctl.state.state import LabState, lab_state
from labctl.stats.hypothesis_tests import f_tail, least_differences, sign_flip
from labctl.stats.log_ratio import LogRatio, paired
from labctl.stats.rhythm import SHORTEST, Rhythm, find_rhythm
from labctl.stats.scatter import pooled_scatter

#: Author of a night's entries in the history of boards.
NIGHTLY = "nightly"
_FLIP = {NightVerdict.GOOD, NightVerdict.SLOWER}


def night_before(lab: LabFile, now: NightResult) -> NightResult | None:
    """Return the last finished night of the plan before this one."""
    nights = nights_of(lab.root, now.plan, now.started.timestamp())
    names = [one.name for one in nights]
    before = nights[names.index(now.id) + 1 :] if now.id in names else nights
    found = (past_result(one) for one in before)
    return next((one for one in found if one is not None), None)


def keep_flips(lab: LabFile, before: NightResult, now: NightResult) -> None:
    """Keep one flip of each board on which two nights disagree about the same builds.

    A killed night that ends a second time adds no second flip. Raises HostError, ConfigError.
    """
    earlier = {(one.row, one.variant, one.board): one for one in before.findings}
    flipped: dict[str, list[tuple[NightFinding, NightFinding]]] = {}
    for one in now.findings:
        was = earlier.get((one.row, one.variant, one.board))
        is_same = before.builds.get(one.build) == now.builds.get(one.build)
        if was is not None and _contradict(was, one) and is_same:
            flipped.setdefault(one.board, []).append((was, one))
    state = lab_state(lab)
    kept = _kept(state, now.id)
    for board, pairs in flipped.items():
        was, one = pairs[0]
        if board not in kept:
            state.events.add(
                board,
                "flip",
                one.verdict,
                by=NIGHTLY,
                reason=f"{one.row} {one.variant} with the same builds was {was.verdict} before",
                details={"night": now.id, "before": before.id, "rows": _rows(pairs)},
            )


def _contradict(was: NightFinding, one: NightFinding) -> bool:
    measured = was.ratio is not None and one.ratio is not None
    is_alike = was.accepted == one.accepted  # else the references differ
    return measured and is_alike and {was.verdict, one.verdict} == _FLIP


def _kept(state: LabState, night: str) -> set[str]:
    flips = state.events.list(kinds=["flip"])
    return {event.board for event in flips if event.details.get("night") == night}


def _rows(pairs: Sequence[tuple[NightFinding, NightFinding]]) -> list[str]:
    return [f"{one.row} {one.variant}" for _, one in pairs]


#: The board is at fault only if pairs scatter this many times as much as in its history.
_WILD = 1.5
#: A build is itself noisy if it scatters this many times as much as the other on that board.
_OWN = 2.0
#: Minimum number of pairs to judge their scatter.
_LEAST_WILD = 8


def excludes(
    good: Sequence[float], head: Sequence[float], find: float, error: float = MISSED
) -> bool:
    """Return True if pairs show that head is not slower by ``find`` (a share) or more.

    ``error`` is the probability of this result for a head that is slower by exactly ``find``: in
    Student's test, and in the test of signs, which the drawn order of each pair justifies.
    """
    return _excludes(tuple(good), tuple(head), find, error)


@lru_cache(maxsize=4096)  # called again with the same pairs before each further pair of a board
def _excludes(good: tuple[float, ...], head: tuple[float, ...], find: float, error: float) -> bool:
    if len(good) < least_differences(error):
        return False
    if paired(head, good).interval(1 - 2 * error).high >= 1 + find:
        return False
    below = [math.log1p(find) - change for change in _changes(good, head)]
    return sign_flip(below, one_sided=True) <= error


def _changes(good: Sequence[float], head: Sequence[float]) -> list[float]:
    return [math.log(b / a) for a, b in zip(good, head, strict=True)]


def shows_slower(good: Sequence[float], head: Sequence[float]) -> bool:
    """Return True if pairs show any slowdown, at the error of the screening."""
    return len(good) > 1 and paired(head, good).interval(1 - 2 * MISSED).low > 1


def is_suspicious(state: RowState, variant: str) -> bool:
    """Return True if the screening excludes no slowdown, so that the confirmation decides.

    If a row is too noisy to exclude a slowdown: return True if it looks slower.
    """
    good, head = state.pairs(Stage.SCREEN, variant)
    if state.row.is_too_noisy:
        return shows_slower(good, head)
    return not excludes(good, head, state.row.find)


def compare_pairs(row: NightRow, good: Sequence[float], head: Sequence[float], error: float) -> Row:
    """Compare both sides as ``labctl compare`` compares two variants of one run.

    Head is slower only if the test of signs agrees, at the same error.
    """
    plain = Row(
        left="last good",
        right="head",
        figure="time",
        label="time",
        more_is_faster=False,
        verdict=Verdict.CANT_TELL,
        reason="",
        left_repeats=len(good),
        right_repeats=len(head),
    )
    limits = Thresholds(row.same_within, row.practical, error)
    found = judged([(plain, estimate_pairs(head, good))], limits)[0]
    if found.verdict is not Verdict.SLOWER:
        return found
    if sign_flip(_changes(good, head), one_sided=True) <= error:
        return found
    reason = f"{len(good)} pairs in a drawn order do not show it at this error"
    return replace(found, verdict=Verdict.CANT_TELL, reason=reason)


def rhythm_of(state: RowState, variant: str) -> Rhythm | None:
    """Return the rhythm of a row's runs if it is large enough to matter; else None."""
    screen, confirm = (state.turns(stage, variant) for stage in (Stage.SCREEN, Stage.CONFIRM))
    # Other rows may have been measured between both.
    found = find_rhythm(confirm) or find_rhythm([*screen, *confirm])
    return found if found and found.swing >= math.log1p(state.row.practical) else None


def same_finding(state: RowState, variant: str) -> NightFinding:
    """Return the finding for a variant whose sides are the same program: no verdict."""
    good, _ = state.pairs(Stage.SAME, variant)
    return NightFinding(
        row=state.row.name,
        build=state.row.build,
        variant=variant,
        board=state.board,
        verdict=NightVerdict.SAME,
        reason="head is the last good program, byte for byte: nothing to judge",
        pairs=len(good),
        execution=state.execution,
        runs=tuple(state.runs),
    )


def finding(state: RowState, variant: str, confirming: int) -> NightFinding:
    """Return the verdict on a variant of a measured row."""
    row = state.row
    screen, confirm = (state.pairs(stage, variant) for stage in (Stage.SCREEN, Stage.CONFIRM))
    pairs = len(screen[0]) + len(confirm[0])
    if not is_suspicious(state, variant):
        confirm = ([], [])  # another variant needed these pairs
    good, head = confirm if confirm[0] else screen
    found = NightFinding(
        row=row.name,
        build=row.build,
        variant=variant,
        board=state.board,
        verdict=NightVerdict.GOOD,
        reason="",
        pairs=pairs,
        mde=row.mde,
        execution=state.execution,
        runs=tuple(state.runs),
    )
    ratio = paired(head, good) if len(good) > 1 else None
    if ratio is not None:
        level = 1 - 2 * MISSED if not confirm[0] else 1 - look_error(confirming)
        interval = ratio.interval(level)
        known = state.accepted(variant)
        accepted = known.ratio if known else None
        times = [(accepted or 1.0) * one for one in (ratio.ratio, interval.low, interval.high)]
        shown = dict(zip(("ratio", "low", "high"), times, strict=True))
        found = found.model_copy(update={**shown, "level": level, "accepted": accepted})
    if rhythm := rhythm_of(state, variant):
        return found.model_copy(
            update={"verdict": NightVerdict.NOT_JUDGED, "reason": rhythm_text(rhythm)}
        )
    if confirm[0] and (decided := slower(state, variant, confirming)):
        return found.model_copy(
            update={
                "verdict": NightVerdict.SLOWER,
                "blame": Blame.JOB,
                "reason": f"measured in turns, {len(good)} pairs: {decided.reason}",
            }
        )
    if excludes(good, head, row.find, MISSED / LOOKS if confirm[0] else MISSED):
        reason = f"a slowdown of {percent(row.find)} or more is excluded"
        return found.model_copy(update={"reason": _good_reason(ratio, row) or reason})
    return found.model_copy(update=_undecided(row, screen[0], confirm, ratio))


def slower(state: RowState, variant: str, confirming: int) -> Row | None:
    """Return the comparison of the first look that confirms a slowdown; None if no look does."""
    good, head = state.pairs(Stage.CONFIRM, variant)
    of_row = state.row
    if state.accepted(variant):  # a further slowdown must reach `find` again
        of_row = of_row.model_copy(update={"practical": of_row.find})
    for look in range(1, LOOKS + 1):
        count = look * state.row.look
        if len(good) < count:
            return None
        row = compare_pairs(of_row, good[:count], head[:count], look_error(confirming))
        if row.verdict is Verdict.SLOWER:
            return row
    return None


def rhythm_text(rhythm: Rhythm) -> str:
    """Return why a row with a rhythm is not judged."""
    swing = percent(math.expm1(rhythm.swing))
    if rhythm.runs == SHORTEST:
        return f"rhythm of 2 runs: the second run of a pair differs from its first by {swing}"
    return f"rhythm of {rhythm.runs} runs: the slowest is {swing} above the fastest"


def is_wild(state: RowState, variant: str) -> bool:
    """Return True if results of both builds scatter far more than in the board's history.

    Tests the ratio of both variances (F test), at the error of a row in a month.
    """
    good, head = state.pairs(Stage.CONFIRM, variant)
    if not _scatters(state.row, good, head):
        return False
    one, other = sorted((_scatter(good), _scatter(head)))
    return other <= _OWN * one


def _scatters(row: NightRow, good: Sequence[float], head: Sequence[float]) -> bool:
    if not row.noise or not row.noise_degrees or len(good) < _LEAST_WILD:
        return False
    tonight = pooled_scatter([_changes(good, head)])
    if tonight is None or tonight.sigma <= math.sqrt(2) * _WILD * row.noise:
        return False
    ratio = (tonight.sigma / row.noise) ** 2 / 2
    return f_tail(ratio, tonight.degrees, row.noise_degrees) <= row.scatter_error


def _scatter(values: Sequence[float]) -> float:
    return stdev(math.log(value) for value in values)


def decided_look(state: RowState, variant: str, confirming: int) -> bool:
    """Return True if a variant needs no further pairs in the confirmation."""
    good, head = state.pairs(Stage.CONFIRM, variant)
    look = state.row.look
    if len(good) >= LOOKS * look:
        return True
    if not good or len(good) % look:
        return False
    if rhythm_of(state, variant):
        return True
    is_slower = slower(state, variant, confirming) is not None
    return is_slower or excludes(good, head, state.row.find, MISSED / LOOKS)


def _good_reason(ratio: LogRatio | None, row: NightRow) -> str:
    if ratio is None:
        return ""
    high = ratio.interval(1 - 2 * MISSED).high
    faster = f"not slower; at least {percent(1 / high - 1)} faster"
    bound = faster if high < 1 else f"at most {percent(high - 1)} slower"
    return f"{bound} ({percent(row.find)} is excluded)"


def _undecided(
    row: NightRow,
    screen: Sequence[float],
    pairs: tuple[Sequence[float], Sequence[float]],
    ratio: LogRatio | None,
) -> dict[str, object]:
    """Return the reason why a measured row is neither good nor slower."""
    confirm, head = pairs
    if row.is_too_noisy and not confirm:
        best = percent(row.mde or 0.0)
        reason = f"too noisy: {MOST_PAIRS} pairs find a slowdown of {best} at best"
        return {"verdict": NightVerdict.NOT_MONITORED, "reason": reason}
    if len(screen) < row.screen:
        reason = f"the time ran out after {len(screen)} of {row.screen} pairs of the screening"
        return {"verdict": NightVerdict.NOT_MONITORED, "reason": reason}
    if len(confirm) < LOOKS * row.look:
        reason = (
            f"the screening does not exclude {percent(row.find)}; the time ran out after"
            f" {len(confirm)} of {LOOKS * row.look} pairs of the confirmation"
        )
        return {"verdict": NightVerdict.SUSPECTED, "reason": reason}
    assert ratio is not None
    if _scatters(row, confirm, head) and _scatter(head) > _OWN * _scatter(confirm):
        reason = (
            f"head's own runs scatter by {percent(_scatter(head))}, the last good's on the same"
            f" board by {percent(_scatter(confirm))}"
        )
        return {"verdict": NightVerdict.SUSPECTED, "reason": reason}
    least = smallest_slowdown(ratio.noise, len(confirm), row.practical)
    if least > row.find:
        reason = f"too noisy tonight: {len(confirm)} pairs find {percent(least)} at best"
        return {"verdict": NightVerdict.NOT_MONITORED, "reason": reason, "mde": least}
    reason = f"neither confirmed nor excluded after {len(confirm)} pairs"
    return {"verdict": NightVerdict.SUSPECTED, "reason": reason}
