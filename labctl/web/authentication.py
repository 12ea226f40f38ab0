"""Users and their rights: tokens, browser sessions, users signed in by a proxy."""

import hmac
import ipaddress
import secrets
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from labctl.config.web import ROLES, Role, Web
from labctl.state.tokens import AccessTokens, digest

SESSION_SECONDS = 12 * 3600.0
_MOST_SESSIONS = 1000
#: Number of wrong tokens answered per minute; a right token is always accepted, so that nobody can
#: lock others out by guessing.
_WRONG_A_MINUTE = 10
_MOST_HEADER = 500
PROXY_HEADER = "x-labctl-proxy-secret"


@dataclass(frozen=True)
class User:
    """A signed-in user."""

    name: str
    role: Role
    #: ``token``, ``session`` or ``proxy``.
    by: str = "token"

    def may(self, role: Role) -> bool:
        """Return True if they have a role or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True)
class _Session:
    token_sha256: str
    ends: float


class Access:
    """Identifies the user of a request.

    Args:
        tokens: tokens of the lab.
        web: settings of devices.yaml.
        proxy_secret: secret of the proxy, if it has one.
        is_socket: True if requests come over a Unix socket, which only the proxy may open.
        reading_open: True if everybody who reaches the server may read.
    """

    def __init__(
        self,
        tokens: AccessTokens,
        web: Web,
        *,
        proxy_secret: str | None,
        is_socket: bool,
        reading_open: bool,
    ):
        self._tokens = tokens
        self._web = web
        self._proxy_secret = proxy_secret
        self._is_socket = is_socket
        self.reading_open = reading_open
        self._sessions: dict[str, _Session] = {}
        self._wrong: deque[float] = deque()
        self.failures = 0

    @staticmethod
    def token_in(headers: Mapping[str, str]) -> str | None:
        """Return the token in a request's headers; None without one.

        Other schemes of Authorization belong to a proxy.
        """
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else None

    def user(self, headers: Mapping[str, str], cookie: str | None, peer: str | None) -> User | None:
        """Return the user of a request; None if unknown. Raises HostError."""
        if (token := self.token_in(headers)) is not None:
            found = self._tokens.find(token)
            if found is None:
                self._fail()
            return None if found is None else User(found.name, found.role)
        if (proxied := self._proxied(headers, peer)) is not None:
            return proxied
        session = self._sessions.get(digest(cookie)) if cookie else None
        if session is None or session.ends < time.monotonic():
            return None
        # Checked each time: revoking a token ends its sessions.
        token_now = self._tokens.find_hash(session.token_sha256)
        return None if token_now is None else User(token_now.name, token_now.role, "session")

    def sign_in(self, token: str) -> str | None:
        """Return the cookie of a new session; None for a wrong token."""
        found = self._tokens.find(token)
        if found is None:
            self._fail()
            return None
        now = time.monotonic()
        self._sessions = {key: one for key, one in self._sessions.items() if one.ends > now}
        while len(self._sessions) >= _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        cookie = secrets.token_urlsafe(32)
        self._sessions[digest(cookie)] = _Session(found.sha256, now + SESSION_SECONDS)
        return cookie

    def sign_out(self, cookie: str | None) -> None:
        """End a session."""
        if cookie:
            self._sessions.pop(digest(cookie), None)

    def wait_seconds(self) -> float:
        """Return the waiting time (s) after many wrong tokens; 0 before that."""
        now = time.monotonic()
        while self._wrong and self._wrong[0] < now - 60:
            self._wrong.popleft()
        return self._wrong[0] + 60 - now if len(self._wrong) >= _WRONG_A_MINUTE else 0.0

    def _fail(self) -> None:
        self.failures += 1
        if not self.wait_seconds():
            self._wrong.append(time.monotonic())

    def _proxied(self, headers: Mapping[str, str], peer: str | None) -> User | None:
        proxy = self._web.proxy
        if proxy is None:
            return None
        try:  # Starlette decodes headers as Latin-1, proxies send UTF-8
            name = headers.get(proxy.user_header.lower(), "").encode("latin-1").decode()
        except UnicodeDecodeError:
            return None
        if not name or len(name) > _MOST_HEADER or not name.isprintable():
            return None
        if not self._is_proxy(headers, peer):
            return None
        return User(name, proxy.roles.get(name, proxy.default_role), "proxy")

    def _is_proxy(self, headers: Mapping[str, str], peer: str | None) -> bool:
        proxy = self._web.proxy
        assert proxy is not None
        if self._proxy_secret is not None:
            sent = headers.get(PROXY_HEADER, "")
            if not hmac.compare_digest(digest(sent), digest(self._proxy_secret)):
                return False
        if self._is_socket:
            return True
        if self._proxy_secret is None or peer is None:
            return False
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in proxy.networks)
