"""``labctl hold``, ``release``, ``state audit``, and who has what in ``labctl boards``."""

import json
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cli_calls import Labctl

from labctl.config.lab import find_lab
from labctl.state.events import this_user
from labctl.state.state import LabState, lab_state
from labctl.transport.built_in import TRANSPORTS
from labctl.units import parse_local_time

HOUR = 3600.0


@pytest.fixture
def lab(empty_lab: Path) -> Path:
    """A lab with two boards that do not answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = f"127.0.0.1:{server.getsockname()[1]}"
    ways = {name: free.replace("127.0.0.1", host) for name, host in BOARDS.items()}
    text = "".join(
        f'  {name}: {{target: rk3568, transport: {{kind: hdc, link: tcp, address: "{way}"}}}}\n'
        for name, way in ways.items()
    )
    (empty_lab / "devices.yaml").write_text(f"boards:\n{text}")
    return empty_lab


@pytest.fixture
def state(lab: Path) -> LabState:
    return lab_state(find_lab(lab, TRANSPORTS))


BOARDS = {"rk1": "127.0.0.1", "rk2": "127.0.0.2"}


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def test_a_board_is_held_shown_and_released(labctl: Labctl, state: LabState) -> None:
    out, err = labctl("hold", "rk1", "--for", "2h", "--reason", "look\nat it")
    assert out.startswith("rk1 is yours until 20")
    assert "labctl release rk1" in err
    (shown, other) = json.loads(labctl("boards", "--json", status=3)[0])
    assert list(shown) == [
        *("name", "target", "transport", "address", "state", "detail", "facts"),
        *(
            "use",
            "health",
            "health_reason",
            "holder",
            "purpose",
            "since",
            "until",
            "kept",
            "damaged",
        ),
    ]
    assert (shown["use"], shown["holder"], shown["kept"]) == ("held", this_user(), "hold")
    assert shown["until"] - shown["since"] == pytest.approx(2 * HOUR)
    assert (other["use"], other["holder"], other["health"]) == ("offline", None, "unknown")
    text = labctl("boards", status=3)[0]
    assert f"    held by {this_user()} since 20" in text
    assert "look\\x0aat it" in " ".join(text.split())
    assert labctl("release", "rk1")[0] == f"rk1: ended the hold of {this_user()}\n"
    assert labctl("release", "rk1")[0] == "rk1: nobody held it\n"
    lines = labctl("state", "audit")[0].splitlines()
    assert [line.split("  ")[2] for line in lines] == ["hold", "release"]
    (entry,) = json.loads(labctl("state", "audit", "-n", "1", "--json")[0])
    assert (entry["action"], entry["subject"], entry["actor"]) == ("release", "rk1", this_user())


def test_another_s_board_is_released_with_force_and_a_reason(
    labctl: Labctl, state: LabState
) -> None:
    state.holds.hold("rk1", by="ann@desk", reason="mine")
    state.leases.acquire("rk1", purpose="run q2", holder="ann@desk")
    shown = labctl("boards", status=3)[0]
    assert "leased by ann@desk since" in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if line.startswith("    "))
    assert "is in use by ann@desk since" in labctl("hold", "rk1", status=3)[1]
    assert "--force --reason TEXT" in labctl("release", "rk1", status=2)[1]
    assert "a reason is required" in labctl("release", "rk1", "--force", status=2)[1]
    out = labctl("release", "rk1", "--force", "--reason", "on holiday", "--json")[0]
    assert json.loads(out) == [
        {"board": "rk1", "ended": ["the hold of ann@desk", "the lease of ann@desk: run q2"]}
    ]
    assert state.leases.list() == []
    assert "on holiday" in labctl("state", "audit", "--board", "rk1", "--since", "1h")[0]


def test_a_board_is_reserved_listed_and_cancelled(labctl: Labctl, state: LabState) -> None:
    assert "no reservations" in labctl("hold", "--list")[1]
    words = ("hold", "rk1", "rk2", "--from", "2099-01-05T09:00+00:00", "--for", "90m")
    one, _two = json.loads(labctl(*words, "--user", "ann", "--reason", "demo", "--json")[0])
    assert (one["holder"], one["begins"]) == (
        "ann",
        datetime(2099, 1, 5, 9, tzinfo=UTC).timestamp(),
    )
    assert one["ends"] - one["begins"] == 90 * 60
    assert "reserved for ann from" in labctl(*words, status=3)[1]
    assert len(labctl("hold", "--list")[0].splitlines()) == 2
    (line,) = labctl("hold", "--list", "rk1")[0].splitlines()
    assert "  reservation  ann: demo" in line
    assert labctl("hold", "--cancel", one["id"])[0].startswith(f"cancelled: {one['id']}  rk1")
    assert "no reservation" in labctl("hold", "--cancel", one["id"], status=2)[1]
    now = ("hold", "rk1", "--from", "now", "--for", "1h", "--maintenance")
    labctl(*now, "--reason", "new fan")
    assert "    maintenance since" in labctl("boards", status=3)[0]
    assert "has maintenance from" in labctl("hold", "rk1", status=3)[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hold", "rk1", "--for", "2h", "--maintenance"], "--from WHEN"),
        (["hold", "rk1", "--from", "14:00"], "--for 2h"),
        (["hold", "--from", "14:00", "--for", "2h"], "a BOARD"),
        (["hold", "rk1", "--from", "noon", "--for", "2h"], "must be a time such as 14:00"),
        (
            ["hold", "rk1", "--from", "2001-01-01T09:00", "--for", "2h"],
            "this time is in the past",
        ),
        (["hold", "rk1", "--cancel", "x"], "--cancel takes an ID"),
        (["hold", "rk9"], "no board 'rk9'"),
        (["hold"], "BOARD"),
        (["hold", "rk1", "--for", "2"], "duration"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    labctl: Labctl, state: LabState, words: list[str], said: str
) -> None:
    assert said in labctl(*words, status=2)[1]
    assert state.reservations.list() == []


def test_a_time_of_day_is_the_next_one_here(berlin: None) -> None:
    now = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)  # 13:00 in Berlin
    assert parse_local_time("14:00", now) == now.timestamp() + HOUR
    assert parse_local_time("13:00", now) == now.timestamp() + 24 * HOUR
    assert parse_local_time("now", now) == now.timestamp()
    assert parse_local_time("2026-11-22T12:30Z", now) == now.timestamp() + HOUR / 2
    assert parse_local_time("2026-11-22 13:30", now) == now.timestamp() + HOUR / 2


def test_a_day_on_which_the_clocks_change_has_23_or_25_hours(berlin: None) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    begin, end = (parse_local_time(f"2026-03-{day}T00:00", now) for day in (29, 30))
    assert end - begin == 23 * HOUR
    begin, end = (parse_local_time(f"2026-10-{day}T00:00", now) for day in (25, 26))
    assert end - begin == 25 * HOUR
    with pytest.raises(ValueError, match="leave this time out"):
        parse_local_time("2026-03-29T02:30", now)
    with pytest.raises(ValueError, match=r"twice; write 2026-10-25T02:30:00\+02:00 or .*\+01:00"):
        parse_local_time("2026-10-25T02:30", now)
