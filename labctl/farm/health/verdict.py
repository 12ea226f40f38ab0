"""The verdict of a health check on its probes, and the health of the board after it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Self

from labctl.board.probe_files import probe_rates
from labctl.config.health import HealthChecks
from labctl.farm.health.speed import Speed, confirmed, judge_speed
from labctl.records.board import BoardFacts
from labctl.records.probe import BoardProbe
from labctl.results.telemetry import LOUD
from labctl.state.events import BoardEvent
from labctl.state.health import BY_PEOPLE, BoardHealth, Health
from labctl.stats.describe import mean
from labctl.stats.intervals import student_quantile

#: A board is hot at least this many degrees Celsius above its own warmest temperature.
_HOTTER = 5.0
#: Error of the limit of temperatures.
_ERROR = 0.01
#: A board that is hot in this number of checks in a row has lost its cooling.
_HOT_CHECKS = 3
#: Number of verdicts to read, and number of changes among them that make a board "looping".
_LOOKED_AT, _CHANGES = 8, 3
#: A looping board is good again after this number of good checks in a row.
_STEADY = 5


class Finding(StrEnum):
    """Findings of a health check."""

    is_good: bool | None
    """Verdict on the board; None: no verdict."""
    in_history: bool
    """True if later checks compare their probes with the probes of this one."""

    def __new__(cls, value: str, is_good: bool | None, in_history: bool) -> Self:
        """Make a finding that equals its word in the board's history."""
        made = str.__new__(cls, value)
        made._value_, made.is_good, made.in_history = value, is_good, in_history
        return made

    GOOD = "good", True, True
    #: Slower than its own history, twice in a row, and not hot.
    SLOW = "slow", False, False
    #: Slower, and throttled or hotter than ever.
    HOT = "hot", None, False
    #: No verdict on speed: too little history.
    SHORT = "short history", True, True
    #: No verdict: something else kept the board busy.
    DISTURBED = "disturbed", None, False
    #: No contact, or the check could not be done, and no recovery helped.
    FAILING = "failing", False, True
    #: Half of its host's boards fail, or that host is away: no verdict on this board.
    HOST = "host", None, True


@dataclass(frozen=True)
class Verdict:
    """A finding and its evidence."""

    finding: Finding
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Probes:
    """Input of a check: one or two probes in a row, and the good ones before them."""

    in_a_row: Sequence[BoardProbe]
    like: Sequence[BoardProbe]
    """Earlier ones of the same history: execution, firmware and agent."""
    settings: HealthChecks

    @property
    def last(self) -> BoardProbe:
        """The newest probe."""
        return self.in_a_row[-1]

    @cached_property
    def speeds(self) -> Sequence[Speed]:
        """Speeds in the probes in a row."""
        return [
            judge_speed(
                probe_rates(probe),
                [probe_rates(one, like=probe) for one in self.like],
                least_history=self.settings.history,
                slower=self.settings.slower,
            )
            for probe in self.in_a_row
        ]

    def verdict(self, finding: Finding, reason: str, **more: object) -> Verdict:
        """Return a verdict on the speed, with what it rests on."""
        smallest = self.speeds[-1].smallest
        evidence = {
            "probes": [f"{probe.taken:%Y-%m-%dT%H:%M:%SZ}" for probe in self.in_a_row],
            "earlier": len(self.like),
            "smallest_slowdown": {part: round(share, 4) for part, share in smallest.items()},
        }
        return Verdict(finding, reason, {**evidence, **more})


#: Returns the verdict of one check; None: it has found nothing; "again": it needs a second probe.
Check = Callable[[Probes], Verdict | Literal["again"] | None]


def find_disturbance(probes: Probes) -> Verdict | None:
    """Find other programs that used the board during the probe."""
    shares = (probes.last.memory_others_share, probes.last.storage_others_share)
    busiest = max((share for share in shares if share is not None), default=0.0)
    if busiest <= LOUD:
        return None
    told = f"everything else used {busiest:.0%} of a CPU meanwhile: no verdict on its speed"
    return Verdict(Finding.DISTURBED, told)


def find_short_history(probes: Probes) -> Verdict | None:
    """Find a board with too few probes for a verdict on its speed."""
    if probes.speeds[-1].judged:
        return None
    many = f"{len(probes.like)} of {probes.settings.history} earlier checks of this firmware"
    told = f"it answers; no verdict on its speed yet: {many}"
    return probes.verdict(Finding.SHORT, told)


def find_slowdown(probes: Probes) -> Verdict | Literal["again"] | None:
    """Find what two probes in a row show to be slower than before; heat explains it."""
    if len(probes.speeds) == 1:
        return "again" if probes.speeds[0].slower else None
    slower = confirmed(*probes.speeds)
    if not slower:
        return None
    parts = [
        {"part": s.part, "share": round(s.share, 4), "p": s.probability, "scatter": s.scatter}
        for s in slower
    ]
    reason = "; ".join(str(one) for one in slower)
    if heat := _heat(probes.last, probes.like):
        return probes.verdict(Finding.HOT, f"hot ({heat}): {reason}", slower=parts)
    return probes.verdict(Finding.SLOW, reason, slower=parts)


#: All checks, in their order: the first verdict counts. Without one the board is good.
CHECKS: list[Check] = [find_disturbance, find_short_history, find_slowdown]


