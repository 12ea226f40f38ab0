"""Remove folders that programs of others have filled."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path


def status_if_there(path: Path) -> os.stat_result | None:
    """Return the ``lstat`` of a path; None if another process has removed it meanwhile."""
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def remove_tree(folder: Path) -> None:
    """Remove a folder that a program of others has filled, as far as that is allowed.

    ``shutil.rmtree`` recurses, and folders below can be too deep for that, and for any path. So
    each is moved up before it is looked into. No link is followed, not even one that a program
    which still runs puts in a folder's place.
    """
    with suppress(OSError):
        folder.unlink()  # a link, or a file
    prefix, moved, waiting = secrets.token_hex(8), count(), ["."]
    with suppress(OSError), _opened_folder(str(folder)) as top:
        while waiting:
            here = waiting.pop()
            with suppress(OSError), _opened_folder(here, top) as inside:
                for entry in list(os.scandir(f"/proc/self/fd/{inside}")):
                    with suppress(OSError):
                        if not entry.is_dir(follow_symlinks=False):
                            os.unlink(entry.name, dir_fd=inside)
                            continue
                        with _opened_folder(entry.name, inside):  # it must be writable for that
                            aside = f"{prefix}-{next(moved)}"
                            os.rename(entry.name, aside, src_dir_fd=inside, dst_dir_fd=top)
                            waiting.append(aside)
            with suppress(OSError):
                os.rmdir(here, dir_fd=top)
        folder.rmdir()


@contextmanager
def _opened_folder(name: str, within: int | None = None) -> Iterator[int]:
    """Open a folder, no link, and give its owner all rights to it. Raises OSError."""
    found = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=within)
    try:
        with suppress(OSError):  # another owner's, or a file system without rights
            os.chmod(f"/proc/self/fd/{found}", 0o700)  # noqa: PTH101 - no path leads there safely
        yield found
    finally:
        os.close(found)
