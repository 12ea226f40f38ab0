"""Tokens with which people and programs change a lab over its dashboard. Only hashes are kept.

A token has 256 random bits, so its plain SHA-256 cannot be reversed.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labctl.database.questions import select
from labctl.errors import ConfigError
from labctl.state import sql
from labctl.state.audit import add_audit
from labctl.state.events import clock
from labctl.state.tables import COLUMNS, read, shown

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.config.web import Role
    from labctl.state.sql import StateDatabase

#: Prefix by which people and secret scanners recognise a token.
PREFIX = "labctl_"
_REVOKE = "token revoke"
_LONGEST_NAME = 100
_TABLE = "access_token"
_NAMES = tuple(COLUMNS[_TABLE])


@dataclass(frozen=True)
class AccessToken:
    """A token without its secret. Times are seconds since 1970 by the database's clock."""

    sha256: str
    name: str
    role: "Role"
    made_by: str
    made_at: float
    #: None if it never expires.
    expires: float | None
    #: Why its row cannot be read; the token is then refused. None if it can.
    damaged: str | None = None

    def document(self) -> dict[str, object]:
        """Return the token as JSON, without its hash."""
        return {
            "name": self.name,
            "role": self.role,
            "made_by": self.made_by,
            "made_at": self.made_at,
            "expires": self.expires,
            "damaged": self.damaged,
        }


class AccessTokens:
    """The tokens of a lab's dashboard."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def list(self) -> list[AccessToken]:
        """Return all tokens by name, including expired ones. Raises HostError, ConfigError."""
        rows = self._state.ask(select(_NAMES, _TABLE, order="name, made_at"), {})
        return [_token(row) for row in rows]

    def add(
        self, name: str, role: "Role", *, by: str, seconds: float | None = None, token: str = ""
    ) -> str:
        """Make a token and return it; it cannot be shown later. ``seconds``: its lifetime.

        ``token``: a token made before. Raises ConfigError if the name exists.
        """
        if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
            raise ConfigError(
                f"not a name for a token: {shown(name)!r}",
                hint=f"it is one printable word of at most {_LONGEST_NAME} characters",
            )
        if name != name.strip():
            raise ConfigError("the name of a token does not begin or end with blanks")
        secret = token or new_token()

        def change(connection: "Connection") -> None:
            now = clock(connection, self._state.now)
            values: dict[str, Any] = {
                "sha256": digest(secret),
                "name": name,
                "role": role,
                "made_by": by,
                "made_at": now,
                "expires": None if seconds is None else now + seconds,
            }
            question = "SELECT 1 FROM access_token WHERE name = :name"
            if sql.asker(connection)(question, {"name": name}):
                raise ConfigError(
                    f"token {name!r} exists already",
                    hint=f"`labctl serve token revoke {name}` ends it",
                )
            sql.insert(connection, _TABLE, values)
            details = {"role": role, "expires": values["expires"]}
            add_audit(connection, now, by, "cli", "token add", subject=name, details=details)

        self._state.change(change)
        return secret

    def revoke(self, name: str, *, by: str) -> None:
        """Revoke a token at once. Raises ConfigError for an unknown name."""

        def change(connection: "Connection") -> bool:
            if is_known := sql.delete(connection, _TABLE, {"name": name}):
                now = clock(connection, self._state.now)
                add_audit(connection, now, by, "cli", _REVOKE, subject=name)
            return is_known

        if not self._state.change(change):
            names = ", ".join(one.name for one in self.list()) or "there are none"
            raise ConfigError(f"no token {name!r}", hint=f"tokens: {names}")

    def find(self, token: str) -> AccessToken | None:
        """Return a valid token's record; None for any other text. Raises HostError."""
        return self.find_hash(digest(token))

    def find_hash(self, sha256: str) -> AccessToken | None:
        """Return the token with this hash if it is valid now."""
        now = self._state.now
        is_valid = f"(expires IS NULL OR expires > {now})"
        question = select(_NAMES, _TABLE, "sha256 = :sha256", is_valid)
        rows = self._state.ask(question, {"sha256": sha256})
        found = _token(rows[0]) if rows else None
        if found is None or found.damaged:
            return None
        return found if hmac.compare_digest(found.sha256, sha256) else None


def _token(row: Sequence[Any]) -> AccessToken:
    values, why = read(_TABLE, _NAMES, row)
    return AccessToken(**values, damaged=why)


@contextmanager
def revoked_kept(connection: "Connection") -> Iterator[None]:
    """Keep revocations while the block restores all tables: remove tokens revoked since the backup.

    The replaced audit log has the revocations; its lines about them are added to the new log.
    """
    ask = sql.asker(connection)
    question = "SELECT subject, at, actor, via FROM audit WHERE action = :action ORDER BY id"
    found = ask(question, {"action": _REVOKE})
    revoked = {name: (at, actor, via) for name, at, actor, via in found}
    yield
    for name, made_at in ask("SELECT name, made_at FROM access_token", {}):
        # A damaged time does not show which came first.
        at = revoked[name][0] if name in revoked else None
        is_known = isinstance(at, int | float) and isinstance(made_at, int | float)
        if at is not None and (not is_known or at >= made_at):
            sql.delete(connection, _TABLE, {"name": name})
            add_audit(connection, *revoked[name], _REVOKE, subject=name)


def new_token() -> str:
    """Make a token."""
    return f"{PREFIX}{secrets.token_urlsafe(32)}"


def digest(token: str) -> str:
    """Return the stored hash of a token, in hexadecimal digits."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
