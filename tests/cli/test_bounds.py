"""Bounds of what users store: refused before it is stored, with one clear error."""

import re
from pathlib import Path

import pytest
from cli_calls import Labctl

from labctl.config.lab import LabFile, find_lab
from labctl.errors import ConfigError
from labctl.state.health import Health
from labctl.state.job import NewJob
from labctl.state.state import LabState, lab_state
from labctl.transport.built_in import TRANSPORTS

LONG = "x" * 100_000
DAY = 86_400.0


@pytest.fixture
def lab(empty_lab: Path) -> Path:
    return empty_lab


def state_of(lab: Path) -> LabState:
    found: LabFile = find_lab(lab, TRANSPORTS)
    return lab_state(found)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["hold", "rk1", "--for", "99999999h"], "at most 30 days"),
        (["hold", "rk1", "--for", "31d"], "at most 30 days"),
        (["hold", "rk1", "--for", "59s"], "one minute to 30 days"),
        (["hold", "rk1", "--reason", LONG], "100000 characters, and may have 500"),
        (["release", "rk1", "--force", "--reason", LONG], "may have 500"),
        (["hold", "rk1", "--from", "now", "--for", "31d"], "at most 30 days"),
        (["hold", "rk1", "--from", "now", "--for", "1h", "--reason", LONG], "may have 500"),
        (["hold", "rk1", "--from", "9999-06-01T00:00", "--for", "1h"], "1970 to 9998"),
        (["boards", "good", "rk1", "--reason", LONG], "may have 500"),
        (["queue", "cancel", "x", "--reason", LONG], "may have 500"),
        (["serve", "token", "add", LONG], "at most 100"),
        (["serve", "token", "add", "a\x1b[2J"], "printable"),
        (["serve", "token", "add", "ann", "--expires", "99999999h"], "3650 days"),
        (["virtual-board", "--name", "板"], "a-z, 0-9"),
        (["virtual-board", "--name", "x" * 62, "--count", "10"], "a-z, 0-9"),
        (["virtual-board", "--name", "../x"], "a-z, 0-9"),
    ],
)
def test_a_value_out_of_bounds_is_refused_before_it_is_stored(
    lab: Path, labctl: Labctl, words: list[str], says: str
) -> None:
    out, err = labctl(*words, status=2)
    assert out == ""
    assert says in " ".join(err.split())
    assert len(err) < 1000
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", err)
    assert "bug" not in err
    state = state_of(lab)
    assert (state.reservations.list(), state.audit.list(), state.tokens.list()) == ([], [], [])


def test_python_has_the_same_bounds(lab: Path) -> None:
    state = state_of(lab)
    for seconds in (59.0, 31 * DAY, float("nan"), float("inf"), -1.0):
        with pytest.raises(ConfigError, match="one minute to 30 days"):
            state.holds.hold("rk1", by="ann", seconds=seconds)
        with pytest.raises(ConfigError, match="one minute to 30 days"):
            state.reservations.add("rk1", 2e9, 2e9 + seconds, holder="ann", by="ann")
    for wrong in (
        {"priority": 101},
        {"max_seconds": float("nan")},
        {"max_seconds": -1.0},
        {"id": "\x1b[2J"},
        {"submitter": LONG},
        {"boards": (LONG,)},
        {"request": {"recipe": "x" * 5_000_000}},
    ):
        values = {"name": "tiny", "request": {}, "boards": ("rk1",), **wrong}
        with pytest.raises(ConfigError, match="cannot store"):
            state.jobs.submit(NewJob(**values))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="at most 500"):
        state.baselines.set("release", ["r"], note=LONG)
    assert state.jobs.list() == []
    assert state.reservations.list() == []


def test_what_programs_say_at_length_is_cut_and_stored(lab: Path) -> None:
    state = state_of(lab)
    state.health.set("rk1", Health.BAD, reason=f"{LONG}\x1b[2J", by="check")
    assert state.health.get("rk1").damaged is None
    assert len(str(state.health.get("rk1").reason)) == 500
    lease = state.leases.acquire("rk1", purpose=f"\x1b[2J{LONG}", holder="ann", kind="probe")
    assert len(lease.purpose) == 500
    assert state.leases.list()[0].damaged is None
