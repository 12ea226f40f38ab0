"""Remove the containers of killed builds, and the folders that containers shared with labctl."""

import time
from collections.abc import Callable
from pathlib import Path

from labctl.build.container.answers import ASK_SECONDS, LABEL, questions_dir
from labctl.build.container.engine import Engine, find_engine
from labctl.errors import ToolMissing
from labctl.folders import cache_dir
from labctl.removal import remove_tree, status_if_there

_KEY = LABEL.partition("=")[0]


def remove_abandoned(is_in_use: Callable[[Path], bool], *, dry_run: bool) -> list[str]:
    """Remove abandoned containers and folders, and return their names.

    ``is_in_use``: True for the folder of a running build. Raises HostError.
    """
    folders = questions_dir().iterdir() if questions_dir().is_dir() else ()
    oldest = time.time() - 2 * ASK_SECONDS
    found = ((left, status_if_there(left)) for left in folders)
    removed = [str(left) for left, status in found if status and status.st_mtime < oldest]
    for left in () if dry_run else removed:
        remove_tree(Path(left))
    try:
        engine = find_engine()
    except ToolMissing:
        return removed
    containers = _abandoned(engine, is_in_use)
    for container in () if dry_run else containers:
        engine.remove(container)
    return [*removed, *(f"container {container}" for container in containers)]


def _abandoned(engine: Engine, is_in_use: Callable[[Path], bool]) -> list[str]:
    builds = cache_dir() / "build"
    found = engine.listed(f"label={LABEL}", "status=exited")
    for container in engine.listed(f"label={_KEY}"):
        home = engine.label(container, _KEY)
        if home is not None and Path(home).is_relative_to(builds) and not is_in_use(Path(home)):
            found.append(container)
    return found