def judge(
    probes: Sequence[BoardProbe], earlier: Sequence[BoardProbe], settings: HealthChecks
) -> Verdict | None:
    """Judge one or two probes in a row by the good probes before them.

    None: a second probe has to confirm what the first shows.
    """
    like = [probe for probe in earlier if is_like(probe, probes[-1])]
    seen = Probes(probes, like, settings)
    for check in CHECKS:
        if found := check(seen):
            return None if found == "again" else found
    return seen.verdict(Finding.GOOD, f"as fast as in {len(like)} earlier checks")


def next_health(
    verdict: Verdict, before: BoardHealth, events: Sequence[BoardEvent]
) -> tuple[Health, str]:
    """Return the health of a board after a check, and the reason.

    ``events`` are the changes of its health, and its last checks with this check at the end.
    """
    finding, reason = verdict.finding, verdict.reason
    checks = _since_people(events)
    if before.health in BY_PEOPLE or finding.is_good is None:
        return _without_verdict(verdict, before, checks)
    told = [v for c in checks if (v := _is_good(c.value)) is not None][-_LOOKED_AT:]
    changes = sum(one is not other for one, other in pairwise(told))
    later = [_is_good(c.value) for c in checks if before.since is None or c.at > before.since]
    steady = [one for one in later if one is not None]
    settled = len(steady) >= _STEADY and all(steady[-_STEADY:])
    looping = changes >= _CHANGES or before.health is Health.LOOPING
    if looping and not settled:
        return Health.LOOPING, f"{changes} changes in its last {len(told)} checks; now: {reason}"
    if finding is Finding.SHORT:
        if before.health is Health.BAD and _was(checks, Finding.FAILING) is False:
            return Health.BAD, before.reason or reason
        return Health.UNKNOWN, reason
    return (Health.GOOD if finding is Finding.GOOD else Health.BAD), reason


def _without_verdict(
    verdict: Verdict, before: BoardHealth, checks: Sequence[BoardEvent]
) -> tuple[Health, str]:
    """Return the health after a check without a verdict: usually the earlier health."""
    finding, reason = verdict.finding, verdict.reason
    kept = before.health, (before.health is not Health.UNKNOWN and before.reason) or reason
    if before.health in BY_PEOPLE:
        return kept
    if finding is Finding.HOT:
        hot = _in_a_row(checks, Finding.HOT)
        if hot >= _HOT_CHECKS:
            return Health.BAD, f"hot in {hot} checks in a row: check its cooling; {reason}"
        return before.health, reason
    answers_again = before.health is Health.BAD and _was(checks, Finding.FAILING)
    if finding is Finding.DISTURBED and answers_again:
        return Health.UNKNOWN, f"it answers again; {reason}"
    return kept


def _since_people(events: Sequence[BoardEvent]) -> Sequence[BoardEvent]:
    """Return the checks after the last time that a person called the board good."""
    start = 0
    for number, event in enumerate(events):
        if event.kind == "health" and event.value == Health.GOOD and "@" in event.made_by:
            start = number
    return [event for event in events[start:] if event.kind == "check"]


def _was(checks: Sequence[BoardEvent], finding: Finding) -> bool | None:
    """Return True if the last earlier bad check has this finding; None without such a check."""
    bad = (Finding.SLOW, Finding.HOT, Finding.FAILING)
    earlier = [check.value for check in checks[:-1] if check.value in bad]
    return earlier[-1] == finding if earlier else None


def firmware(facts: BoardFacts) -> str:
    """Return the system and kernel of a board. A new system or kernel begins a new history.

    Labs store this text and compare it: its form must not change.
    """
    return f"{facts.os_version or 'system not told'}, kernel {facts.kernel}"


def is_like(probe: BoardProbe, now: BoardProbe) -> bool:
    """Return True if a probe belongs to the same history: execution, firmware and agent."""
    return (
        probe.execution is now.execution
        and probe.agent_version == now.agent_version
        and firmware(probe.facts) == firmware(now.facts)
    )


def _is_good(value: str) -> bool | None:
    return {str(one): one.is_good for one in Finding}.get(value)


def _in_a_row(checks: Sequence[BoardEvent], finding: Finding) -> int:
    count = 0
    for check in reversed(checks):
        if check.value != finding:
            break
        count += 1
    return count


def _heat(now: BoardProbe, earlier: Sequence[BoardProbe]) -> str | None:
    """Return the sign of heat in a probe; None without such a sign."""
    if now.held_down_share:
        return f"its clocks were throttled in {now.held_down_share:.0%} of the samples"
    warmest = _warmest(now)
    known = [found for probe in earlier if (found := _warmest(probe)) is not None]
    if warmest is None or len(known) < 2:
        return None
    usual, count = mean(known), len(known)
    scatter = math.sqrt(sum((value - usual) ** 2 for value in known) / (count - 1))
    limit = student_quantile(1 - _ERROR, count - 1) * scatter * math.sqrt(1 + 1 / count)
    if warmest > usual + max(limit, _HOTTER):
        return f"{warmest:.0f} °C, {usual:.0f} °C before"
    return None


def _warmest(probe: BoardProbe) -> float | None:
    zones = probe.temperatures_after_mc.values()
    return max(zones) / 1000 if zones else None
