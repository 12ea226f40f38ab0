"""Reports for observers: progress of a long step, and external commands as they are started.

Python's own logging costs a short command 10 ms of import: more than all else that is here.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeAlias

#: Gets the number of bytes that are done so far.
BytesDone: TypeAlias = Callable[[int], None]


class Progress(Protocol):
    """Gets the progress of a step, from 0 to ``total`` in whatever unit the step has."""

    def __call__(self, step: str, done: int, total: int | None) -> None:
        """``step`` is a short text for people; ``total`` is ``None`` while it is unknown."""


class Pace(NamedTuple):
    """Rate of a step per second, and the time in s that is left of it; None where unknown."""

    per_second: float | None = None
    remaining_s: float | None = None


class Throughput:
    """Mean rate of a step since it was first looked at; what was done before was not fast."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None

    def per_second(self, now_s: float, done: float) -> float | None:
        """Return the rate so far; None while nothing was done. To be asked with each change."""
        since, then = self._first = self._first or (now_s, done)
        return (done - then) / (now_s - since) if now_s > since and done > then else None

    def remaining_s(self, now_s: float, done: float, total: float | None) -> float | None:
        """Return the remaining time in s at that rate; None if unknown."""
        rate = self.per_second(now_s, done)
        return None if rate is None or not total else max(0.0, (total - done) / rate)

    def pace(self, now_s: float, done: float, total: float | None, known: Pace) -> Pace:
        """Return what is ``known`` better, and the mean so far for the rest."""
        seen, left = self.per_second(now_s, done), known.remaining_s
        if left is None:
            left = self.remaining_s(now_s, done, total)
        return Pace(seen if known.per_second is None else known.per_second, left)


def silent(step: str, done: int, total: int | None) -> None:
    """Show nothing."""


_command_readers: list[Callable[[str], None]] = []


def tell_command(text: Callable[[], str]) -> None:
    """Report a program of this host, or a command on a board; ``text`` is asked if one reads."""
    for reader in _command_readers:
        reader(text())


@contextmanager
def reading_commands(reader: Callable[[str], None]) -> Iterator[None]:
    """Hand each external command to ``reader`` before it is started, in the thread that does."""
    _command_readers.append(reader)
    try:
        yield
    finally:
        _command_readers.remove(reader)


_wait_readers: list[Callable[[str, str], None]] = []


def tell_wait(text: str, short: str) -> None:
    """Report on standard error, or to who reads it, that a step waits; for what, and how long."""
    for reader in _wait_readers:
        reader(text, short)
    if not _wait_readers:
        sys.stderr.write(f"{text}\n")


@contextmanager
def reading_waits(reader: Callable[[str, str], None]) -> Iterator[None]:
    """Hand a text on each wait to ``reader``, and a short one, in the thread that waits."""
    _wait_readers.append(reader)
    try:
        yield
    finally:
        _wait_readers.remove(reader)
