"""Clocks that do as a test says: limits stay as they are, and nobody waits for them."""

import time
from types import SimpleNamespace

import pytest


def an_hour_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files that are written now be at rest: the time of day is an hour ahead of them."""
    now = time.time_ns
    monkeypatch.setattr("labctl.file_hashes.time.time_ns", lambda: now() + 3600 * 10**9)


def skip_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a wait before another attempt be over at once, and an hour gone: that is the last one."""
    now, ahead = time.monotonic, 0.0

    def sleep(_seconds: float) -> None:
        nonlocal ahead
        ahead += 3600.0

    monkeypatch.setattr("labctl.interrupts.sleep", sleep)
    monkeypatch.setattr("labctl.retry.time", SimpleNamespace(monotonic=lambda: now() + ahead))
