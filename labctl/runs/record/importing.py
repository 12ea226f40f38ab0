"""Import of another lab's measurement as a run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labctl.files import locked, scratch


@contextmanager
def importing(runs: Path) -> Iterator[Path]:
    """Hold the lock of imports, and give a folder in which to make a run before it has its name.

    What a killed import left is removed. Raises HostError.
    """
    with locked(runs / ".import-lock", timeout=60), scratch(runs, ".import-new-") as aside:
        yield aside
