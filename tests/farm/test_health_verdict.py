"""What a health check says about a board, and what its health is then."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from records_made import BEGAN, probe

from labctl.config.health import HealthChecks
from labctl.config.lab import Lab, LabFile
from labctl.farm.health import verdict as verdicts
from labctl.farm.health.checks_due import suspicion
from labctl.farm.health.verdict import CHECKS, Finding, Probes, Verdict, judge, next_health
from labctl.records.probe import BoardProbe, MemoryRate
from labctl.state.events import BoardEvent, EventKind
from labctl.state.health import BoardHealth, Health
from labctl.state.state import lab_state

SETTINGS = HealthChecks()


def measured(number: int, rate: int = 3_000_000, **changes: object) -> BoardProbe:
    memory = (MemoryRate(threads=4, bytes_per_second=rate),)
    taken = BEGAN + timedelta(hours=number)
    return probe(taken=taken, memory=memory, slower=(), **changes)


HISTORY = [measured(n, 3_000_000 + 10_000 * (n % 3)) for n in range(8)]


def found(*probes: BoardProbe, history: Sequence[BoardProbe] = HISTORY) -> Finding | None:
    verdict = judge(probes, history, SETTINGS)
    return None if verdict is None else verdict.finding


def test_a_board_is_good_slow_or_without_a_verdict() -> None:
    assert found(measured(9)) is Finding.GOOD
    slow = measured(9, 2_700_000)
    assert found(slow) is None  # a second probe has to confirm it
    assert found(slow, measured(10)) is Finding.GOOD
    assert found(slow, slow) is Finding.SLOW
    assert found(slow, history=HISTORY[:7]) is Finding.SHORT


def test_a_verdict_says_what_it_rests_on() -> None:
    slow = measured(9, 2_700_000)
    verdict = judge([slow, slow], HISTORY, SETTINGS)
    assert verdict is not None
    assert verdict.reason == "memory read 10% slower than in 8 earlier probes"
    (part,) = verdict.evidence["slower"]
    assert part["part"] == "memory read"
    assert part["p"] < 0.001
    assert verdict.evidence["smallest_slowdown"] == {"memory read": 0.05}


def test_a_board_that_was_busy_gets_no_verdict() -> None:
    assert found(measured(9, 1_000_000, memory_others_share=0.9)) is Finding.DISTURBED


def test_a_throttled_or_hot_board_is_hot_and_not_slow() -> None:
    throttled = measured(9, 2_000_000, held_down_share=0.4)
    assert found(throttled, throttled) is Finding.HOT
    usual = [one.model_copy(update={"temperatures_after_mc": {"soc": 60_000}}) for one in HISTORY]
    for celsius, finding in ((92, Finding.HOT), (61, Finding.SLOW)):
        hot = measured(9, 2_000_000, temperatures_after_mc={"soc": celsius * 1000})
        assert found(hot, hot, history=usual) is finding


def test_a_check_is_added_to_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no other edit: its verdict decides the health."""

    def find_cold(probes: Probes) -> Verdict | None:
        cold = probes.last.temperatures_after_mc.get("soc", 0) < 0
        return Verdict(Finding.FAILING, "frozen") if cold else None

    monkeypatch.setattr(verdicts, "CHECKS", [*CHECKS, find_cold])
    cold = measured(9, temperatures_after_mc={"soc": -4_000})
    assert found(cold) is Finding.FAILING
    assert health_after(Finding.FAILING) is Health.BAD
    assert found(measured(9)) is Finding.GOOD


def test_another_firmware_begins_another_history() -> None:
    facts = HISTORY[0].facts.model_copy(update={"os_version": "OpenHarmony 9"})
    new = measured(9, 1_000_000, facts=facts)
    assert found(new) is Finding.SHORT


def health_after(*findings: Finding, before: Health = Health.UNKNOWN) -> Health:
    """The health after checks in a row with these findings."""
    health, checks = BoardHealth("rk1", before, reason="r"), []
    for number, finding in enumerate(findings):
        checks.append(BoardEvent(number, "rk1", number, "check", finding, None, "check", {}))
        now, reason = next_health(Verdict(finding, "x"), health, checks)
        health = BoardHealth("rk1", now, reason=reason)
    return health.health


