"""Transfers of this host that are still alive: each holds a lock that the kernel frees."""

import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from labctl.errors import HostTimeout
from labctl.files import host_writes, locked, state_dir

#: On the board, a transfer under way is this and its token.
PREFIX = ".push-"

_FOLDER = "pushes"
_TOKEN = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Push:
    """A transfer under way. Until it is forgotten, its token says: this host's, maybe dead."""

    token: str
    lock: Path

    def forget(self) -> None:
        """Nothing of it is left on the board under its token."""
        self.lock.unlink(missing_ok=True)


@contextmanager
def pushing() -> Iterator[Push]:
    """Register a new transfer, alive while the context is open. Raises HostError."""
    token = secrets.token_hex(16)
    push = Push(token, state_dir() / _FOLDER / token)
    with locked(push.lock, timeout=1):
        yield push
        push.forget()


@contextmanager
def abandoned(tokens: Iterable[str]) -> Iterator[list[str]]:
    """Those tokens that were given by this host and whose transfer is dead.

    They are forgotten after the context, if it ends without an error. Raises HostError.
    """
    dead = []
    with ExitStack() as held:
        for token in tokens:
            path = state_dir() / _FOLDER / token
            if not _TOKEN.fullmatch(token) or not path.exists():
                continue
            with suppress(HostTimeout):
                held.enter_context(locked(path, timeout=0))
                dead.append(token)
        yield dead
        for token in dead:
            with host_writes(state_dir() / _FOLDER / token):
                (state_dir() / _FOLDER / token).unlink(missing_ok=True)
