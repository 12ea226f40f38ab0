"""The board's own log: who changed what, in the order in which it happened."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from board_effects import effects_after_epoch, read_effects, unfenced_effects

from labctl.transport.base import TransferOptions, Transport
from labctl.transport.hdc import HdcTcpConfig
from labctl.virtual.board import Served, VirtualBoard, serving


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "effects.jsonl"


@pytest.fixture
def board(tmp_path: Path, file: Path) -> Iterator[Served]:
    with serving(VirtualBoard("b", tmp_path / "b", effects=file)) as (board,):
        yield board


@pytest.fixture
def link(board: Served) -> Iterator[Transport]:
    with HdcTcpConfig(address=board.address).open() as link:
        yield link


def run(link: Transport, board: Served, script: str, epoch: int | None = None) -> None:
    """A script in the workdir; with an epoch, as one that an agent is asked to check."""
    words = f"cd {shlex.quote(str(board.workdir))}; {script}"
    if epoch is not None:
        words = f": --epoch {epoch}; {words}"
    link.run(words, timeout=30).check()


def lease(link: Transport, board: Served, epoch: int) -> None:
    run(link, board, f"echo '{{\"epoch\": {epoch}}}' >new; mv new lease", epoch)


def paths(log: list[dict[str, Any]], what: str) -> list[str]:
    return [entry["path"] for entry in log if entry["what"] == what]


def test_files_are_logged_with_connection_and_epoch(
    link: Transport, board: Served, file: Path, tmp_path: Path
) -> None:
    run(link, board, "mkdir -p store/deep", 7)
    run(link, board, "echo a >store/deep/a; mv store/deep/a store/b", 7)
    run(link, board, "chmod 700 store/b; rm store/b")
    (tmp_path / "sent").write_bytes(b"x" * 1000)
    run(link, board, "mkdir -p incoming/8")
    link.push(tmp_path / "sent", f"{board.workdir}/incoming/8/x", TransferOptions(timeout=30))
    log = read_effects(file)
    assert "store/deep" in paths(log, "created")
    assert "store/deep/a" in paths(log, "created")
    assert paths(log, "moved here") == ["store/b"]
    assert paths(log, "changed")[0] == "store/b"
    assert "store/b" in paths(log, "removed")
    (made,) = [entry for entry in log if entry["what"] == "created" and entry["path"] == "store"]
    assert made["fenced"]
    assert [one["epoch"] for one in made["by"]] == [7]
    (removed,) = [entry for entry in log if entry["what"] == "removed"]
    assert not removed["fenced"]
    assert removed["by"] == made["by"]  # the same connection
    assert {entry["path"] for entry in unfenced_effects(log)} == {"store/b"}
    (sent,) = [entry for entry in log if entry.get("kind") == "send"]
    assert sent["epoch"] == 8


def test_what_an_old_epoch_does_late_is_found(link: Transport, board: Served, file: Path) -> None:
    lease(link, board, 1)
    run(link, board, "echo >good", 1)
    with HdcTcpConfig(address=board.address).open() as other:
        run(other, board, "echo >early", 1)
        lease(link, board, 2)
        run(link, board, "echo >better", 2)
        assert effects_after_epoch(read_effects(file)) == []
        run(other, board, "mkdir -p incoming/1; echo >incoming/1/x", 1)
        assert effects_after_epoch(read_effects(file)) == []
        run(other, board, "echo >late")
        run(other, board, "rm better", 1)
    wrong = effects_after_epoch(read_effects(file))
    assert {entry["path"] for entry in wrong} == {"late", "better"}


@pytest.mark.parametrize("how", ["lease", "job"])
def test_a_lease_that_goes_back_and_a_job_of_an_old_epoch_are_found(
    link: Transport, board: Served, file: Path, how: str
) -> None:
    lease(link, board, 5)
    if how == "lease":
        lease(link, board, 4)
    else:
        job = (
            "mkdir -p jobs/j; echo '{\"epoch\": 4}' >jobs/j/new; mv jobs/j/new jobs/j/started.json"
        )
        run(link, board, job, 5)
    wrong = [entry["what"] for entry in effects_after_epoch(read_effects(file))]
    assert ("lease" if how == "lease" else "started") in wrong


def test_a_reboot_is_an_effect_of_its_connection(
    link: Transport, board: Served, file: Path
) -> None:
    lease(link, board, 1)
    with HdcTcpConfig(address=board.address).open() as other:
        run(other, board, ":", 1)
        lease(link, board, 2)
        other.request_reboot(timeout=30)
    assert [entry["what"] for entry in effects_after_epoch(read_effects(file))] == ["reboot"]
