"""The program `hdc` of tests (see fake_hdc_program.py), put on PATH."""

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fake_hdc_program import PID_FILE

__all__ = ["PID_FILE", "FakeHdc", "install"]


@dataclass
class FakeHdc:
    """The program on PATH; what it is to do is told before it is started."""

    monkeypatch: pytest.MonkeyPatch
    tmpdir: Path
    wishes: dict[str, object] = field(default_factory=dict)

    def does(self, **wishes: object) -> None:
        self.wishes |= wishes
        self.monkeypatch.setenv("FAKE_HDC", json.dumps(self.wishes))

    def server_pid(self) -> int:
        """The process of the shared server."""
        return int((self.tmpdir / PID_FILE).read_text())


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHdc:
    """Put the program on PATH, with a TMPDIR of the test's own."""
    program = folder / "bin" / "hdc"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from fake_hdc_program import main\nmain()\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    tmpdir = folder / "tmp"
    tmpdir.mkdir()
    monkeypatch.setenv("TMPDIR", str(tmpdir))
    monkeypatch.delenv("FAKE_HDC", raising=False)
    return FakeHdc(monkeypatch, tmpdir)
