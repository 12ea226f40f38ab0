"""A serial port made of software, and programs on one."""

import os
import pty
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Pty:
    """A serial port made of software: ``device`` is what labctl opens."""

    def __init__(self, link: Path) -> None:
        self._link = link
        self.plug()

    def plug(self) -> None:
        self.ours, self.theirs = os.openpty()
        tty.setraw(self.theirs)
        self._link.unlink(missing_ok=True)
        self._link.symlink_to(os.ttyname(self.theirs))

    def unplug(self) -> None:
        os.close(self.ours)
        os.close(self.theirs)

    def send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.ours, data) :]


@contextmanager
def terminal(*command: str) -> Iterator[str]:
    """Run a program on one pseudo terminal, joined to another: a console's cable."""
    pid, inner = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    outer, theirs = os.openpty()

    def copy(source: int, target: int) -> None:
        try:
            while data := os.read(source, 1024):
                os.write(target, data)
        except OSError:
            pass

    for pair in ((inner, outer), (outer, inner)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
    try:
        yield os.ttyname(theirs)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(theirs)
