"""Changes that people make on pages: hold and release boards, move and cancel jobs, sign in."""

import asyncio
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import RedirectResponse, Response

from labctl.config.types import parse_use_time
from labctl.errors import ConfigError, LabctlError
from labctl.state.audit import checked_reason
from labctl.state.job import Job
from labctl.state.reservations import check_length, is_same_user
from labctl.web.authentication import SESSION_SECONDS, User
from labctl.web.dashboard import Dashboard, UserRoute, dashboard_of, form_of, must_be, page
from labctl.web.request_checks import Refused

router = APIRouter(include_in_schema=False, route_class=UserRoute)
public = APIRouter(include_in_schema=False)
VIA = "web"


@router.post("/boards/{name}/hold")
async def hold(request: Request, name: str) -> Response:
    """Hold a board for the user."""
    form = await form_of(request)
    return await asyncio.to_thread(_hold, request, name, form)


def _hold(request: Request, name: str, form: dict[str, str]) -> Response:
    user = must_be(request, "run")
    try:
        hold_board(dashboard_of(request), user, name, form.get("reason", ""), form.get("time", ""))
    except LabctlError as error:
        return _board_page(request, name, error, hold=form)
    return _to(f"/boards/{quote(name, safe='')}")


@router.post("/boards/{name}/release")
async def release(request: Request, name: str) -> Response:
    """End a hold; with ``force``, of any user."""
    form = await form_of(request)
    return await asyncio.to_thread(_release, request, name, form)


def _release(request: Request, name: str, form: dict[str, str]) -> Response:
    force = form.get("force") == "yes"
    user = must_be(request, "admin" if force else "run")
    try:
        release_board(dashboard_of(request), user, name, form.get("reason", ""), force=force)
    except LabctlError as error:
        return _board_page(request, name, error, release=form)
    return _to(f"/boards/{quote(name, safe='')}")


@router.post("/queue/{job}/{action}")
async def change_job(request: Request, job: str, action: str) -> Response:
    """Cancel a job, or move it to the front."""
    form = await form_of(request)
    return await asyncio.to_thread(_change_job, request, job, action, form.get("reason", ""))


def _change_job(request: Request, name: str, action: str, reason: str) -> Response:
    dashboard = dashboard_of(request)
    try:
        if action == "cancel":
            cancel_job(dashboard, must_be(request, "run"), name, reason)
        elif action == "first":
            user = must_be(request, "admin")
            dashboard.view.state.jobs.move(_job(dashboard, name).id, first=True)
            dashboard.view.state.audit.record(user.name, VIA, "queue move", name, reason or None)
        else:
            raise HTTPException(404)
    except LabctlError as error:
        jobs = dashboard.view.state.jobs.list(ended=50)
        return page(request, "queue", status=409, jobs=jobs, problem=error.message)
    return _to("/queue")


@public.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Begin a session with a token."""
    form = await form_of(request)
    dashboard = dashboard_of(request)
    token = form.get("token", "").strip()
    cookie = await asyncio.to_thread(dashboard.access.sign_in, token)
    if cookie is None:
        wait = dashboard.access.wait_seconds()
        problem = "This is no token of this lab, or it has ended."
        status, headers = 403, {}
        if wait:
            status, headers = 429, {"retry-after": f"{wait:.0f}"}
        return page(
            request, "sign_in", status=status, headers=headers, problem=problem, signed_in=None
        )
    answer = _to("/")
    answer.set_cookie(
        dashboard.cookie,
        cookie,
        max_age=int(SESSION_SECONDS),
        httponly=True,
        samesite="strict",
        # Behind a proxy, browsers come over https; on loopback, over http.
        secure=request.headers.get("origin", "").startswith("https:"),
    )
    return answer


@public.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """End the session."""
    dashboard = dashboard_of(request)
    dashboard.access.sign_out(request.cookies.get(dashboard.cookie))
    answer = _to("/")
    answer.delete_cookie(dashboard.cookie, httponly=True, samesite="strict")
    return answer


def hold_board(dashboard: Dashboard, user: User, name: str, reason: str, time: str) -> None:
    """Hold a board. Raises ConfigError, BoardBusy, HostError."""
    reason = _reason(reason)
    try:
        seconds = parse_use_time(time or "8h")
        check_length(seconds)
    except (ValueError, ConfigError) as error:
        raise ConfigError(f"time: {error}") from None
    _known_board(dashboard, name)
    dashboard.view.state.holds.hold(name, by=user.name, via=VIA, reason=reason, seconds=seconds)


def release_board(
    dashboard: Dashboard, user: User, name: str, reason: str, *, force: bool
) -> list[str]:
    """Release a board; return a description of what ended. Raises ConfigError, HostError."""
    _known_board(dashboard, name)
    reason = _reason(reason) if force or reason else ""
    ended = dashboard.view.state.holds.release(
        name, by=user.name, via=VIA, force=force, reason=reason or None
    )
    if not ended:
        raise ConfigError(f"nobody has board {name}")
    return list(ended)


def cancel_job(dashboard: Dashboard, user: User, name: str, reason: str) -> Job:
    """Cancel a user's own job; for an admin any job. Raises ConfigError, HostError, Refused."""
    job = _job(dashboard, name)
    if not user.may("admin") and not is_same_user(user.name, job.submitter):
        raise Refused(403, f"job {name} belongs to {job.submitter}: only an admin may cancel it")
    reason = _reason(reason)
    done = dashboard.view.state.jobs.cancel(job.id, f"{user.name}: {reason}")
    dashboard.view.state.audit.record(user.name, VIA, "queue cancel", job.id, reason)
    return done


def _job(dashboard: Dashboard, name: str) -> Job:
    found = dashboard.view.state.jobs.get(name)
    if found is None:
        raise ConfigError(f"no job {name!r}")
    return found


def _known_board(dashboard: Dashboard, name: str) -> None:
    if name not in dashboard.lab.lab.boards:
        raise HTTPException(404)


def _reason(text: str) -> str:
    reason = checked_reason(text.strip())
    if not reason:
        raise ConfigError("a reason is required: others read it")
    return reason


def _board_page(
    request: Request, name: str, error: LabctlError, **typed: dict[str, str]
) -> Response:
    """Show the board with the reason for the refusal, and the text ``typed`` in each form."""
    view = dashboard_of(request).view
    found = view.board(name)
    if found is None:
        raise HTTPException(404)
    return page(
        request,
        "board",
        status=400 if isinstance(error, ConfigError) else 409,
        problem=error.message,
        hint=error.hint,
        executions=view.executions(),
        typed=typed,
        board=found,
        history=list(reversed(view.state.health.history(name, limit=200))),
        runs=[],
        audit=[],
    )


def _to(path: str) -> RedirectResponse:
    """Redirect to a page of this server, by its path only."""
    return RedirectResponse(path, status_code=303)
