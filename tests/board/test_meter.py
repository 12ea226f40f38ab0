"""Meters of power, good and bad; and how they are asked while something runs."""

import time
from pathlib import Path

import pytest
from meters import answer, plug, program, serving

from labctl.board.meter import Meter, PowerLog, meter_of
from labctl.errors import HostError
from labctl.retry import wait_until

SHELLY = b'{"id": 0, "switch": [{"apower": 4.25, "voltage": 230.1}], "text": "\xc3\xa9"}'


@pytest.mark.parametrize(
    ("unit", "value", "joules"),
    [("W", 4.5, False), ("mW", 0.0045, False), ("J", 4.5, True), ("Wh", 16200.0, True)],
)
def test_a_program_prints_a_number(tmp_path: Path, unit: str, value: float, joules: bool) -> None:
    meter = meter_of(program(tmp_path, "print(' 4.5 ')", unit=unit))
    assert meter.read() == pytest.approx(value)
    assert meter.counts_joules is joules


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("print('4.5 W')", r"returned '4\.5 W': not a power or energy value"),
        ("print('4,5')", "not a power or energy value"),
        ("print('nan')", "not a power or energy value"),
        ("print(-4.5)", "not a power or energy value"),
        ("print('1e80')", "not a power or energy value"),
        ("print(4)\nprint(5)", "not a power or energy value"),
        ("", "returned ''"),
        (
            "import sys; sys.stdout.buffer.write(bytes(range(128, 256)))",
            "not a power or energy value",
        ),
        ("print(4); raise SystemExit('no such channel')", "ended with status 1: .*no such channel"),
        ("while True: print('4.5 ' * 1000)", "prints without end"),
        ("import time; time.sleep(60)", "did not end within 0.5 s"),
    ],
)
def test_a_program_that_is_no_meter(tmp_path: Path, text: str, why: str) -> None:
    meter = meter_of(program(tmp_path, text, timeout="60s" if "sleep" not in text else "500ms"))
    with pytest.raises(HostError, match=why):
        meter.read()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="program not found"):
        meter_of(program(tmp_path, "", command=("./nonesuch",))).read()


def test_a_plug_answers_with_json() -> None:
    with serving(answer(SHELLY)) as port:
        assert meter_of(plug(port)).read() == 4.25
    with serving(answer(b'{"ENERGY": {"Power": "7"}}')) as port:
        assert meter_of(plug(port, field="ENERGY.Power", unit="mW")).read() == 0.007


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        ([answer(b"{}")], r"has no switch\.0\.apower"),
        ([answer(b'{"switch": [{"apower": null}]}')], "has no switch"),
        ([answer(b'{"switch": [{"apower": true}]}')], "has no switch"),
        ([answer(b'{"switch": [{"apower": NaN}]}')], "does not answer with JSON"),
        ([answer(b'{"switch": [{"apower": -3}]}')], "not a power or energy value"),
        ([answer(b"<html>")], "does not answer with JSON"),
        ([answer(b"\xff\xfe\xfd")], "does not answer with JSON"),
        ([answer(b"[" * 60_000)], "does not answer with JSON"),
        ([answer(SHELLY, status="401 No")], "answers with status 401"),
        ([answer(b"", status="302 Found", more="Location: http://127.0.0.1:1/\r\n")], "status 302"),
        ([answer(b" " * 100_000 + SHELLY)], "answers without end"),
        ([answer(SHELLY)[:-9]], "does not answer"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], "does not answer"),
        ([b""], "does not answer"),
    ],
)
def test_a_plug_that_is_no_meter(pieces: list[bytes], why: str) -> None:
    with serving(*pieces) as port, pytest.raises(HostError, match=why) as refused:
        meter_of(plug(port, timeout="60s")).read()
    assert "secret" not in refused.value.message


def test_a_plug_that_is_away() -> None:
    with serving() as port:
        pass
    with pytest.raises(HostError, match="does not answer: Connection refused"):
        meter_of(plug(port)).read()


def test_a_plug_that_says_nothing() -> None:
    silence = serving(b"HTTP/1.1 200 OK\r\n", b"", pause=60)
    with silence as port, pytest.raises(HostError, match=r"not within 0\.3 s"):
        meter_of(plug(port, timeout="300ms")).read()


def test_a_plug_that_drips() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 6400\r\n\r\n"
    drips = serving(head, *[b"x" * 64] * 100, pause=0.1)
    with drips as port, pytest.raises(HostError, match="answers too slowly"):
        meter_of(plug(port, timeout="2s")).read()


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with serving(answer(SHELLY)) as port:
        assert meter_of(plug(port)).read() == 4.25


# asked again and again


class Played(Meter):
    """Shows 5 W, or what a test puts there."""

    def __init__(self, interval_s: float = 0.02) -> None:
        super().__init__("played", "W", interval_s, 0.2)
        self.said = ["5"]
        self.error: Exception | None = None

    def ask(self) -> str:
        if self.error:
            raise self.error
        return self.said.pop(0) if len(self.said) > 1 else self.said[0]


def logged(log: PowerLog, count: int) -> None:
    assert wait_until(lambda: len(log.answers) >= count, timeout=30, interval=0.01)


def test_it_is_asked_before_meanwhile_and_after() -> None:
    log = PowerLog(Played())
    log.start()
    assert len(log.answers) >= 1
    logged(log, 5)
    before_the_end = time.monotonic_ns()
    log.end(in_peace=True)
    assert log.answers[-1].asked_ns > before_the_end
    times = [moment for a in log.answers for moment in (a.asked_ns, a.answered_ns)]
    assert times == sorted(times)
    assert {answer.value for answer in log.answers} == {5.0}
    assert not log.hangs


def test_failures_are_answers_too_and_it_is_asked_again() -> None:
    meter = Played()
    meter.said = ["5", "x", "6"]
    log = PowerLog(meter)
    log.start()
    logged(log, 4)
    log.end(in_peace=True)
    first, second, third, *_ = log.answers
    assert (first.value, second.value, third.value) == (5, None, 6)
    assert second.error == "the meter (played) returned 'x': not a power or energy value"


def test_a_bug_in_a_meter_costs_its_reading_alone() -> None:
    meter = Played()
    meter.error = KeyError("apower")
    log = PowerLog(meter)
    log.start()
    log.end(in_peace=False)
    assert log.answers[0].error == "bug in labctl: KeyError: 'apower'"


def test_a_meter_that_hangs_is_left_behind() -> None:
    """Headers may come as slowly as they like: no answer's own time-out sees that."""
    drip = [b"x"] * 1000
    with serving(b"HTTP/1.1 200 OK\r\nA: ", *drip, pause=0.1) as port:
        log = PowerLog(meter_of(plug(port, timeout="300ms", interval="100ms")))
        log.start()
        log.end(in_peace=True)
        assert (log.hangs, log.answers) == (True, ())
    # The server is gone, and so is what waited for it.
    assert wait_until(lambda: not log.hangs, timeout=30, interval=0.05)
