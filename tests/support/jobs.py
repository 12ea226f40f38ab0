"""Driving the agent's command line from tests."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labctl import process
from labctl.retry import wait_until


@dataclass(frozen=True)
class Job:
    """A job's directory under one agent."""

    agent: Path
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Words before the agent's own, `chrt -f 1` for instance.
    prefix: tuple[str, ...] = ()

    def run(
        self, *argv: str, timeout: float = 300, options: tuple[str, ...] = ()
    ) -> process.Completed:
        """`agent run`, whatever its status."""
        words = [*self.prefix, str(self.agent), "run", "--dir", str(self.directory)]
        words += ["--timeout", f"{timeout:g}", "--epoch", "1", *options, "--", *argv]
        return process.run(words, timeout=120, env=self._env())

    def start(
        self, *argv: str, timeout: float = 300, options: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """`agent run` that has to succeed; what it printed."""
        done = self.run(*argv, timeout=timeout, options=options)
        assert done.exit_status == 0, done.tail()
        return answer(done)

    def look(self, command: str = "wait", seconds: float = 0) -> dict[str, Any]:
        """`agent wait` or `agent stop`."""
        words = [self.agent, command, "--dir", str(self.directory), "--seconds", f"{seconds:g}"]
        return answer(process.run(words, timeout=seconds + 60, env=self._env()))

    def finish(self, seconds: float = 300) -> dict[str, Any]:
        """Wait for its end; the content of status.json."""
        seen = self.look(seconds=seconds)
        assert seen["state"] == "finished", seen
        status: dict[str, Any] = json.loads((self.directory / "status.json").read_text())
        assert status == seen["status"]
        return status

    def _env(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

    def read(self, name: str) -> bytes:
        return (self.directory / name).read_bytes()

    def timeline(self) -> list[tuple[int, int, int, int]]:
        """Entries: monotonic ns, stream, offset, length."""
        lines = self.read("timeline").decode().splitlines()
        assert lines[0].startswith("labctl-timeline 1 ")
        return [tuple(map(int, line.split())) for line in lines[1:]]  # type: ignore[misc]

    def telemetry(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.read("telemetry").splitlines()]


def answer(done: process.Completed) -> dict[str, Any]:
    """The one line of JSON that the agent prints."""
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.tail()
    parsed: dict[str, Any] = json.loads(lines[0])
    return parsed


def is_alive(pid: int) -> bool:
    """The process exists and is no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def host_pid(inner: int, supervisor: int) -> int:
    """Return the process that a job calls so: it may have a PID namespace of its own."""
    for entry in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            lines = dict(line.split(":", 1) for line in entry.read_text().splitlines())
            if int(lines["NSpid"].split()[-1]) == inner and _is_below(
                int(lines["Pid"]), supervisor
            ):
                return int(lines["Pid"])
    raise AssertionError(f"no process {inner} below {supervisor}")


def _is_below(pid: int, above: int) -> bool:
    while pid > 1 and pid != above:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid == above


def soon(condition: Any, seconds: float = 60) -> bool:
    """True when the condition holds within that time."""
    return wait_until(condition, timeout=seconds, interval=0.02)


def pid_in(path: Path, supervisor: int) -> int:
    """The process whose id a job's program writes into a file, once it is there."""
    assert soon(lambda: path.exists() and path.read_text().endswith("\n")), path
    return host_pid(int(path.read_text()), supervisor)
