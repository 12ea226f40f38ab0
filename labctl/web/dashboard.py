"""The parts of one dashboard, and their use by requests."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from fastapi.routing import APIRoute

from labctl.config.lab import LabFile
from labctl.config.secrets import read_secret
from labctl.config.web import Role
from labctl.errors import ConfigError, LabctlError
from labctl.web.authentication import Access, User
from labctl.web.lab_view import LabView
from labctl.web.render import Renderer, language_of
from labctl.web.request_checks import Limits, Refused
from labctl.web.watcher import Watcher

#: Maximum reports made in parallel; each may use a processor for seconds.
_REPORTS_AT_ONCE = 2
_MOST_FIELDS = 20


@dataclass(frozen=True)
class Listening:
    """The place at which a dashboard listens: an address of this host, or a Unix socket."""

    host: str = "127.0.0.1"
    port: int = 0
    socket: Path | None = None

    @property
    def is_loopback(self) -> bool:
        """True if nobody on another host can reach it."""
        return self.socket is not None or self.host in ("127.0.0.1", "::1", "localhost")

    @property
    def is_any(self) -> bool:
        """True if it is every address of this host, so it gives no host name."""
        return self.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not opened


class SignInNeeded(Exception):
    """Nobody is signed in, and the request is for users only."""


class Dashboard:
    """All that the pages of one server share."""

    def __init__(self, lab: LabFile, listening: Listening, limits: Limits):
        web = lab.lab.web
        self.lab = lab
        self.listening = listening
        self.view = LabView(lab, lambda: self.watcher.live)
        self.watcher = Watcher(self.view, limits)
        self.renderer = Renderer()
        secret = web.proxy.secret if web.proxy else None
        # Behind a proxy, everybody who reaches the proxy reaches the dashboard.
        is_shared = not listening.is_loopback or web.names or web.proxy is not None
        reading = web.reading or ("token" if is_shared else "open")
        self.access = Access(
            self.view.state.tokens,
            web,
            proxy_secret=read_secret(secret, lab.root) if secret else None,
            is_socket=listening.socket is not None,
            reading_open=reading == "open",
        )
        #: Answers so far, by method and status.
        self.guard_answers: Callable[[], Mapping[tuple[str, int], int]] = dict
        self.reports = asyncio.Semaphore(_REPORTS_AT_ONCE)
        #: Browsers send a cookie to every port of a host: servers must not read each other's.
        self.cookie = f"labctl_session_{listening.port}"

    @property
    def names(self) -> frozenset[str]:
        """Host names under which the dashboard may be reached."""
        own = {"localhost", "127.0.0.1", "::1"} if self.listening.is_loopback else set()
        if not self.listening.is_any:
            own.add(self.listening.host.lower())
        return frozenset(own | {name.lower() for name in self.lab.lab.web.names})


def dashboard_of(request: Request) -> Dashboard:
    """Return the dashboard that a request came to."""
    found: Dashboard = request.app.state.dashboard
    return found


def user_of(request: Request) -> User | None:
    """Return the user of a request."""
    if not hasattr(request.state, "user"):
        dashboard = dashboard_of(request)
        peer = request.client.host if request.client else None
        cookie = request.cookies.get(dashboard.cookie)
        request.state.user = dashboard.access.user(request.headers, cookie, peer)
    found: User | None = request.state.user
    return found


def may_read(request: Request) -> None:
    """Raise SignInNeeded for a reader without access, and for a wrong token in any case."""
    access = dashboard_of(request).access
    if user_of(request) is None and not (
        access.reading_open and access.token_in(request.headers) is None
    ):
        raise SignInNeeded


class UserRoute(APIRoute):
    """A route for readers, or for changes by users of the role run.

    The user is checked before the request is parsed: strangers learn nothing about its form.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, behind the check."""
        handle = super().get_route_handler()
        check = may_read if self.methods == {"GET"} else partial(must_be, role="run")

        async def checked(request: Request) -> Response:
            await asyncio.to_thread(check, request)  # it may query the database
            return await handle(request)

        return checked


async def still_reads(request: Request) -> bool:
    """Check again if the reader of a stream has access; return False if unknown."""
    if hasattr(request.state, "user"):
        del request.state.user
    try:
        await asyncio.to_thread(may_read, request)
    except (SignInNeeded, LabctlError):
        return False
    return True


def must_be(request: Request, role: Role) -> User:
    """Return the user who makes a change. Raises SignInNeeded, Refused."""
    user = user_of(request)
    if user is None:
        raise SignInNeeded
    if not user.may(role):
        raise Refused(403, f"{user.name} has the role {user.role}; this needs {role}")
    if user.by != "token" and "origin" not in request.headers:
        # A page of another site can send a request with the cookie or the proxy's header, too.
        raise Refused(403, "a change from a browser needs the header Origin")
    return user


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises Refused, ConfigError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Refused(415, "a form is application/x-www-form-urlencoded")
    try:
        body = (await request.body()).decode()
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise ConfigError("the form is not text, or has too many fields") from None


def page(
    request: Request,
    template: str,
    *,
    topics: str = "",
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> Response:
    """Return a page. ``topics``: the topics that it shows, separated by blanks."""
    dashboard = dashboard_of(request)
    language = language_of(request.query_params.get("lang"), request.cookies, request.headers)
    text = dashboard.renderer.page(
        template,
        language,
        lab=dashboard.lab.name,
        user=user_of(request),
        path=request.url.path,
        query=request.url.query,
        topics=topics,
        **values,
    )
    answer = HTMLResponse(text, status_code=status, headers=dict(headers or {}))
    if request.query_params.get("lang") == language:
        answer.set_cookie(
            "labctl_language", language, max_age=31536000, httponly=True, samesite="strict"
        )
    return answer
