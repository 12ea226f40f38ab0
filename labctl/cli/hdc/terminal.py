"""A person's terminal, joined with a shell on a board.

On a terminal every key goes to the board as it is (its own terminal makes Ctrl-C an interrupt), and
what was set is restored whatever happens. Without one, the input is sent as it comes and its end
ends the shell.
"""

import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager

import click

from labctl.cli.output import write_output
from labctl.errors import ExitStatus, LabctlError
from labctl.transport import Terminal

#: Ctrl-], as of telnet: the only key that does not reach the board.
LEAVE = b"\x1d"
#: Ctrl-D: the end of the input, as a terminal is told.
_END = b"\x04"
_PIECE_BYTES = 4096
#: How long the pump waits for output before it looks whether it is still wanted (and so on).
_LOOK_SECONDS = 0.5


def converse(remote: Terminal) -> int:
    """Carry keys and output until the shell ends (status 0) or somebody leaves it (255).

    An interactive shell has no exit status: hdc carries none. Raises LinkError.
    """
    keys = sys.stdin.fileno()
    with _raw(keys) as is_terminal, _printing(remote) as ended:
        if is_terminal:
            click.echo("Ctrl-] leaves\r", err=True)
        while True:
            ready, _, _ = select.select([keys, ended], [], [])
            if ended in ready:
                return ExitStatus.OK
            typed = os.read(keys, _PIECE_BYTES)
            if is_terminal and LEAVE in typed:
                remote.send(typed[: typed.index(LEAVE)])
                return ExitStatus.SHELL_FAILURE
            if not typed:
                return _end(remote, ended)
            remote.send(typed)


def _end(remote: Terminal, ended: int) -> int:
    """Tell the shell that the input is over until it ends.

    Said once it can be lost: a shell that just sets its terminal up drops what marks an end.
    """
    while True:
        remote.send(_END)
        if select.select([ended], [], [], _LOOK_SECONDS)[0]:
            return ExitStatus.OK


@contextmanager
def _raw(descriptor: int) -> Iterator[bool]:
    """Pass every key on while the context is open. Yield True if it is a terminal."""
    if not os.isatty(descriptor):
        yield False
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield True
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _printing(remote: Terminal) -> Iterator[int]:
    """Print what comes, in a thread; the descriptor becomes readable when nothing more will.

    A link that was lost meanwhile raises at the end of the context.
    """
    wanted = threading.Event()
    wanted.set()
    failures: list[BaseException] = []
    reading, writing = os.pipe()

    def pump() -> None:
        try:
            while wanted.is_set():
                piece = remote.receive(_LOOK_SECONDS)
                if piece is None:
                    return
                if piece:
                    write_output(piece)
        except (LabctlError, OSError) as error:
            failures.append(error)
        finally:
            os.close(writing)

    printer = threading.Thread(target=pump, name="hdc shell output")
    printer.start()
    try:
        yield reading
    finally:
        wanted.clear()
        printer.join()
        os.close(reading)
    for failure in failures:
        raise failure
