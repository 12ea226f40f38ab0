"""A night beside earlier nights: the start of its alarms, and rows without a verdict for long."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TypeAlias

from labctl.compare.words import percent
from labctl.farm.nightly.executor import GOOD, HEAD
from labctl.farm.nightly.last_good import GOOD_NIGHTS, blocking_rows, last_verdict
from labctl.records.night import (
    CommitSearch,
    NightFinding,
    NightResult,
    NightRow,
    NightVerdict,
    SamePrograms,
)

#: A row without a verdict for this number of nights is reported first.
_LONG = 3
_UNJUDGED = (NightVerdict.NOT_JUDGED, NightVerdict.NOT_MONITORED, NightVerdict.NOT_MEASURED)
_OPEN = (NightVerdict.SUSPECTED, *_UNJUDGED)
#: Maximum rows listed by name that prevent a new last good; the rest is counted.
_MOST_HELD = 3
#: Verdicts without information on the speed of a row.
_SPEEDLESS = (NightVerdict.FAILS, NightVerdict.DOES_NOT_BUILD, *_UNJUDGED)
#: A row of a night: its name and its variant.
Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class Alarm:
    """A slowdown that nights in a row show, against the same last good build.

    ``since`` is the first of these nights. ``search`` is the last complete search, if any, with its
    night.
    """

    since: str
    search: CommitSearch | None = None


def standing_alarms(
    past: Sequence[NightResult], good: Mapping[str, str | None]
) -> dict[Key, Alarm]:
    """Return the alarms of the last nights, by row and variant.

    ``past``: the nights before, the newest first; ``good``: the source of the last good, by build.
    A night that did not judge the speed of a row does not end its alarm.
    """
    found: dict[Key, Alarm] = {}
    over: set[Key] = set()
    for result in past:
        for one in result.findings:
            key = (one.row, one.variant)
            if key in over or one.verdict in _SPEEDLESS:
                continue
            is_same = result.builds.get(one.build, {}).get(GOOD) == good.get(one.build)
            if one.verdict is not NightVerdict.SLOWER or one.ratio is None or not is_same:
                over.add(key)
                continue
            known, since = found.get(key, Alarm(result.id)), one.since or result.id
            own = (s for s in result.searches if (s.row, s.variant) == key and s.complete)
            ended = next(own, None)
            if known.search is None and ended is not None:
                found[key] = Alarm(since, _of_night(ended, result.id))
            else:
                found[key] = replace(known, since=since)
    return found


def _of_night(search: CommitSearch, night: str) -> CommitSearch:
    """Return a search in the form for later nights: with the night that made it."""
    return search.model_copy(update={"night": search.night or night})


def with_past(
    result: NightResult,
    past: Sequence[NightResult],
    rows: Sequence[NightRow],
    same: SamePrograms | None,
) -> NightResult:
    """Return a result with facts from the nights before it. ``rows``: the rows of this night."""
    good = {build: sides.get(GOOD) for build, sides in result.builds.items()}
    alarms = standing_alarms([result, *past], good)
    findings = tuple(_with_since(one, alarms, result.id) for one in result.findings)
    noisy = {row.name for row in rows if row.is_too_noisy}
    required = {row.name for row in rows if row.required}
    unjudged = [*_unjudged(findings, past, noisy)]
    # One line of each kind comes first: if there are many lines, only the first are shown.
    lines = (*unjudged[:1], *_blocked(result, past, required), *unjudged[1:])
    update = {"findings": findings, "headlines": lines, "same_programs": same}
    return result.model_copy(update=update)


def _with_since(one: NightFinding, alarms: Mapping[Key, Alarm], night: str) -> NightFinding:
    alarm = alarms.get((one.row, one.variant))
    if one.verdict is not NightVerdict.SLOWER or alarm is None or alarm.since == night:
        return one
    return one.model_copy(update={"since": alarm.since})


def _unjudged(
    findings: Sequence[NightFinding], past: Sequence[NightResult], noisy: AbstractSet[str]
) -> Iterator[str]:
    """Yield a line for each row without a verdict for long, or too noisy for a verdict."""
    for one in findings:
        if one.verdict not in _OPEN:
            continue
        known = (_verdict(result, one) for result in past)
        verdicts = [one.verdict, *(was for was in known if was is not None)]
        judged = (n for n, was in enumerate(verdicts) if was not in _OPEN)
        count = next(judged, len(verdicts))
        if count >= _LONG or one.row in noisy:
            nights = "tonight" if count == 1 else f"in {count} nights"
            yield f"{one.row} {one.variant} has no verdict {nights}: {one.reason}"


def _verdict(result: NightResult, one: NightFinding) -> NightVerdict | None:
    return last_verdict(one, [result.findings], judged=tuple(NightVerdict))


def _blocked(
    result: NightResult, past: Sequence[NightResult], required: AbstractSet[str]
) -> Iterator[str]:
    """Yield a line for each build whose last good stays behind head without a verdict."""
    nights = [result.findings, *(one.findings for one in past)]
    for build, sides in result.builds.items():
        own = [one for one in result.findings if one.build == build and one.row in required]
        held = [
            one
            for one in blocking_rows(own, nights)
            if last_verdict(one, nights[:GOOD_NIGHTS]) in (None, NightVerdict.SUSPECTED)
        ]
        behind = [one for one in past if one.builds.get(build, {}).get(GOOD) == sides.get(GOOD)]
        if not held or len(behind) + 1 < GOOD_NIGHTS or sides.get(GOOD) == sides.get(HEAD):
            continue
        names = [f"{one.row} {one.variant} ({_drift(one, behind)})" for one in held[:_MOST_HELD]]
        rows = ", ".join(names)
        if len(held) > _MOST_HELD:
            rows += f" and {len(held) - _MOST_HELD} more"
        were = "was" if len(held) == 1 else "were"
        yield (
            f"the last good of {build} has been {sides.get(GOOD, '?')[:12]} for"
            f" {len(behind) + 1} nights: {rows} {were} not found good in {GOOD_NIGHTS} nights"
        )


def _drift(one: NightFinding, past: Sequence[NightResult]) -> str:
    """Return head's change from the present last good, by the last night with a ratio."""
    for findings in ([one], *(result.findings for result in past)):
        for was in findings:
            if (was.row, was.variant) == (one.row, one.variant) and was.low and was.high:
                return f"head {_change(was.low)} to {_change(was.high)} there"
    return "never measured since"


def _change(ratio: float) -> str:
    word = "slower" if ratio >= 1 else "faster"
    return f"{percent(max(ratio, 1 / ratio) - 1)} {word}"
