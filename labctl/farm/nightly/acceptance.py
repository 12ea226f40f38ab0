"""Accept a slowdown: nights then judge what is beside it, until it changes."""

from collections.abc import Iterator, Sequence

from labctl.checked import unknown
from labctl.compare.words import percent
from labctl.config.lab import LabFile
from labctl.errors import ConfigError
from labctl.farm.nightly.executor import HEAD
from labctl.farm.nightly.nights import past_results
from labctl.records.night import NightFinding, NightResult, NightRow, NightVerdict
from labctl.state import lab_state
from labctl.state.accepted import Accepted


def accept_slowdown(lab: LabFile, plan: str, row: str, reason: str | None) -> list[Accepted]:
    """Accept the slowdown of a row, as the last night of a plan measured it.

    Raises ConfigError where that night has no such row, or did not find it slower.
    """
    last = next(iter(past_results(lab.root, plan)), None)
    if last is None:
        raise ConfigError(f"plan {plan} has no night that came to its end: nothing to accept")
    rows = {one.row for one in last.findings}
    if row not in rows:
        raise ConfigError(unknown("row", row, sorted(rows)))
    found = [one for one in last.findings if one.row == row and one.verdict is NightVerdict.SLOWER]
    if not found:
        (one, *_) = [one for one in last.findings if one.row == row]
        raise ConfigError(
            f"{row} was not found slower by night {last.id}: {one.verdict}, {one.reason}",
            hint="only a confirmed slowdown can be accepted",
        )
    accepted = lab_state(lab).accepted
    return [
        accepted.accept(
            plan,
            row,
            one.variant,
            ratio=one.ratio,
            night=last.id,
            source=last.builds.get(one.build, {}).get(HEAD, ""),
            reason=reason,
        )
        for one in found
        if one.ratio is not None
    ]


def accepted_lines(accepted: Sequence[Accepted]) -> Iterator[str]:
    """Yield accepted slowdowns for people."""
    for one in accepted:
        why = f": {one.reason}" if one.reason else ""
        yield (
            f"{one.row_name} {one.variant}: {percent(one.ratio - 1)} slower was accepted by"
            f" {one.made_by} on {one.made_at:%Y-%m-%d} (night {one.night}){why}"
        )


def keep_accepted(
    lab: LabFile, result: NightResult, rows: Sequence[NightRow], moved: Sequence[str]
) -> list[Accepted]:
    """End what no longer holds after a night; return what is accepted still.

    That is over where the row is faster again, or slower by as much as it has to find beyond it,
    and where head became the last good of its build (``moved``). Raises HostError, ConfigError.
    """
    known = lab_state(lab).accepted
    builds = {row.name: row.build for row in rows}
    findings = {(one.row, one.variant): one for one in result.findings}
    left = []
    for one in known.list(result.plan):
        found = findings.get((one.row_name, one.variant))
        if builds.get(one.row_name) in moved or (found and _is_over(found, one.ratio)):
            known.void(one)
        else:
            left.append(one)
    return left


def _is_over(found: NightFinding, ratio: float) -> bool:
    """Return True if a row is faster than what was accepted, or slower beyond it."""
    if found.verdict is NightVerdict.SLOWER:
        return True
    is_faster = found.high is not None and found.high < ratio
    return found.verdict is NightVerdict.GOOD and is_faster and _matters(found.ratio, ratio)


def _matters(now: float | None, before: float) -> bool:
    return now is not None and now < before - (before - 1) / 2
