"""Where a result goes (``-o``), and options of the result that do not go together."""

import os
import threading
from pathlib import Path

import pytest
from records_made import plan as no_plan
from records_made import planned_run, run, trial

from labctl.cli.root import run_cli
from labctl.errors import HostError


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab with one run, whose folder is the working directory."""
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    planned_run(tmp_path / "runs", run(), no_plan()).add(trial(1))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report(*words: str) -> int:
    return run_cli(["report", "--format", "csv", *words])


def is_result(path: Path) -> bool:
    return path.read_text().startswith("run,recipe,")


def test_a_dash_is_standard_output(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("-o", "-") == 0
    assert capsys.readouterr().out.startswith("run,recipe,")
    assert not (lab / "-").exists()


@pytest.mark.parametrize("words", [["report", "--format", "csv"], ["export", "latest"]])
def test_what_is_no_regular_file_is_written_and_stays(lab: Path, words: list[str]) -> None:
    fifo, found = lab / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: found.append(fifo.read_text()), daemon=True)
    reader.start()
    assert run_cli([*words, "-o", str(fifo)]) == 0
    reader.join(20)
    assert "run" in found[0]
    assert fifo.is_fifo()


def test_the_null_device_stays(lab: Path) -> None:
    """A device of the test's own: root's labctl would replace the host's."""
    device = lab / "null"
    try:
        os.mknod(device, 0o20666, os.makedev(1, 3))
        device.write_bytes(b"")
    except PermissionError:
        pytest.skip("this user may make no device")
    assert report("-o", str(device)) == 0
    assert device.is_char_device()


def test_a_link_stays_and_its_file_keeps_its_mode(lab: Path) -> None:
    (lab / "other").mkdir()
    whole, link = lab / "other" / "whole.csv", lab / "link.csv"
    link.symlink_to(whole)
    assert report("-o", "link.csv") == 0  # it led nowhere
    whole.write_text("old")
    whole.chmod(0o600)
    assert report("-o", "link.csv") == 0
    assert link.is_symlink()
    assert is_result(whole)
    assert whole.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("words", [["bench", "m.gguf"], ["run", "q8_latency"], ["export"]])
def test_a_folder_that_cannot_be_written_is_found_first(
    lab: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the arguments are looked at, so before any board is."""
    (lab / "file").write_text("")
    assert run_cli([*words, "-o", "file/result.csv"]) == 2
    assert "cannot write file/result.csv: " in capsys.readouterr().err
    assert run_cli([*words, "-o", "/proc/result.csv"]) == 2
    assert "cannot write /proc/result.csv: " in capsys.readouterr().err


def test_a_result_that_cannot_be_written_in_the_end_is_printed(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, data: str) -> None:
        raise HostError(f"cannot write {path}: No space left on device", hint="free some space")

    monkeypatch.setattr("labctl.files.write_named", full)
    assert report("-o", "result.csv") == 3
    printed = capsys.readouterr()
    assert printed.out.startswith("run,recipe,")
    assert "the result is on standard output instead" in printed.err


def test_the_experiment_goes_to_the_file_too(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["report", "--form", "experiment"]) == 0
    shown = capsys.readouterr().out
    assert run_cli(["report", "--form", "experiment", "-o", "exp.txt"]) == 0
    assert capsys.readouterr().out == ""
    assert (lab / "exp.txt").read_text() == shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("report --form experiment --format csv", "--form experiment is a text"),
        ("report --form experiment --json", "--form experiment is a text"),
        ("report --form experiment --wide", "--form experiment is a text"),
        ("report --json --format csv", "--json is --format json, not csv"),
        ("bench m.gguf --print-recipe --format csv", "--print-recipe prints YAML"),
        ("bench m.gguf --print-recipe --json", "--print-recipe prints YAML"),
    ],
)
def test_options_that_do_not_go_together(
    lab: Path, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(words.split()) == 2
    assert message in capsys.readouterr().err
    assert not (lab / "list.txt").exists()


def test_json_said_twice_is_json(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["report", "--json", "--format", "json"]) == 0
    assert capsys.readouterr().out.startswith("{")


def test_a_printed_recipe_goes_to_the_file(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lab / "devices.yaml").write_text(
        'boards: {b: {target: rk3568, transport: {kind: hdc, link: tcp, address: "127.0.0.1:1"}}}'
    )
    (lab / "m.gguf").write_bytes(b"")
    assert run_cli(["bench", "m.gguf", "--print-recipe", "-o", "rec.yaml"]) == 0
    assert capsys.readouterr().out == ""
    assert "m.gguf" in (lab / "rec.yaml").read_text()
