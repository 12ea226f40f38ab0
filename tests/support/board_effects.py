"""Readers of a virtual board's log of effects: what an old epoch did, and what no agent checked."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

#: Files change only in these ways.
CHANGES = ("created", "written", "changed", "moved away", "moved here", "removed")


def read_effects(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a log, of all its boards."""
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]]


def effects_after_epoch(log: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What was done on a board under an older epoch, or none, after a newer one was on it.

    A raw transfer into ``incoming`` is none: nobody uses what lies there but its own epoch.
    """
    wrong = []
    now: dict[str, int] = {}
    for entry in log:
        board, what = entry["board"], entry["what"]
        assert what != "failed", entry["text"]
        newest = now.get(board, 0)
        if what == "lease":
            # One that cannot be read, or goes back, is as bad as an effect of an old epoch.
            if entry["epoch"] is None or entry["epoch"] < newest:
                wrong.append(entry)
            else:
                now[board] = entry["epoch"]
        elif what == "started":
            if (entry["epoch"] or 0) < newest:
                wrong.append(entry)
        elif what in CHANGES or what == "reboot":
            path = entry.get("path", "")
            if path == "incoming" or path.startswith("incoming/"):
                continue
            if newest and all((one["epoch"] or 0) < newest for one in entry["by"]):
                wrong.append(entry)
    return wrong


def unfenced_effects(log: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Changes that happened while nothing ran that named its epoch."""
    return [
        entry
        for entry in log
        if entry["what"] in CHANGES
        and not entry["fenced"]
        and not (entry["path"] == "incoming" or entry["path"].startswith("incoming/"))
    ]


def jobs_of_old_epochs(log: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What a job wrote into its folder after a newer epoch than its own was on the board.

    Whoever else was at work then: each job's folder is its own.
    """
    wrong = []
    newest: dict[str, int] = {}
    epochs: dict[tuple[str, str], int] = {}
    for entry in log:
        board = entry["board"]
        if entry["what"] == "lease":
            newest[board] = max(entry["epoch"] or 0, newest.get(board, 0))
        elif entry["what"] == "started":
            epochs[board, entry["path"]] = entry["epoch"] or 0
        elif entry["what"] in ("created", "written"):
            folder = entry["path"].rpartition("/")[0]
            if epochs.get((board, folder), newest.get(board, 0)) < newest.get(board, 0):
                wrong.append(entry)
    return wrong
