"""Accept a slowdown: until it changes, nights judge only changes beyond it."""

from collections.abc import Iterator, Sequence

from labctl.compare.words import percent
from labctl.config.lab import LabFile
from labctl.errors import ConfigError
from labctl.farm.nightly.executor import GOOD, HEAD
from labctl.farm.nightly.nights import past_results
from labctl.records.night import (
    AcceptedChange,
    NightFinding,
    NightResult,
    NightRow,
    NightVerdict,
)
from labctl.state.accepted import Accepted
from labctl.state.state import lab_state
from labctl.suggestions import unknown


def accept_slowdown(lab: LabFile, plan: str, row: str, reason: str | None) -> list[Accepted]:
    """Accept the slowdown of a row that the last night of a plan measured.

    Raises ConfigError if that night has no such row, or did not find it slower.
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
            good=last.builds.get(one.build, {}).get(GOOD, ""),
            reason=reason,
        )
        for one in found
        if one.ratio is not None
    ]


def unaccept_slowdown(lab: LabFile, plan: str, row: str) -> list[Accepted]:
    """Withdraw the acceptance of a row's slowdown, and return it. Raises ConfigError."""
    accepted = lab_state(lab).accepted
    known = accepted.list(plan)
    found = [one for one in known if one.row_name == row]
    if not found:
        rows = sorted({one.row_name for one in known})
        raise ConfigError(unknown("accepted row", row, rows))
    for one in found:
        accepted.void(one)
    return found


def accepted_changes(accepted: Sequence[Accepted], row: str) -> dict[str, AcceptedChange]:
    """Return the accepted slowdowns of a row, by variant."""
    return {
        one.variant: AcceptedChange(ratio=one.ratio, source=one.source, good=one.good)
        for one in accepted
        if one.row_name == row
    }


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
    """End acceptances that a night made invalid; return those that remain.

    An acceptance ends if the row is faster again, if it is slower than accepted by the slowdown to
    find, or if its build has another last good or gets one (``moved``). A night does not judge a
    slowdown that was accepted while it ran. Raises HostError, ConfigError.
    """
    known = lab_state(lab).accepted
    of_night = {row.name: row for row in rows}
    findings = {(one.row, one.variant): one for one in result.findings}
    left = []
    for one in known.list(result.plan):
        row, found = of_night.get(one.row_name), findings.get((one.row_name, one.variant))
        good = result.builds.get(row.build, {}).get(GOOD, one.good) if row else one.good
        is_other = good != one.good or (row is not None and row.build in moved)
        judged = row.accepted.get(one.variant) if row else None
        is_judged = judged is not None and judged.ratio == one.ratio
        if is_other or (is_judged and found and _is_over(found, one.ratio)):
            known.void(one)
        else:
            left.append(one)
    return left


def _is_over(found: NightFinding, ratio: float) -> bool:
    """Return True if a row is faster than what was accepted, or slower beyond it."""
    if found.verdict in (NightVerdict.SLOWER, NightVerdict.SAME):
        return True
    is_faster = found.high is not None and found.high < ratio
    return found.verdict is NightVerdict.GOOD and is_faster and _matters(found.ratio, ratio)


def _matters(now: float | None, before: float) -> bool:
    return now is not None and now < before - (before - 1) / 2
