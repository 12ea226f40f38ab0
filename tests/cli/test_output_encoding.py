"""Everyday commands on streams whose encoding lacks characters, and in a locale that is not UTF-8.

A run must not be lost because its table cannot be printed.
"""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from records_made import plan as no_plan
from records_made import planned_run, run, trial

from labctl.cli.encoding import errors_for
from labctl.cli.root import explaining, run_cli, unfailing

COMMANDS = [
    ["--help"],
    ["docs"],
    ["docs", "measuring"],
    ["docs", "accuracy"],
    ["docs", "recipes"],
    ["runs"],
    ["show", "latest"],
    ["report", "latest", "--wide"],
    ["report", "latest", "--format", "md"],
    ["report", "latest", "--format", "csv"],
    ["report", "latest", "--format", "json"],
    ["recipes"],
    ["queue"],
    ["state", "audit"],
    ["hold", "rk1", "--reason", "散热片 µ ±"],
    ["run", "没有.yaml"],
    ["plan", "rÉcipe"],
]
ENCODINGS = ["gbk", "latin-1", "ascii"]


@pytest.fixture
def lab(tmp_path: Path, private_state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab with one run, whose folder is the working directory."""
    assert private_state
    board = "{target: rk3568, transport: {kind: hdc, link: tcp, address: '127.0.0.1:9'}}"
    (tmp_path / "devices.yaml").write_text(f"boards:\n  rk1: {board}\n")
    record = run(recipe="µ–量化")
    planned_run(tmp_path / "runs", record, no_plan()).add(trial(1))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stream(path: Path, encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(path.open("wb"), encoding, "strict")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_ends_as_on_utf8(
    lab: Path, encoding: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses, texts = [], []
    for number, name in enumerate(("utf-8", encoding)):
        out, err = lab / f"out{number}", lab / f"err{number}"
        with monkeypatch.context() as patch, stream(out, name) as one, stream(err, name) as other:
            patch.setattr(sys, "stdout", explaining(one))
            patch.setattr(sys, "stderr", unfailing(other))
            statuses.append(run_cli(words))
            sys.stdout.flush()
            sys.stderr.flush()
        texts.append((out.read_text(encoding=name), err.read_text(encoding=name)))
    assert statuses[0] == statuses[1]
    assert "bug:" not in texts[1][1]
    if words[-1] == "json":
        first, second = (json.loads(out) for out, _ in texts)
        assert first == second  # data is escaped, never replaced
    for before, after in zip(*texts, strict=True):
        assert before.count("\n") == after.count("\n")


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("ascii", "5.31 ~ 0.02 us - q8 x 2 . < ???? x|"),
        ("latin-1", "5.31 ± 0.02 µs - q8 × 2 . < ???? x|"),
        ("gbk", "5.31 ± 0.02 us – q8 × 2 … ≤ 量化 x|"),
    ],
)
def test_columns_stay_where_they_are(tmp_path: Path, encoding: str, shown: str) -> None:
    """Each missing character is replaced by text of its display width."""
    with stream(tmp_path / "out", encoding) as strict, explaining(strict) as wide:
        wide.write("5.31 ± 0.02 µs – q8 × 2 … ≤ 量化 ✕|")
    assert (tmp_path / "out").read_text(encoding=encoding) == shown


def strict_like(errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), "ascii", errors)


def test_what_the_user_chose_is_kept() -> None:
    assert errors_for(strict_like("backslashreplace")) == "backslashreplace"
    assert errors_for(strict_like("strict")) == "labctl.replace"


@pytest.fixture(scope="module")
def gbk_locale(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Chinese locale in GBK, made here."""
    folder = tmp_path_factory.mktemp("locales")
    made = subprocess.run(
        ["localedef", "-i", "zh_CN", "-f", "GBK", str(folder / "zh_CN.GBK")],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LC_", "LANG", "PYTHONIOENCODING", "PYTHONUTF8"))
    }
    return environment | {"LOCPATH": str(folder), "LC_ALL": "zh_CN.GBK"}


def test_the_locale_is_in_force(gbk_locale: dict[str, str]) -> None:
    """Under LC_ALL=C Python writes UTF-8; a locale that cannot be set would test nothing."""
    script = "import locale, sys; print(locale.getencoding(), sys.stdout.encoding)"
    done = subprocess.run(
        [sys.executable, "-c", script], env=gbk_locale, capture_output=True, timeout=60, check=True
    )
    assert done.stdout.decode().lower().split() == ["gbk", "gbk"]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["docs", "measuring"], 0),
        (["report", "latest"], 0),
        (["runs"], 0),
        (["report", "latest", "-o", "report.html"], 0),
        (["run", "没有.yaml"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_commands_in_a_chinese_locale(
    lab: Path, gbk_locale: dict[str, str], words: list[str], status: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "labctl", *(word.encode("gbk") for word in words)],
        cwd=lab,
        env=gbk_locale,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stderr.decode("gbk")
    assert b"bug:" not in done.stderr
    done.stdout.decode("gbk")
    if words[0] in ("runs", "report") and "-o" not in words:
        assert "量化" in done.stdout.decode("gbk")
    if "-o" in words:
        assert "量化" in (lab / "report.html").read_text(encoding="utf-8")
