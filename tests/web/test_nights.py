"""Pages of nights: what they begin with, nights without an end, and text of strangers in them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dashboards import Served, made_lab, served

from labctl.farm.nightly.nights import RESULT, begin_night, night_lock
from labctl.locks import locked
from labctl.records.night import CommitSearch, NightFinding, NightRecord, NightResult, NightVerdict

BEGAN = datetime(2026, 11, 22, 22, tzinfo=UTC)
HOSTILE = '</td><script>alert(1)</script>"\x1b[2J{x}'
SLOW, CUT, RUNS, TORN = (f"2026112{day}T220000Z-tonight-00000{day}" for day in range(4))
COMMIT = "c0ffee" + "0" * 34


def finding(board: str, verdict: NightVerdict, reason: str, **more: object) -> NightFinding:
    values = {"row": f"llama/q8@{board}", "build": "llama/rk3568", "variant": "q8_0"}
    return NightFinding.model_validate(
        {**values, "board": board, "verdict": verdict, "reason": reason, **more}
    )


def made_night(root: Path, name: str) -> Path:
    record = NightRecord(
        id=name, plan="tonight", started=BEGAN, deadline=BEGAN.timestamp() + 9, bisect=True, rows=()
    )
    return begin_night(root, record)


def result() -> NightResult:
    slow = finding("rk1", NightVerdict.SLOWER, HOSTILE, ratio=1.079, execution="board")
    search = CommitSearch(
        build="llama/rk3568", row=slow.row, variant="q8_0", outcome="named", first=COMMIT,
        candidates=(COMMIT,), reason="it is the first slow commit", pairs=14, complete=True,
    )  # fmt: skip
    return NightResult(
        id=SLOW,
        plan="tonight",
        started=BEGAN,
        finished=BEGAN + timedelta(hours=7),
        exit_status=1,
        findings=(
            finding(
                "rk2", NightVerdict.GOOD, "as fast", ratio=1.0, execution="emulated", runs=["a/b"]
            ),
            finding("rk3", NightVerdict.NOT_MEASURED, "rk3 was offline", details=HOSTILE),
            slow,
        ),
        searches=(search,),
        builds={"llama/rk3568": {"good": "a" * 40, "head": "b" * 40}},
    )


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    lab = made_lab(tmp_path_factory.mktemp("lab") / "kitchen")
    folders = {name: made_night(lab.root, name) for name in (SLOW, CUT, RUNS, TORN)}
    (folders[SLOW] / RESULT).write_text(result().model_dump_json())
    (folders[TORN] / RESULT).write_text("{")
    with served(lab) as found:
        yield found


def test_a_night_begins_with_what_got_slower_and_its_commit(dashboard: Served) -> None:
    text = dashboard.ask("GET", f"/nights/{SLOW}").text
    assert "alert(1)" in text
    assert "<script>alert" not in text
    assert "\x1b" not in text
    title = text.partition("<h1")[2].partition("</h1>")[0]
    assert "SLOWER in 1 of 3: llama/q8@rk1 q8_0 (7.9% slower)" in title
    assert "EMULATED" not in title, "the slow board is not emulated"
    assert '<span class="badge">EMULATED' in text
    leads = text.partition("</h1>")[2].partition("<dl")[0]
    assert "first slow commit of llama/rk3568: c0ffee" in leads
    assert "no verdict on 1 of 3" in leads
    places = [
        text.index(f"llama/q8@{board}", text.index("<tbody>")) for board in ("rk1", "rk3", "rk2")
    ]
    assert places == sorted(places)
    assert 'href="/runs/a%2Fb"' in text


def test_the_list_of_nights_counts_nights_and_tells_how_each_ended(dashboard: Served) -> None:
    text = dashboard.ask("GET", "/nights?lang=en").text
    assert "Nights: 4" in text
    rows = {name: text.partition(f'<tr id="night-{name}">')[2].partition("</tr>")[0] for name in (
        SLOW, CUT, RUNS, TORN
    )}  # fmt: skip
    assert "mark failed" in rows[SLOW]
    assert "mark interrupted" in rows[CUT]
    assert "mark damaged" in rows[TORN]
    assert list(rows) == sorted(rows)
    assert text.index(f"night-{TORN}") < text.index(f"night-{SLOW}")


def test_the_last_night_of_a_plan_runs_while_its_lock_is_held(tmp_path: Path) -> None:
    lab = made_lab(tmp_path / "kitchen")
    for name in (CUT, RUNS):
        made_night(lab.root, name)
    with served(lab) as found, locked(night_lock(lab.root, "tonight"), timeout=0):
        assert "mark running" in found.ask("GET", f"/nights/{RUNS}").text
        assert "mark interrupted" in found.ask("GET", f"/nights/{CUT}").text


@pytest.mark.parametrize("name", ["x", "%2e%2e%2f%2e%2e", f"{SLOW}x", "*"])
def test_only_nights_that_are_listed_are_read(dashboard: Served, name: str) -> None:
    assert dashboard.ask("GET", f"/nights/{name}").status_code == 404


def test_a_lab_without_nights_says_how_to_begin_one(tmp_path: Path) -> None:
    with served(made_lab(tmp_path / "kitchen")) as found:
        assert "labctl nightly PLAN" in found.ask("GET", "/nights?lang=zh").text
