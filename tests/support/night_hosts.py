"""A lab of two hosts on one machine: a database, a store, a virtual board and a worker on each."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import agent_builds
import forked
from night_lab import PLAN, give_ticker
from postgres_server import PostgresServer

from labctl import process
from labctl.build.artifact import artifacts_dir
from labctl.config.lab import find_lab
from labctl.retry import wait_until
from labctl.state.state import LabState, lab_state
from labctl.transport.built_in import TRANSPORTS


@dataclass(frozen=True)
class NightHosts:
    """The lab: ``lab1`` has the plan and its sources, ``lab2`` the build specs alone."""

    lab1: Path
    lab2: Path
    state: LabState
    #: The worker of lab2.
    worker: "process.subprocess.Popen[bytes]"
    environment: dict[str, str]

    def nightly(self, *words: str) -> process.Completed:
        """``labctl nightly`` on lab1."""
        return forked.run(
            ("nightly", "plan.yaml", "--host", "lab1", *words), cwd=self.lab1, timeout=500
        )

    def start_worker(self) -> AbstractContextManager["process.subprocess.Popen[bytes]"]:
        """Start another worker of lab2."""
        return _started(["worker", "--host", "lab2"], self.lab2, self.environment)

    def journal(self) -> list[dict[str, object]]:
        """The steps of the newest night that are on disk."""
        found = sorted(self.lab1.glob("nights/*/night.jsonl"))
        lines = found[-1].read_text().splitlines(keepends=True) if found else []
        return [json.loads(line) for line in lines if line.endswith("\n")]


@contextmanager
def night_hosts(root: Path, server: PostgresServer) -> Iterator[NightHosts]:
    """Serve until the block ends; each host has builds of its own."""
    agent = agent_builds.native_agent().parents[1]
    lab1, lab2 = root / "lab1", root / "lab2"
    with ExitStack() as ending:
        words = ["virtual-board", "--json", "--dir", str(root / "board"), "--port", "0"]
        words += ["--name", "b", "--count", "2", "--target", agent_builds.HOST]
        boards = ending.enter_context(_started(words, root))
        assert boards.stdout is not None
        found = json.loads(boards.stdout.readline())
        text = (
            f"lab: {server.new_lab()}\ndatabase: {server.url}\nstore: {root / 'store'}\nboards:\n"
        )
        for host, board in zip(("lab1", "lab2"), found, strict=True):
            text += (
                f"  {board['name']}:\n    host: {host}\n    target: {agent_builds.HOST}\n"
                f'    transport: {{kind: hdc, link: tcp, address: "{board["address"]}"}}\n'
                f"    workdir: {board['workdir']}\n"
            )
        for folder in (lab1, lab2):
            folder.mkdir()
            (folder / "devices.yaml").write_text(text)
        give_ticker(lab1)
        shutil.copytree(lab1 / "toolchains", lab2 / "toolchains")
        (lab1 / "plan.yaml").write_text(PLAN.replace("[vb]", "[b-1, b-2]"))
        cache = root / "cache of lab2"
        shutil.copytree(agent, cache / agent.relative_to(artifacts_dir().parent))
        own = {
            **os.environ,
            "LABCTL_CACHE": str(cache),
            "LABCTL_STATE": str(root / "state of lab2"),
        }
        state = lab_state(find_lab(lab1, TRANSPORTS))
        ending.enter_context(_started(["worker", "--host", "lab1"], lab1))
        worker = ending.enter_context(_started(["worker", "--host", "lab2"], lab2, own))
        assert wait_until(lambda: len(state.workers.list()) == 2, timeout=120, interval=0.1)
        yield NightHosts(lab1, lab2, state, worker, own)


@contextmanager
def _started(
    words: list[str], folder: Path, env: dict[str, str] | None = None
) -> "Iterator[process.subprocess.Popen[bytes]]":
    with (folder / f"{words[0]}.log").open("ab") as log:
        started = forked.start(words, cwd=folder, stderr=log.fileno(), env=env or os.environ)
    try:
        yield started
    finally:
        process.stop(started)
        assert started.stdout is not None
        started.stdout.close()
