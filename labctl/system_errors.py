"""A full disk and a refused access, as operating systems and programs name them: one table.

The texts are ``strerror``'s, the same in musl, bionic and glibc; zig has its own.
"""

import errno
import re

FULL_NUMBERS = frozenset({errno.ENOSPC, errno.EDQUOT})
REFUSED_NUMBERS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL = re.compile(r"no space left on device|NoSpaceLeft|quota exceeded", re.IGNORECASE)
_REFUSED = re.compile(
    r"permission denied|operation not permitted|read-only file system", re.IGNORECASE
)


def tells_full_disk(text: str) -> bool:
    """Return True if a program's output says that a disk or a quota is full."""
    return bool(_FULL.search(text))


def tells_refusal(text: str) -> bool:
    """Return True if a program's output says that it had no permission."""
    return bool(_REFUSED.search(text))