GOOD, SLOW, HOT, FAILING = Finding.GOOD, Finding.SLOW, Finding.HOT, Finding.FAILING


@pytest.mark.parametrize(
    ("findings", "health"),
    [
        ([GOOD], Health.GOOD),
        ([GOOD, SLOW], Health.BAD),
        ([SLOW, GOOD], Health.GOOD),
        ([GOOD, HOT, HOT], Health.GOOD),
        ([GOOD, HOT, HOT, HOT], Health.BAD),
        ([GOOD, FAILING, Finding.DISTURBED], Health.UNKNOWN),
        ([GOOD, SLOW, Finding.DISTURBED], Health.BAD),
        ([GOOD, Finding.DISTURBED], Health.GOOD),
        ([GOOD, Finding.HOST], Health.GOOD),
        ([GOOD, Finding.SHORT], Health.UNKNOWN),
        ([GOOD, SLOW, Finding.SHORT], Health.BAD),
        ([GOOD, SLOW, Finding.SHORT, GOOD], Health.GOOD),
        ([GOOD, FAILING, Finding.SHORT], Health.UNKNOWN),
        ([GOOD, SLOW, GOOD, FAILING], Health.LOOPING),
        ([GOOD, SLOW, GOOD, FAILING, GOOD, GOOD, GOOD, GOOD], Health.LOOPING),
        ([GOOD, SLOW, GOOD, FAILING, GOOD, GOOD, GOOD, GOOD, GOOD], Health.GOOD),
    ],
)
def test_health_after_checks(findings: list[Finding], health: Health) -> None:
    assert health_after(*findings) is health


def event(number: int, kind: EventKind, value: str, by: str = "check") -> BoardEvent:
    return BoardEvent(number, "rk1", number, kind, value, None, by, {})


def test_looping_ends_with_five_good_checks_after_it_began() -> None:
    before = BoardHealth("rk1", Health.LOOPING, 5.5, "scatter", made_by="nightly")
    checks = [event(number, "check", GOOD) for number in range(11)]
    for last, health in ((6, Health.LOOPING), (9, Health.LOOPING), (10, Health.GOOD)):
        now, _ = next_health(Verdict(GOOD, "x"), before, checks[: last + 1])
        assert now is health


def test_what_a_person_called_good_is_judged_by_later_checks() -> None:
    old = [event(n, "check", f) for n, f in enumerate((GOOD, SLOW, GOOD, SLOW, GOOD))]
    decided = event(5, "health", Health.GOOD, by="li@lab1")
    before = BoardHealth("rk1", Health.GOOD, 5, "new cable", made_by="li@lab1")
    now, _ = next_health(Verdict(GOOD, "x"), before, [*old, decided, event(6, "check", GOOD)])
    assert now is Health.GOOD


@pytest.mark.parametrize("health", [Health.MAINTENANCE, Health.RETIRED])
def test_no_check_ends_what_people_decided(health: Health) -> None:
    assert health_after(GOOD, SLOW, before=health) is health


def test_a_board_with_a_past_is_suspected(tmp_path: Path) -> None:
    state = lab_state(LabFile(tmp_path, Lab(boards={})))
    assert suspicion(state, "rk1") == []
    for _ in range(2):
        state.events.add("rk1", "flip", "slower", by="nightly", reason="not confirmed")
        for details in ({"seconds": 1}, {"helped": True, "seconds": 1}):
            state.events.add("rk1", "recovery", "power", by="check", details=details)
    state.events.add("rk1", "check", "hot", by="check")
    state.events.add("rk2", "check", "slow", by="check")
    assert suspicion(state, "rk1") == [
        "its verdicts flipped 2 times in 14 days",
        "it had to be brought back 2 times in 14 days",
        "1 of its last checks found it hot",
    ]
    state.health.set("rk1", Health.BAD, reason="slow", by="check")
    assert suspicion(state, "rk1")[0] == "its health is bad: slow"
