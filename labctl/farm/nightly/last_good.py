"""The last good build of a nightly plan: a baseline of the lab, moved to head when head is good."""

import hashlib
from collections.abc import Callable

from labctl.config.lab import LabFile
from labctl.farm.nightly.executor import GOOD, HEAD
from labctl.farm.nightly.night import Night
from labctl.records.night import NightVerdict
from labctl.state import lab_state


def baseline_name(plan: str, build: str) -> str:
    """Return the name of the baseline that keeps a plan's last good build."""
    name = f"nightly-{plan}-{build.replace('/', '-')}"
    return (
        name if len(name) <= 63 else f"{name[:52]}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"
    )


def keep_good(
    lab: LabFile, night: Night, build: str, name: str, say: Callable[[str], None]
) -> None:
    """Make head the last good build, as baseline ``name``, if the night shows that it is good."""
    runs = new_good_runs(night, build)
    if not runs:
        return
    note = f"the last good build of {build}, by night {night.record.id}"
    lab_state(lab).baselines.set(name, runs, note=note)
    say(f"the last good build of {build} is head now: baseline {name}")


def new_good_runs(night: Night, build: str) -> tuple[str, ...]:
    """Return head's runs if the night shows that a build's head is good; else none.

    All variants of all rows must be good, except rows that are too noisy for any night: a row that
    was not measured may be slow. Head must be another program.
    """
    sides = night.state.sides(build)
    if GOOD not in sides or HEAD not in sides or sides[GOOD].key == sides[HEAD].key:
        return ()
    states = [one for one in night.state.rows.values() if one.row.build == build]
    names = {one.row.name for one in states if not one.row.is_too_noisy}
    verdicts = {one.verdict for one in night.findings() if one.row in names}
    if verdicts != {NightVerdict.GOOD}:
        return ()
    runs = {
        state.row.name: entry.run
        for state in states
        for (_, _, side), entry in state.done.items()
        if side == HEAD and entry.run
    }
    return tuple(runs.values())
