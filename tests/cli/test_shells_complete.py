"""Completion in real shells, in a terminal: what stands in the line after Tab."""

import os
import pty
import re
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from labctl.retry import wait_until

#: How each shell starts without a user's own settings, and loads the completion.
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(labctl completion bash)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -Uz compinit; compinit -u -D; eval "$(labctl completion zsh)"',
    ),
    "fish": (["fish", "--no-config", "--interactive"], "labctl completion fish | source"),
}
_PROMPT = re.compile(rb"[#$%>] ")
TO_THE_START, TO_THE_END = "\x01", "\x05"


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    board = '{target: rk3568, transport: {kind: hdc, link: tcp, address: "127.0.0.1:1"}}'
    (tmp_path / "devices.yaml").write_text(f"boards: {{rk1: {board}}}\n")
    (tmp_path / "models.yaml").write_text("models: {llama-8b: {file: llama.gguf}}\n")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "first.yaml").write_text("not read\n")
    return tmp_path


class ShellInTerminal:
    """A shell in a pseudo-terminal of its own."""

    def __init__(self, words: list[str], folder: Path):
        self._folder = folder
        home = folder / "home"
        home.mkdir()
        environment = {
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TERM": "vt100",
        }
        child, self._terminal = pty.fork()
        if child == 0:
            os.chdir(folder)
            os.execvpe(words[0], words, environment)
        self._pid = child
        self.seen = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        # What is typed before the prompt stands there may be lost.
        wait_until(lambda: _PROMPT.search(self.seen), timeout=60, interval=0.05)

    def _read(self) -> None:
        with suppress(OSError):  # EIO: the shell has left its terminal
            while piece := os.read(self._terminal, 4096):
                self.seen += piece

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def printed(self, command: str) -> str:
        """Type a command, its output to a file; return that once the command has ended."""
        output, ended = self._folder / "output", self._folder / "ended"
        self.type(f"{command} > {output}; touch {ended}\r")
        wait_until(ended.exists, timeout=120, interval=0.05)
        ended.unlink()
        return output.read_text()

    def completed(self, typed: str) -> str:
        """Return the line after Tab, without the slash of a directory: zsh takes it off again."""
        self.type(f"{typed}\t{TO_THE_START}echo {TO_THE_END}")
        return self.printed("").strip().removesuffix("/")

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._reader.join()
        os.close(self._terminal)


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, lab: Path) -> Iterator[ShellInTerminal]:
    words, load = SHELLS[request.param]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    shell = ShellInTerminal(words, lab)
    try:
        shell.printed(f"{load}; echo loaded")
        yield shell
    finally:
        shell.close()


@pytest.mark.timeout(300)
def test_tab_completes_files_and_names(shell: ShellInTerminal) -> None:
    lines = {
        "labctl run recip": "labctl run recipes",
        "labctl run q8_lat": "labctl run q8_latency",
        "labctl deploy --board r": "labctl deploy --board rk1",
        "labctl models verify ll": "labctl models verify llama-8b",
    }
    found = {typed: shell.completed(typed) for typed in lines}
    assert found == lines, shell.seen.decode(errors="replace")
