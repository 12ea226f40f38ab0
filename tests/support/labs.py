"""Labs in folders of a test's own, used as a user uses them: through the command line."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import agent_builds
import forked
from official_adb import OfficialAdb
from tiny_gguf import write_tiny_gguf
from virtual_process import BoardProcess, virtual_board_process

from labctl import process
from labctl.retry import wait_until

RECIPE = """\
name: tiny
target: rk3568
engine: {name: llama_cpp}
models:
  tiny: {file: models/tiny.gguf}
prompt: once upon
parameters: {tokens: 24, context: 128, threads: 2}
max_time: 10m
"""
#: A program that shows a token every quarter of a second, and its recipe: trials that last some
#: seconds, also on a busy host, and cost nothing.
TALKER = """\
#!/bin/sh
n=0
while [ $n -lt $1 ]; do n=$((n + 1)); echo token $n; sleep 0.25; done
"""
TALKING = f"""\
name: talking
target: {agent_builds.HOST}
engine:
  name: command
  program: {{file: tools/talker}}
  arguments: ["{{tokens}}"]
  tokens: {{stream: stdout, each: line, count: tokens}}
models: {{none: {{file: models/any.bin}}}}
parameters: {{tokens: 48}}
max_time: 5m
"""


@dataclass(frozen=True)
class LabUnderTest:
    """A lab in a folder of the test's own, with one virtual board in another process."""

    root: Path
    board: BoardProcess

    def run(self, *words: str, timeout: float = 500) -> process.Completed:
        """``labctl WORDS`` in the lab, as a user types it."""
        return forked.run(words, cwd=self.root, timeout=timeout)

    def start(self, *words: str, limits: Mapping[str, float] | None = None) -> "RunningLabctl":
        """``labctl WORDS``, which goes on while the test does something else.

        ``limits``: see :func:`forked.start`.
        """
        return RunningLabctl(self, forked.start(words, cwd=self.root, limits=limits))

    def finished_trials(self) -> list[Path]:
        """Folders of trials that are on disk, of all runs."""
        return [path.parent for path in sorted(self.root.glob("runs/*/trials/*/record.json"))]

    def is_under_way(self, number: int) -> bool:
        """Whether the job of a trial is on the board."""
        return bool(list(Path(self.board.workdir).glob(f"jobs/*-{number}/started.json")))

    def has_written(self, number: int, name: str) -> bool:
        """Whether a file of a trial's job on the board has something in it: ``stdout``, ...

        The agent writes what it has every two seconds.
        """
        files = Path(self.board.workdir).glob(f"jobs/*-{number}/{name}")
        return any(path.stat().st_size > 0 for path in files)

    def end(self) -> dict[str, Any]:
        """What the only run says of its end."""
        (path,) = self.root.glob("runs/*/end.json")
        document: dict[str, Any] = json.loads(path.read_text())
        return document

    def recipe(self, text: str = RECIPE, name: str = "tiny") -> str:
        path = self.root / "recipes" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)


@dataclass(frozen=True)
class RunningLabctl:
    """A command under way."""

    lab: LabUnderTest
    process: "subprocess.Popen[bytes]"

    def after_a_trial(self) -> Self:
        """Wait until a trial is on disk."""
        self.waiting_for(lambda: self.lab.finished_trials() != [])
        return self

    def waiting_for(self, condition: Callable[[], bool]) -> None:
        """Wait for something that happens while the command runs."""
        seen = False

        def is_so() -> bool:
            nonlocal seen
            seen = seen or condition()
            return seen or self.ended

        if not wait_until(is_so, timeout=300, interval=0.02):
            process.stop(self.process)
        if not seen:
            done = self.finish()
            said = done.stderr or done.stdout
            raise AssertionError(f"it ended before that, with {done.exit_status}: {said!r}")

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self.process.poll() is not None

    def finish(self) -> process.Completed:
        """Its end, and what it said."""
        try:
            stdout, stderr = self.process.communicate(timeout=500)
        except subprocess.TimeoutExpired:
            process.stop(self.process)
            raise
        return process.Completed(("labctl",), self.process.returncode, stdout, stderr, 0)


def blamed(done: process.Completed, status: int, blame: str, *because: str) -> None:
    """Assert that a command ended with one message, its blame, and each of the reasons in it."""
    lines = said(done).splitlines()
    errors = [line for line in lines if re.match(r"error \(|Error:|bug:", line)]
    assert (done.exit_status, len(errors)) == (status, 1), said(done)
    assert errors[0].startswith(f"error ({blame}): "), said(done)
    assert len(errors[0]) < 300, errors[0]
    for reason in because:
        assert reason in said(done)
    assert "Traceback" not in said(done)


def said(done: process.Completed) -> str:
    """What a command printed on standard error."""
    return done.stderr.decode()


def give_talker(lab: LabUnderTest, recipe: str = TALKING) -> None:
    """Give a lab the talker and its recipe, ``talking``."""
    (lab.root / "tools").mkdir()
    talker = lab.root / "tools" / "talker"
    talker.write_text(TALKER)
    talker.chmod(0o755)
    (lab.root / "models" / "any.bin").write_bytes(b"\0" * 1000)
    lab.recipe(recipe, "talking")


def write_devices(root: Path, address: str, workdir: str, *, target: str = "rk3568") -> None:
    """A devices.yaml with one board, ``vb``."""
    (root / "devices.yaml").write_text(
        "boards:\n"
        "  vb:\n"
        f"    target: {target}\n"
        f'    transport: {{kind: hdc, link: tcp, address: "{address}"}}\n'
        f"    workdir: {workdir}\n"
    )


@contextmanager
def lab_with_board(root: Path, *options: str) -> Iterator[LabUnderTest]:
    """A lab with a tiny model, and a virtual board started with ``options``."""
    (root / "models").mkdir()
    write_tiny_gguf(root / "models" / "tiny.gguf")
    with virtual_board_process(root / "board", *options) as board:
        write_devices(root, board.address, board.workdir)
        yield LabUnderTest(root, board)


def write_phone(root: Path, serial: str, server: str, workdir: str) -> None:
    """A devices.yaml with one phone of this host's kind, ``vb``."""
    way = {"kind": "adb", "serial": serial, "server": server}
    board = {"target": agent_builds.HOST, "transport": way, "workdir": workdir}
    (root / "devices.yaml").write_text(json.dumps({"boards": {"vb": board}}))


@contextmanager
def lab_with_phone(root: Path, adb: OfficialAdb) -> Iterator[LabUnderTest]:
    """A lab with the talker, and a virtual phone behind an official server."""
    agent_builds.native_agent()
    with lab_with_board(root, "--target", agent_builds.HOST, "--protocol", "adb") as lab:
        give_talker(lab)
        write_phone(root, lab.board.address, adb.address, lab.board.workdir)
        yield lab
