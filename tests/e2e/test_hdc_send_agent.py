"""What hashes a file that ``labctl hdc send`` has sent: this labctl's own agent, if it is that."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import agent_builds
import pytest
from labs import write_devices

from labctl.board.store import BoardStore
from labctl.cli.root import run_cli
from labctl.deploy.plan import Object, describe, plan
from labctl.deploy.send import deploy
from labctl.transport.hdc import HdcTcpConfig
from labctl.virtual.board import Served, VirtualBoard, serving

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("private_state")]


@dataclass(frozen=True)
class Lab:
    """A lab with a virtual board that notes which files its ``sha256sum`` is asked for."""

    root: Path
    board: Served
    notes: Path
    source: Path

    @property
    def hashed(self) -> list[str]:
        """Names of the files that ``sha256sum`` was asked for."""
        return [Path(line).name for line in self.notes.read_text().splitlines()]

    def send(self, *options: str, name: str = "sent") -> list[str]:
        """Send the file, which arrives whole; the names that ``sha256sum`` was asked for."""
        self.notes.write_text("")
        remote = f"{self.board.workdir}/{name}"
        words = ["--lab", str(self.root), "hdc", *options, "send", str(self.source), remote]
        assert run_cli(words) == 0
        there = Path(remote)
        if self.source.is_dir():
            there = there / "large"
            assert there.read_bytes() == (self.source / "large").read_bytes()
        else:
            assert there.read_bytes() == self.source.read_bytes()
        return [name.partition(".labctl-")[0] for name in self.hashed]


@pytest.fixture(scope="module")
def agent() -> Object:
    return describe(agent_builds.native_agent(), name="agent", executable=True)


@pytest.fixture
def lab(tmp_path: Path, agent: Object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Its board carries the agent that was built last, in a cache that nobody else builds in."""
    built = tmp_path / "artifacts" / agent_builds.HOST
    built.mkdir(parents=True)
    agent_builds.lend_artifact(agent.local.parents[1], built)
    (built / "agent-current").symlink_to(agent.local.parents[1].name)
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path))
    with serving(VirtualBoard("b", tmp_path / "board")) as (board,):
        notes = tmp_path / "notes"
        tool = board.directory / "system/bin/sha256sum"
        real = tool.readlink()
        tool.unlink()
        tool.write_text(
            f'#!/bin/sh\nfor file; do echo "$file" >>{shlex.quote(str(notes))}; done\n'
            f'exec {real} sha256sum "$@"\n'
        )
        tool.chmod(0o755)
        write_devices(tmp_path, board.address, str(board.workdir), target=agent_builds.HOST)
        with HdcTcpConfig(address=board.address).open() as link:
            store = BoardStore(link, str(board.workdir))
            deploy(store, plan(store, [agent]))
        source = tmp_path / "source"
        source.write_bytes(os.urandom(9 << 20))
        yield Lab(tmp_path, board, notes, source)


def test_the_agent_hashes_where_it_is_ours(lab: Lab, agent: Object) -> None:
    assert lab.send("-t", "vb") == [agent.sha256]


def test_a_directory_too(lab: Lab, agent: Object) -> None:
    lab.source.rename(lab.root / "large")
    lab.source.mkdir()
    (lab.root / "large").rename(lab.source / "large")
    assert lab.send("-t", "vb") == [agent.sha256]


def test_an_address_alone_tells_of_no_agent(lab: Lab) -> None:
    assert lab.send("-t", lab.board.address) == ["sent"]


def test_a_small_file_does_not_wait_for_the_agent_to_be_looked_at(lab: Lab) -> None:
    lab.source.write_bytes(b"small")
    assert lab.send("-t", "vb") == ["sent"]


def test_an_agent_with_other_bytes_is_not_asked(lab: Lab, agent: Object) -> None:
    asked = lab.root / "asked"
    path = lab.board.workdir / "store" / agent.sha256
    path.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(asked))}\n")
    assert lab.send("-t", "vb") == [agent.sha256, "sent"]
    assert not asked.exists()


def test_an_agent_that_the_board_does_not_execute_is_not_asked(lab: Lab, agent: Object) -> None:
    (lab.board.workdir / "store" / agent.sha256).chmod(0o644)
    assert lab.send("-t", "vb") == [agent.sha256, "sent"]


def test_without_an_agent_on_the_board(lab: Lab, agent: Object) -> None:
    (lab.board.workdir / "store" / agent.sha256).unlink()
    assert lab.send("-t", "vb")[-1] == "sent"


def test_without_an_agent_that_was_built_here(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows its hash then."""
    monkeypatch.setenv("LABCTL_CACHE", str(lab.root / "cache"))
    assert lab.send("-t", "vb") == ["sent"]


def test_a_board_without_sha256sum(lab: Lab) -> None:
    (lab.board.directory / "system/bin/sha256sum").unlink()
    assert lab.send("-t", "vb") == []
