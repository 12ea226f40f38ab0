"""The last good build of a nightly plan: a baseline of the lab, moved to head when head is good."""

import hashlib
from collections.abc import Iterable, Sequence

from labctl.config.lab import LabFile
from labctl.farm.nightly.executor import GOOD, HEAD
from labctl.farm.nightly.night import Night
from labctl.farm.nightly.results import BLAMED, PASSED
from labctl.records.night import NightFinding, NightResult, NightVerdict
from labctl.state.state import lab_state


def baseline_name(plan: str, build: str) -> str:
    """Return the name of the baseline that keeps a plan's last good build."""
    name = f"nightly-{plan}-{build.replace('/', '-')}"
    return (
        name if len(name) <= 63 else f"{name[:52]}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"
    )


#: Number of nights, including tonight, in which each row must have been good.
GOOD_NIGHTS = 3
#: Verdicts on the speed of head beside the last good.
_JUDGED = (*PASSED, *BLAMED, NightVerdict.SUSPECTED)


def keep_good(lab: LabFile, night: Night, build: str, name: str, runs: Sequence[str]) -> None:
    """Make head the last good build: baseline ``name`` gets its runs."""
    note = f"the last good build of {build}, by night {night.record.id}"
    lab_state(lab).baselines.set(name, runs, note=note)


def new_good_runs(night: Night, build: str, past: Sequence[NightResult]) -> tuple[str, ...]:
    """Return head's runs if nights show that a build's head is good; else an empty tuple.

    At least one row must be good tonight. The last verdict within three nights on each required row
    must be good. Head must be another build.
    """
    sides = night.state.sides(build)
    if GOOD not in sides or HEAD not in sides or sides[GOOD].key == sides[HEAD].key:
        return ()
    rows = {name: one for name, one in night.state.rows.items() if one.row.build == build}
    tonight = [one for one in night.findings() if one.row in rows]
    nights = [tonight, *(result.findings for result in past)]
    required = [one for one in tonight if rows[one.row].row.required]
    if blocking_rows(required, nights) or not any(one.verdict in PASSED for one in tonight):
        return ()
    runs = {
        name: entry.run
        for name, one in rows.items()
        if not one.row.gated  # a baseline has timing runs
        for (_, _, side), entry in one.done.items()
        if side == HEAD and entry.run
    }
    return tuple(runs.values())


def blocking_rows(
    findings: Sequence[NightFinding], nights: Sequence[Sequence[NightFinding]]
) -> list[NightFinding]:
    """Return tonight's findings that prevent a new last good.

    Their last verdict in three nights is bad or missing. ``nights``: the findings of each night,
    tonight first.
    """
    return [one for one in findings if last_verdict(one, nights[:GOOD_NIGHTS]) not in PASSED]


def last_verdict(
    finding: NightFinding,
    nights: Iterable[Sequence[NightFinding]],
    judged: Sequence[NightVerdict] = _JUDGED,
) -> NightVerdict | None:
    """Return the newest ``judged`` verdict on a variant of a row; None if no night has one."""
    found = (
        one.verdict
        for findings in nights
        for one in findings
        if (one.row, one.variant) == (finding.row, finding.variant) and one.verdict in judged
    )
    return next(found, None)
