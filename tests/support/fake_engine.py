"""A container engine that does what a test tells it, and notes what it was asked."""

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROGRAM = """\
#!{python}
import json, os, re, sys, time
from pathlib import Path
folder = Path({folder!r})
said = " ".join(sys.argv[1:])
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\\n")
for path in sorted(folder.glob("*.reply"), reverse=True):
    reply = json.loads(path.read_text())
    if not re.search(reply["to"], said, re.DOTALL):
        continue
    control = re.search(r"--volume (\\S+):/labctl:rw", said)
    if control and reply["status"] is not None:
        Path(control[1], "status").write_text(reply["status"])
    sys.stdout.write(reply["stdout"])
    sys.stdout.flush()
    sys.stderr.write(reply["stderr"])
    time.sleep(reply["seconds"])  # as long as the test wants it to work
    sys.exit(reply["exit_status"])
sys.exit(f"the fake engine has no reply to: {{said}}")
"""


@dataclass(frozen=True)
class FakeEngine:
    """A program of that name; later replies win over earlier ones."""

    name: str
    folder: Path

    @classmethod
    def install(cls, name: str, path: Path) -> "FakeEngine":
        """Put one into a folder of programs."""
        folder = path / f"{name}-replies"
        folder.mkdir(parents=True)
        program = path / name
        program.write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        return cls(name, folder)

    def reply(
        self,
        to: str,
        stdout: str = "",
        *,
        stderr: str = "",
        exit_status: int = 0,
        status: str | None = None,
        seconds: float = 0,
    ) -> None:
        """What to do for command lines that match; ``status``: of the program in the container."""
        number = len(list(self.folder.glob("*.reply")))
        fields: dict[str, Any] = {
            "to": to,
            "stdout": stdout,
            "stderr": stderr,
            "exit_status": exit_status,
            "status": status,
            "seconds": seconds,
        }
        (self.folder / f"{number:03}.reply").write_text(json.dumps(fields))

    def calls(self, matching: str = "") -> list[str]:
        """The command lines that it was called with."""
        return [line for line, _ in self._calls() if re.search(matching, line, re.DOTALL)]

    def environments(self) -> list[dict[str, str]]:
        """The environments that it was called in."""
        return [environment for _, environment in self._calls()]

    def _calls(self) -> list[tuple[str, dict[str, str]]]:
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(" ".join(words), env) for words, env in map(json.loads, lines)]


def only_programs(path: Path) -> str:
    """A PATH on which there are the programs of one folder, and a shell."""
    (path / "sh").symlink_to("/bin/sh")
    return os.fspath(path)
