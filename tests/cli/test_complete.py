"""What the shell offers for a word that is being typed."""

import os
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class
from records_made import plan, planned_run, run, trial

from labctl import process
from labctl.cli.root import cli
from labctl.config.lab import find_lab
from labctl.state.state import lab_state
from labctl.transport.built_in import TRANSPORTS

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    board = '{target: rk3568, transport: {kind: hdc, link: tcp, address: "127.0.0.1:1"}}'
    (tmp_path / "devices.yaml").write_text(f"boards: {{rk1: {board}}}\n")
    (tmp_path / "models.yaml").write_text("models: {llama-8b: {file: llama.gguf}}\n")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "my_own.yaml").write_text("not read\n")
    (tmp_path / "my_other.yaml").write_text("not read\n")
    (tmp_path / "my_recipes").mkdir()
    for name in ("20261121T101010Z-q2-aaaaaa", "20261122T101010Z-q2-bbbbbb"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text("{}")
    end = '{"schema_version": 1, "state": "finished", "finished": "2026-11-21T10:20:00+00:00"}'
    (tmp_path / "runs" / "20261121T101010Z-q2-aaaaaa" / "end.json").write_text(end)
    tags = '{"schema_version": 1, "tags": ["nightly"]}'  # of a run that is damaged otherwise
    (tmp_path / "runs" / "20261122T101010Z-q2-bbbbbb" / "annotations.json").write_text(tags)
    lab_state(find_lab(tmp_path, TRANSPORTS)).baselines.set("cold-start", ["latest"])
    return tmp_path


def offered(line: str, shell: str = "bash") -> list[str]:
    """Ask as the shell's script does; bash gets a ``TYPE,VALUE`` for each offer."""
    words = line.split(" ")
    told = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    if shell == "fish":
        told = {"COMP_WORDS": line, "COMP_CWORD": words[-1]}
    completer = get_completion_class(shell)
    assert completer is not None
    with pytest.MonkeyPatch.context() as patch:
        for name, value in told.items():
            patch.setenv(name, value)
        return completer(cli, {}, "labctl", "_LABCTL_COMPLETE").complete().split()


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("labctl run q8_lat", ["plain,q8_latency"]),
        ("labctl run recip", ["file,recip"]),  # the shell completes recipes/
        ("labctl run my", ["plain,my_own", "plain,my_other.yaml", "plain,my_recipes/"]),
        ("labctl plan my_own --board r", ["plain,rk1"]),
        ("labctl compare cold", ["plain,cold-start"]),
        ("labctl compare latest 20261121", ["plain,20261121T101010Z-q2-aaaaaa"]),
        ("labctl compare --figure tt", ["plain,ttft_ms"]),
        (
            "labctl report 2026",
            ["plain,20261122T101010Z-q2-bbbbbb", "plain,20261121T101010Z-q2-aaaaaa"],
        ),
        ("labctl report cold", ["plain,cold-start"]),
        ("labctl report -o x.svg --figure e", ["plain,estimates", "plain,ecdf"]),
        ("labctl show cold", ["plain,cold-start"]),
        ("labctl export cold", ["plain,cold-start"]),
        ("labctl resume la", ["plain,latest"]),
        ("labctl resume 2026", ["plain,20261122T101010Z-q2-bbbbbb"]),  # the other one is finished
        ("labctl runs --tag ni", ["plain,nightly"]),
        ("labctl runs tag latest ni", ["plain,nightly"]),
        ("labctl runs remove 20261122", ["plain,20261122T101010Z-q2-bbbbbb"]),
        ("labctl baseline set x latest 20261122", ["plain,20261122T101010Z-q2-bbbbbb"]),
        ("labctl baseline remove cold", ["plain,cold-start"]),
        ("labctl build --target rk", ["plain,rk3568", "plain,rk3588"]),
        ("labctl build --target rk3568 --tool llama-per", ["plain,llama-perplexity"]),
        ("labctl models verify ll", ["plain,llama-8b"]),
        ("labctl models show x", ["file,x"]),
        ("labctl boards probe r", ["plain,rk1"]),
        ("labctl boards remove r", ["plain,rk1"]),
        ("labctl hdc -t r", ["plain,rk1"]),
        ("labctl docs getting", ["plain,getting-started"]),
        ("labctl help mo", ["plain,models"]),
        ("labctl help models ad", ["plain,add"]),
        ("labctl help models add x", []),
        ("labctl --lab /nonexist boards remove r", []),
        ("labctl --lab /nonexist report 2026", []),
        ("labctl models remove ll", ["plain,llama-8b"]),
        ("labctl shell r", ["plain,rk1"]),
        ("labctl recipes show q8_lat", ["plain,q8_latency"]),
        ("labctl recipes copy x --target rk", ["plain,rk3568", "plain,rk3588"]),
        ("labctl bench ll", ["plain,llama-8b"]),
        ("labctl bench x --board r", ["plain,rk1"]),
    ],
)
def test_names_and_files_are_offered(lab: Path, line: str, offers: list[str]) -> None:
    assert offered(line) == offers


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_is_told(lab: Path, shell: str) -> None:
    assert "q8_latency" in "\n".join(offered("labctl run q8_lat", shell))
    assert "file" in "\n".join(offered("labctl run recip", shell))


def test_parameters_of_runs_are_offered_with_their_values(lab: Path) -> None:
    directory = planned_run(lab / "runs", run("20261122T101011Z-q2-cccccc"), plan())
    directory.add(trial(1, parameters={"threads": 4, "mmap": True}))
    assert offered("labctl runs --param thr") == ["plain,threads=4"]
    assert offered("labctl export --param ") == ["plain,mmap=true", "plain,threads=4"]


def test_artifacts_are_offered(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(lab / "cache"))
    assert offered("labctl artifacts show ") == []


def test_a_lab_that_cannot_be_read_offers_nothing(lab: Path) -> None:
    (lab / "devices.yaml").write_text("boards: [\n")
    assert offered("labctl run x --board ") == []


def test_another_lab_is_looked_into(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert offered(f"labctl --lab {lab} report 202612") == []
    assert offered(f"labctl --lab {lab} run x --board r") == ["plain,rk1"]


def test_in_a_real_bash(lab: Path) -> None:
    script = (
        'eval "$(labctl completion bash)"; COMP_WORDS=(labctl run q8_lat); COMP_CWORD=2;'
        ' _labctl_completion labctl; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = process.run(["bash", "-c", script], timeout=120, env={**os.environ, "PATH": path})
    assert done.text == "q8_latency\n", done.tail()
