"""Paths of transfers: on this computer, and as hosts know them."""

import os
from pathlib import Path


def on_disk(directory: Path, typed: str) -> str:
    """Return the path on this computer for a path typed by a host; keep a final slash."""
    return os.path.join(directory, typed)  # noqa: PTH118


def as_typed(directory: Path, typed: str, path: str) -> str:
    """Return ``path`` as hdcd names it: relative if the host typed a relative path."""
    return path if typed.startswith("/") else path.removeprefix(f"{directory}/")
