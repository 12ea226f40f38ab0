"""The application: guard, pages, interface, and error pages."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from labctl.config.lab import LabFile
from labctl.database.base import DatabaseAway, patience
from labctl.errors import Blame, BoardBusy, LabctlError
from labctl.web import api, changes, metrics, nights, pages, run_pages, trends
from labctl.web.dashboard import Dashboard, Listening, SignInNeeded, dashboard_of, page
from labctl.web.request_checks import Guard, Limits, Refused

#: Time (s) after which a client may repeat a request that the database did not answer.
_AGAIN_SECONDS = 5
_DESCRIPTION = """Boards, queue, runs and audit log of a lab. Changes need the header
`Authorization: Bearer TOKEN`; `labctl serve token add NAME` makes a token."""


def make_app(lab: LabFile, listening: Listening, limits: Limits | None = None) -> Guard:
    """Return the dashboard of a lab as an ASGI application. Raises ConfigError, HostError."""
    limits = limits or Limits()
    dashboard = Dashboard(lab, listening, limits)

    @asynccontextmanager
    async def living(_app: FastAPI) -> AsyncIterator[None]:
        dashboard.watcher.start()
        yield
        await dashboard.watcher.stop()

    app = FastAPI(
        title=f"labctl: {lab.name}",
        version="1",
        description=_DESCRIPTION,
        docs_url=None,  # its page would load scripts from another server
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        lifespan=living,
        redirect_slashes=False,  # it would redirect to the address in a Host header
    )
    app.state.dashboard = dashboard
    for part in (pages, run_pages, nights, trends, changes, api, metrics):
        app.include_router(part.router)
    for part in (pages, changes):
        app.include_router(part.public)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(SignInNeeded, _sign_in)
    app.add_exception_handler(HTTPException, _no_page)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(LabctlError, _failed)
    proxies = lab.lab.web.proxy.networks if lab.lab.web.proxy else ()
    guard = Guard(app, dashboard.names, limits, proxies)
    dashboard.guard_answers = lambda: guard.answers
    guard.end_streams = dashboard.watcher.close_streams
    return guard


def _is_page(request: Request) -> bool:
    return not request.url.path.startswith(("/api/", "/metrics"))


def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return PlainTextResponse(f"{error.reason}\n", status_code=error.status)


def _sign_in(request: Request, _error: Exception) -> Response:
    """Redirect a reader to the form; answer a program 401, after many wrong tokens 429."""
    access = dashboard_of(request).access
    is_wrong = access.token_in(request.headers) is not None
    if is_wrong and (wait := access.wait_seconds()):
        headers = {"retry-after": f"{wait:.0f}"}
        return PlainTextResponse("too many wrong tokens\n", status_code=429, headers=headers)
    if _is_page(request) and request.method == "GET" and not is_wrong:
        return RedirectResponse("/sign-in", status_code=303)
    reason = "this is not a token of this lab, or it has ended" if is_wrong else "a token is needed"
    headers = {"www-authenticate": "Bearer"}
    return PlainTextResponse(f"{reason}\n", status_code=401, headers=headers)


def _no_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if not _is_page(request):
        detail = {"detail": str(error.detail)}
        return JSONResponse(detail, status_code=error.status_code, headers=error.headers)
    if error.status_code != 404:
        return PlainTextResponse(f"{error.detail}\n", status_code=error.status_code)
    return page(request, "error", status=404, title="No such page", problem=None)


def _not_valid(_request: Request, error: Exception) -> Response:
    """Report the errors of a request without its content, which may be invalid Unicode."""
    assert isinstance(error, RequestValidationError)
    detail = [{key: one[key] for key in ("loc", "msg", "type")} for one in error.errors()]
    text = json.dumps({"detail": detail})  # with escapes: a key may be invalid Unicode, too
    return Response(text, status_code=422, media_type="application/json")


def _failed(request: Request, error: Exception) -> Response:
    """Show an error of the lab: its message is for people and contains no secret."""
    assert isinstance(error, LabctlError)
    status = 409 if isinstance(error, BoardBusy) else 400 if error.blame is Blame.CONFIG else 503
    headers = {"retry-after": str(_AGAIN_SECONDS)} if isinstance(error, DatabaseAway) else None
    if not _is_page(request):
        document = {"detail": error.message, "hint": error.hint}
        return JSONResponse(document, status_code=status, headers=headers)
    with patience(0.0):  # this request has waited
        title = "This did not work"
        answer = page(request, "error", status=status, title=title, problem=error.message)
    answer.headers.update(headers or {})
    return answer
