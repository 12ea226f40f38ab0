"""A damaged row of the index, a damaged file of a run: lists and pages show the rest."""

import json
import re
import shutil
import sqlite3
from pathlib import Path

import pytest
from damages import DAMAGES
from dashboards import served
from measured_lab import RUNS, measured_lab
from records_made import probe

from labctl.board.probe_files import probe_path
from labctl.cli.root import run_cli
from labctl.config.lab import find_lab
from labctl.index.rows import TABLES, columns
from labctl.runs.record.repository import RunRepository
from labctl.transport.built_in import TRANSPORTS

LISTS = (
    "runs", "runs --json", "runs --wide", "runs --tag nightly", "boards probes",
    "boards probes --json", "baseline list", "runs prune --dry-run", "regressions",
)  # fmt: skip
PATHS = ("/", "/runs", "/trends", "/accuracy", "/metrics", "/api/v1/runs", "/boards/rk1", *(
    f"{place}/{run}" for run in RUNS for place in ("/runs", "/api/v1/runs")
))  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = measured_lab(tmp_path_factory.mktemp("made") / "lab")
    one = probe()
    path = probe_path(root, one)
    path.parent.mkdir(parents=True)
    path.write_text(one.model_dump_json())
    RunRepository(root / "runs").query()
    RunRepository(root / "runs").probes()
    return root


@pytest.fixture
def lab(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "lab"))


def answered(lab: Path, capsys: pytest.CaptureFixture[str], words: str) -> str:
    status = run_cli(["--lab", str(lab), *words.split()])
    shown = capsys.readouterr()
    assert "bug" not in shown.err, (words, shown.err)
    assert status in (0, 1, 2), (words, shown.err)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", shown.out + shown.err), words
    if "json" in words:
        assert shown.out, (words, status, shown.err)
        json.loads(shown.out, parse_constant=pytest.fail)
    return shown.out


@pytest.mark.parametrize("table", TABLES)
def test_a_damaged_row_of_the_index_is_made_again(
    lab: Path, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    row, keys = TABLES[table]
    path, repository = lab / "runs" / "index.sqlite", RunRepository(lab / "runs")
    every = list(DAMAGES.values())
    for number, (column, (kind, _)) in enumerate(columns(row).items()):
        values = every
        if column in keys or (kind is not dict and column not in ("started", "state", "kind")):
            turn = number % len(every)  # each value for some column, and each column some values
            values = ["\x1b[2J"] if kind is str else (every * 2)[turn : turn + 3]
        for value in values:
            with sqlite3.connect(path) as db:
                try:
                    db.execute(f"UPDATE {table} SET {column} = ? WHERE 1", (value,))
                except (sqlite3.Error, OverflowError):
                    continue
            db.close()
            assert {one.run.id for one in repository.query()} == {*RUNS}, column
            repository.trials()
            repository.probes()
        path.unlink()
        repository.query()
        repository.probes()


def test_the_dashboard_answers_over_a_damaged_index(lab: Path) -> None:
    found = find_lab(lab, TRANSPORTS)
    with served(found) as dashboard, dashboard.client() as client:
        for column in ("started", "state", "kind", "verdict"):
            with sqlite3.connect(lab / "runs" / "index.sqlite") as db:
                db.execute(f"UPDATE run SET {column} = '\x1b[2Jx'")
            db.close()
            for path in PATHS:
                answer = client.get(path)
                assert answer.status_code == 200, (path, answer.text[:300])
                assert "\x1b" not in answer.text


FILES = (
    "run.json", "plan.json", "journal.jsonl", "events.jsonl", "end.json", "annotations.json",
    "records.jsonl", "trials/1-q8_0-r1/record.json",
)  # fmt: skip
CONTENTS = {
    "empty": b"",
    "bytes": b"\xff\xfe\x00",
    "broken JSON": b'{"a": [1, 2',
    "another kind": b"[[1], 2]",
    "deep": b"[" * 100_000,
    "escapes": b'{"schema_version": 1, "note": "\\u001b[2Jx", "tags": ["\\u001b[2Jx"]}\n',
    "a newer version": b'{"schema_version": 99}',
    "NaN": b'{"schema_version": NaN, "started": NaN}',
    "absurd times": b'{"schema_version": 1, "utc": "13434-01-01T00:00:00Z", "id": null}',
    "100 kB": b"x" * 100_000,
    "a large number": b'{"schema_version": 1' + b"0" * 5000 + b"}",
}


@pytest.mark.parametrize("content", CONTENTS)
def test_a_damaged_file_of_a_run_hides_no_other_run(
    lab: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    run = lab / "runs" / RUNS[0]
    for name in FILES:
        path = run / name
        before = path.read_bytes() if path.exists() else None
        if before is None and not path.parent.is_dir():
            continue
        path.write_bytes(CONTENTS[content])
        for words in (*LISTS, f"show {RUNS[0]}", f"report {RUNS[0]}", f"watch {RUNS[0]}"):
            shown = answered(lab, capsys, words)
            if words.split()[0] == "runs" and "prune" not in words and "tag" not in words:
                assert RUNS[1][-6:] in shown, (name, words)
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)


@pytest.mark.parametrize("content", CONTENTS)
def test_a_damaged_file_of_the_lab_hides_nothing(
    lab: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (probes,) = (lab / "boards").iterdir()
    for path in (
        *probes.iterdir(),
        lab / "nights" / "20261120T223000Z-abcdef" / "night.json",
        lab / "nights" / "20261120T223000Z-abcdef" / "state.jsonl",
        lab / "batches" / "20261120T223000Z-abcdef" / "batch.json",
        lab / "batches" / "20261120T223000Z-abcdef" / "journal.jsonl",
        lab / "runs" / ".trash" / "x" / "run.json",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENTS[content])
        for words in LISTS:
            shown = answered(lab, capsys, words)
            if words == "runs":
                assert RUNS[1][-6:] in shown
