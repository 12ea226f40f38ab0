"""Folders of this host: the user's, labctl's cache and state, work trees of git."""

import os
from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """Slow things that can be made again (``LABCTL_CACHE`` or the user's cache directory)."""
    return Path(os.environ.get("LABCTL_CACHE") or platformdirs.user_cache_path("labctl")).absolute()


def state_dir() -> Path:
    """State of the lab on this host that cannot be made again (``LABCTL_STATE``): leases, keys."""
    return Path(os.environ.get("LABCTL_STATE") or platformdirs.user_state_path("labctl")).absolute()


def present_folder() -> Path | None:
    """Return the present folder; None if it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def work_trees(folder: Path) -> list[Path]:
    """Return the git work trees that a folder lies in, the innermost first; links stay as named."""
    here = folder.absolute()
    return [one for one in (here, *here.parents) if os.path.lexists(one / ".git")]


def user_home() -> Path | None:
    """Return the user's home folder; None for a user that has none, as in a container."""
    try:
        return Path.home()
    except RuntimeError:
        return None
