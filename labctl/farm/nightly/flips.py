"""Boards whose verdicts flip: a night that contradicts the one before it on the same builds."""

from collections.abc import Mapping, Sequence

from labctl.config.lab import LabFile
from labctl.farm.nightly.nights import nights_of, past_result
from labctl.records.night import NightFinding, NightResult, NightVerdict
from labctl.state import LabState, lab_state

#: Author of a night's entries in the history of boards.
NIGHTLY = "nightly"
_FLIP = {NightVerdict.GOOD, NightVerdict.SLOWER}


def night_before(lab: LabFile, now: NightResult) -> NightResult | None:
    """Return the last finished night of the plan before this one."""
    found = (past_result(one) for one in nights_of(lab.root, now.plan) if one.name < now.id)
    return next((one for one in found if one is not None), None)


def keep_flips(lab: LabFile, before: NightResult, now: NightResult) -> None:
    """Keep one flip of each board on which two nights disagree about the same builds.

    A night that is ended again after a kill adds none. Raises HostError, ConfigError.
    """
    earlier = {(one.row, one.variant, one.board): one for one in before.findings}
    flipped: dict[str, list[tuple[NightFinding, NightFinding]]] = {}
    for one in now.findings:
        was = earlier.get((one.row, one.variant, one.board))
        if was is not None and _contradict(was, one) and _builds(before, one) == _builds(now, one):
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
    return measured and {was.verdict, one.verdict} == _FLIP


def _builds(night: NightResult, one: NightFinding) -> Mapping[str, Mapping[str, str]]:
    """Return the revisions of the build of a row, by target."""
    name = one.row.partition("/")[0]
    return {key: sides for key, sides in night.builds.items() if key.partition("/")[0] == name}


def _kept(state: LabState, night: str) -> set[str]:
    flips = state.events.list(kinds=["flip"])
    return {event.board for event in flips if event.details.get("night") == night}


def _rows(pairs: Sequence[tuple[NightFinding, NightFinding]]) -> list[str]:
    return [f"{one.row} {one.variant}" for _, one in pairs]
