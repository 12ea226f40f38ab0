"""A serial port made of software."""

import os
import tty
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
