"""Damaged rows in each table of the state: every command and every page still answers."""

import json
import re
from collections.abc import Iterator

import pytest
from damages import DAMAGES, KEEPING, Rows, damage, damage_all, fill, rows_of
from dashboards import Served, made_lab, served

from labctl.cli.root import run_cli
from labctl.config.lab import LabFile
from labctl.farm.news import LabNews
from labctl.state.state import LabState, lab_state
from labctl.web.lab_view import LabView
from labctl.web.request_checks import Limits
from labctl.web.watcher import Watcher

#: Commands that list, with the exit statuses that they may have.
LISTS = (
    "boards", "boards --json", "boards history rk1", "boards history rk3 --json",
    "boards check --due", "hold --list", "hold --list --json", "queue", "queue --ended 5",
    "queue list --json", "worker --list", "worker --list --json", "state audit",
    "state audit --json",
    "state audit --board rk1 --actor ann", "baseline list", "baseline list --json", "state damaged",
    "state damaged --json", "state backup", "serve token list", "serve token list --json",
    "runs", "runs --json",
)  # fmt: skip
#: Commands that act on what is not damaged.
ACTS = (
    "hold rk5 --for 5m --reason demo", "hold rk5 --for 6m --json", "release rk5",
    "hold rk5 --from now --for 5m --reason demo", "boards good rk5 --reason fan",
    "boards maintenance rk5 --reason fan", "boards good rk5 --reason fan",
    "serve token add eve --role look", "serve token revoke eve",
)  # fmt: skip
#: Damages that differ for who shows them; tests of the state have all of them.
WORDS = (
    "broken JSON",
    *(
        pytest.param(word, marks=pytest.mark.soak)
        for word in ("the year 13434", "escapes", "100 kB", "bytes")
    ),
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> LabFile:
    return made_lab(tmp_path_factory.mktemp("lab") / "kitchen", boards=5)


@pytest.fixture(scope="module")
def sound(lab: LabFile) -> tuple[LabState, Rows]:
    state = lab_state(lab)
    fill(state)
    return state, rows_of(state)


@pytest.fixture(scope="module")
def dashboard(lab: LabFile, sound: tuple[LabState, Rows]) -> Iterator[Served]:
    with served(lab) as found:
        yield found


@pytest.mark.parametrize("word", WORDS)
def test_every_command_still_answers(
    lab: LabFile,
    sound: tuple[LabState, Rows],
    capsys: pytest.CaptureFixture[str],
    word: str,
) -> None:
    for keys in (False, True):
        damage_all(*sound, DAMAGES[word], keys=keys)
        for words in LISTS + ACTS:
            status = run_cli(["--lab", str(lab.root), *words.split()])
            shown = capsys.readouterr()
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", shown.out + shown.err), words
            assert "bug" not in shown.err, (words, shown.err)
            assert len(shown.out) < 60_000, words
            # 3: the boards do not answer.
            assert status in ((0, 3) if words.startswith(("boards", "doctor")) else (0,)), (
                words, status, shown.err,
            )  # fmt: skip
            if "json" in words:
                json.loads(shown.out, parse_constant=pytest.fail)


def look_once(lab: LabFile) -> None:
    """What a dashboard does each second, and its webhooks."""
    view = LabView(lab)
    Watcher(view, Limits()).look()
    LabNews(view.state).look()


@pytest.mark.parametrize("word", WORDS)
def test_every_page_still_answers(
    dashboard: Served, sound: tuple[LabState, Rows], word: str
) -> None:
    paths = ["/", "/queue", "/runs", "/audit", "/accuracy", "/trends", "/metrics", "/sign-in"]
    paths += [f"/boards/rk{number}" for number in range(1, 6)]
    paths += [f"/api/v1{path}" for path in ("/boards", "/boards/rk1", "/queue?ended=9", "/runs")]
    paths += ["/api/v1/audit", "/api/v1/openapi.json"]
    for keys in (False, True):
        damage_all(*sound, DAMAGES[word], keys=keys)
        with dashboard.client() as client:
            for path in paths:
                for language in ("en", "zh"):
                    answer = client.get(f"{path}{'&' if '?' in path else '?'}lang={language}")
                    assert answer.status_code == 200, (path, answer.text[:500])
                    assert "\x1b" not in answer.text, path
                    assert len(answer.text) < 300_000, path
        look_once(dashboard.lab)


@pytest.mark.parametrize("table", KEEPING)
def test_a_damaged_row_is_in_sight_with_the_command_that_removes_it(
    lab: LabFile,
    sound: tuple[LabState, Rows],
    dashboard: Served,
    capsys: pytest.CaptureFixture[str],
    table: str,
) -> None:
    board = KEEPING[table]
    column = {"board_lease": "expires", "reservation": "ends", "board_health": "health"}
    damage(*sound, table, [column.get(table, "state")], "\x1b[2Jx")
    assert run_cli(["--lab", str(lab.root), "boards"]) == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert "damaged: " in shown
    assert "to remove it: `labctl " in shown
    with dashboard.client() as client:
        page = client.get(f"/boards/{board}").text
        (one,) = [one for one in client.get("/api/v1/boards").json() if one["name"] == board]
    assert "damaged: " in page
    assert "damaged: " in json.dumps(one)
    assert run_cli(["--lab", str(lab.root), "hold", board]) in (0, 3)
    assert run_cli(["--lab", str(lab.root), "boards", "--json"]) == 3
    capsys.readouterr()
