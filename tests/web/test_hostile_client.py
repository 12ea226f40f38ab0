"""A hostile web client: what it tries, and what stops it."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from dashboards import Served, made_lab, served
from records_made import planned_run, run

from labctl.records.run import PlanRecord
from labctl.retry import wait_until
from labctl.state.health import Health
from labctl.state.state import lab_state
from labctl.web.request_checks import Limits

HOLD = {"reason": "mine now", "time": "8h"}


def held(dashboard: Served) -> list[str]:
    return [one.holder for one in lab_state(dashboard.lab).reservations.list("rk1")]


@contextmanager
def raw(dashboard: Served) -> Iterator[socket.socket]:
    host, port = dashboard.host.split(":")
    with closing(socket.create_connection((host, int(port)), timeout=60)) as link:
        yield link


@contextmanager
def limited(tmp_path: Path, **limits: float) -> Iterator[Served]:
    with served(made_lab(tmp_path / "kitchen"), Limits(**limits)) as found:  # type: ignore[arg-type]
        yield found


def answer_to(dashboard: Served, text: bytes) -> bytes:
    """All that comes back until the server closes."""
    with raw(dashboard) as link:
        link.sendall(text)
        found = b""
        while piece := link.recv(65536):
            found += piece
        return found


def change(dashboard: Served, **headers: str) -> httpx.Response:
    """The hold of a browser that is signed in, with some of its headers changed; "" leaves out."""
    with dashboard.signed_in("run") as client:
        for name, value in headers.items():
            key = name.replace("_", "-")
            if value:
                client.headers[key] = value
            else:
                del client.headers[key]
        return client.post("/boards/rk1/hold", data=HOLD)


ATTACKS: dict[str, tuple[Callable[[Served], httpx.Response], int, str]] = {
    "a name that leads here, of another site (DNS rebinding)": (
        lambda one: one.ask("GET", "/", headers={"Host": "evil.example"}),
        421,
        "host name",
    ),
    "our address as the start of another name": (
        lambda one: one.ask("GET", "/", headers={"Host": "127.0.0.1.evil.example"}),
        421,
        "host",
    ),
    "a login in the host": (
        lambda one: one.ask("GET", "/", headers={"Host": "127.0.0.1@evil.example"}),
        400,
        "host",
    ),
    "a form of another site": (
        lambda one: change(one, Origin="https://evil.example"),
        403,
        "another site",
    ),
    "a form of another port of this host": (
        lambda one: change(one, Origin="http://127.0.0.1:1"),
        403,
        "another site",
    ),
    "a form of a sandboxed page": (lambda one: change(one, Origin="null"), 403, "another site"),
    "a form without an origin": (lambda one: change(one, Origin=""), 403, "Origin"),
    "a form that the browser calls cross-site": (
        lambda one: change(one, Sec_Fetch_Site="same-site"),
        403,
        "another site",
    ),
    "a change without a token": (
        lambda one: one.ask(
            "POST", "/boards/rk1/hold", data=HOLD, headers={"Origin": one.address.rstrip("/")}
        ),
        401,
        "token",
    ),
    "a change with a wrong token": (
        lambda one: one.ask(
            "POST",
            "/api/v1/boards/rk1/hold",
            json=HOLD,
            headers={"Authorization": "Bearer labctl_x"},
        ),
        401,
        "token",
    ),
    "a change with the role look": (
        lambda one: one.ask(
            "POST", "/api/v1/boards/rk1/hold", json=HOLD, headers=one.bearer("look")
        ),
        403,
        "role",
    ),
    "a forced release with the role run": (
        lambda one: one.ask(
            "POST",
            "/api/v1/boards/rk1/release",
            json={"force": True, "reason": "x"},
            headers=one.bearer("run"),
        ),
        403,
        "role",
    ),
    "a user header of a proxy that is none": (
        lambda one: one.ask(
            "POST",
            "/boards/rk1/hold",
            data=HOLD,
            headers={"Origin": one.address.rstrip("/"), "X-Forwarded-User": "admin"},
        ),
        401,
        "token",
    ),
    "a change by GET": (
        lambda one: one.ask("GET", "/boards/rk1/hold", role="admin", params=HOLD),
        405,
        "",
    ),
    "a method in a header": (
        lambda one: one.ask("GET", "/", headers={"X-HTTP-Method-Override": "POST"}),
        200,
        "",
    ),
    "another method": (lambda one: one.ask("TRACE", "/"), 405, "method"),
    "a long body": (
        lambda one: one.ask("POST", "/sign-in", content=b"x" * 100_000, headers=origin(one)),
        413,
        "at most",
    ),
    "an endless body": (
        lambda one: one.ask(
            "POST",
            "/sign-in",
            content=endless(),
            headers={"Content-Type": "application/x-www-form-urlencoded", **origin(one)},
        ),
        413,
        "at most",
    ),
    "thousands of fields": (
        lambda one: one.ask(
            "POST",
            "/sign-in",
            content=b"a=b&" * 5000,
            headers={"Content-Type": "application/x-www-form-urlencoded", **origin(one)},
        ),
        400,
        "fields",
    ),
    "a form that is no form": (
        lambda one: one.ask("POST", "/sign-in", json={"token": "x"}, headers=origin(one)),
        415,
        "form",
    ),
    "an address of kilobytes": (lambda one: one.ask("GET", "/" + "x" * 5000), 414, "long"),
    "a path out of the lab": (
        lambda one: one.ask("GET", "/runs/..%2f..%2f..%2fetc%2fpasswd"),
        404,
        "",
    ),
    "a path out of the lab, in a report": (
        lambda one: one.ask("GET", "/runs/%2e%2e/report"),
        404,
        "",
    ),
    "a path out of our files": (
        lambda one: one.ask("GET", "/static/..%2f..%2faccess.py"),
        404,
        "",
    ),
    "a NUL in a path": (lambda one: one.ask("GET", "/runs/x%00y"), 400, "control"),
    "SQL in a filter": (
        lambda one: one.ask("GET", "/runs", params={"recipe": "' OR 1=1 --"}),
        200,
        "",
    ),
    "an unknown filter": (
        lambda one: one.ask("GET", "/runs", params={"folder": "x"}),
        400,
        "unknown filter",
    ),
    "a page that is no number": (
        lambda one: one.ask("GET", "/runs", params={"page": "9" * 30}),
        400,
        "number",
    ),
    "markup in a filter": (
        lambda one: one.ask("GET", "/runs", params={"board": '"><script>alert(1)</script>'}),
        200,
        "&lt;script&gt;",
    ),
    "another site to be led to": (
        lambda one: one.ask("GET", "/%2f%2fevil.example/"),
        404,
        "",
    ),
    "a board that there is none": (
        lambda one: one.ask(
            "POST", "/api/v1/boards/..%2frk1/hold", json=HOLD, headers=one.bearer("run")
        ),
        404,
        "",
    ),
}


def origin(dashboard: Served) -> dict[str, str]:
    return {"Origin": dashboard.address.rstrip("/")}


def endless() -> Iterator[bytes]:
    for _ in range(10_000):
        yield b"x" * 4096


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_stopped(dashboard: Served, attack: str) -> None:
    act, status, word = ATTACKS[attack]
    answer = act(dashboard)
    assert answer.status_code == status, answer.text
    assert word in answer.text
    assert "<script>alert" not in answer.text
    assert "root:" not in answer.text
    assert held(dashboard) == []
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers.get("location", "/").startswith("/")


TWO_LENGTHS = (
    b"POST /sign-in HTTP/1.1\r\nHost: {host}\r\nContent-Length: 3\r\nOrigin: http://{host}\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n"
)
WEBSOCKET = (
    b"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nOrigin: http://evil.example\r\n\r\n"
)
TWO_HOSTS = b"GET / HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (TWO_HOSTS, b"400"),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", b"400"),
        (b"GET /\r\nX: y HTTP/1.1\r\n\r\n", b"400"),
        (TWO_LENGTHS, b"4"),
        (b"GET / HTTP/1.1\r\nHost: {host}\r\nX: " + b"y" * 100_000, b"400"),
        (WEBSOCKET, b""),
    ],
    ids=["two hosts", "no host", "a header in the path", "two lengths", "a head without end", "ws"],
)
def test_a_broken_request_is_refused(dashboard: Served, text: bytes, status: bytes) -> None:
    with raw(dashboard) as link:
        link.sendall(text.replace(b"{host}", dashboard.host.encode()))
        first = link.recv(65536)
    assert first.startswith(b"HTTP/1.1 " + status)
    assert b"101 Switching" not in first


def test_text_of_strangers_is_text(tmp_path: Path) -> None:
    """A reason, a recipe, a tag and a board's words with markup and escapes, on every page."""
    evil = "<img src=x onerror=alert(1)>\x1b[2J\u202e{{777*777}}"
    lab = made_lab(tmp_path / "kitchen")
    state = lab_state(lab)
    state.health.set("rk1", Health.BAD, reason=evil, by=evil)
    state.audit.record(evil, "web", evil, "rk1", evil)
    state.holds.hold("rk2", by="somebody", reason=evil)
    record = run("20261121T213000Z-q2-abcdef", recipe=evil)
    planned_run(lab.root / "runs", record, PlanRecord(trials=(), max_seconds=60))
    with served(lab) as dashboard, dashboard.signed_in("admin") as client:
        dashboard_runs(client)
        for path in ("/", "/boards/rk1", "/boards/rk2", "/audit", "/runs", f"/runs/{record.id}"):
            text = client.get(path).text
            assert "<img" not in text, path
            assert "\x1b" not in text, path
            assert "603729" not in text, path
            if path != "/runs":
                assert "&lt;img" in text, path
        assert "\x1b" not in client.get("/metrics").text


def dashboard_runs(client: httpx.Client) -> None:
    """Wait until the watcher has found the run."""
    end = time.monotonic() + 60
    while "No such runs" in client.get("/runs").text:
        assert time.monotonic() < end


def test_guesses_are_slowed_and_lock_nobody_out(tmp_path: Path) -> None:
    with served(made_lab(tmp_path / "kitchen")) as dashboard:
        with dashboard.client(headers=origin(dashboard)) as client:
            answers = [
                client.post("/sign-in", data={"token": f"labctl_{n}"}).status_code
                for n in range(12)
            ]
            assert answers[0] == 403
            assert answers[-1] == 429
            late = client.post("/sign-in", data={"token": "wrong"})
            assert 0 < int(late.headers["retry-after"]) <= 60
        with dashboard.signed_in("run") as client:
            assert client.post("/boards/rk1/hold", data=HOLD).status_code == 303


def test_a_revoked_token_ends_its_sessions_at_once(tmp_path: Path) -> None:
    lab = made_lab(tmp_path / "kitchen")
    with served(lab) as dashboard, dashboard.signed_in("run") as client:
        lab_state(lab).tokens.revoke("run", by="test")
        assert client.post("/boards/rk1/hold", data=HOLD).status_code == 401
        assert held(dashboard) == []


def test_a_cookie_is_for_this_page_alone(dashboard: Served) -> None:
    with dashboard.client(headers=origin(dashboard)) as client:
        answer = client.post("/sign-in", data={"token": dashboard.tokens["run"]})
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert dashboard.tokens["run"] not in cookie
        kept = client.cookies[f"labctl_session_{dashboard.host.split(':')[1]}"]
        assert client.post("/sign-out").status_code == 303
        client.cookies.set(f"labctl_session_{dashboard.host.split(':')[1]}", kept)
        assert client.post("/boards/rk1/hold", data=HOLD).status_code == 401


def test_no_secret_is_on_a_page_or_in_the_database(dashboard: Served) -> None:
    secrets = list(dashboard.tokens.values())
    with dashboard.signed_in("admin") as client:
        for path in ("/", "/audit", "/sign-in", "/metrics", "/api/v1/audit", "/boards/rk1"):
            text = client.get(path).text
            assert not any(secret in text for secret in secrets), path
    database = (dashboard.lab.root / "labctl.sqlite").read_bytes()
    assert not any(secret.encode() in database for secret in secrets)


def test_a_slow_head_is_cut_off(tmp_path: Path) -> None:
    with limited(tmp_path, head_seconds=0.5) as dashboard:
        with raw(dashboard) as link:
            link.sendall(b"GET / HTTP/1.1\r\nHost: ")
            assert link.recv(100) == b""
        with raw(dashboard) as link:
            assert link.recv(100) == b""
        with raw(dashboard) as link:  # also the second one on a connection
            head = f"GET /static/icon.svg HTTP/1.1\r\nHost: {dashboard.host}\r\n\r\n"
            link.sendall(head.encode())
            found = b""
            while b"</svg>" not in found:
                found += link.recv(65536)
            link.sendall(b"GET")
            assert link.recv(100) == b""


def test_a_slow_body_is_cut_off(tmp_path: Path) -> None:
    with limited(tmp_path, body_seconds=0.5) as dashboard:
        head = (
            f"POST /sign-in HTTP/1.1\r\nHost: {dashboard.host}\r\n"
            f"Origin: {origin(dashboard)['Origin']}\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 50\r\n\r\ntok"
        )
        assert answer_to(dashboard, head.encode()).startswith(b"HTTP/1.1 408")


def test_idle_connections_lock_nobody_out(tmp_path: Path) -> None:
    with limited(tmp_path, head_seconds=1.0) as dashboard, ExitStack() as links:
        host, port = dashboard.host.split(":")
        for _ in range(Limits().connections):
            links.enter_context(closing(socket.create_connection((host, int(port)))))
        end = time.monotonic() + 60
        while True:
            try:
                if dashboard.ask("GET", "/static/icon.svg").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            assert time.monotonic() < end


def test_streams_are_bounded(tmp_path: Path) -> None:
    with limited(tmp_path, streams=2) as dashboard, dashboard.client() as client:
        with client.stream("GET", "/live") as first, client.stream("GET", "/live") as second:
            texts = [one.iter_text() for one in (first, second)]
            assert all("hello" in next(one) for one in texts)
            with client.stream("GET", "/live") as third:
                assert third.status_code == 503
            for one in texts:
                one.close()
        end = time.monotonic() + 60
        while client.get("/metrics").text.find("labctl_web_live_pages 0.0") < 0:
            assert time.monotonic() < end


PROXY = """\
web:
  names: [lab.example]
  proxy: {addresses: [127.0.0.1], secret: "env:PROXY_SECRET", roles: {anna: run}}
"""


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Forwarded-User": "anna", "X-Labctl-Proxy-Secret": "hidden"}, 303),
        ({"X-Forwarded-User": "anna", "X-Labctl-Proxy-Secret": "wrong"}, 401),
        ({"X-Forwarded-User": "anna"}, 401),
        ({"X-Forwarded-User": "bert", "X-Labctl-Proxy-Secret": "hidden"}, 403),
        (
            {
                "X-Forwarded-User": "anna",
                "X-Labctl-Proxy-Secret": "hidden",
                "Origin": "https://evil.example",
            },
            403,
        ),
    ],
    ids=["the proxy", "a wrong secret", "no secret", "a user who may look", "another site"],
)
def test_a_proxy_names_the_user_with_its_secret_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], status: int
) -> None:
    monkeypatch.setenv("PROXY_SECRET", "hidden")
    lab = made_lab(tmp_path / "kitchen", more=PROXY)
    with served(lab) as dashboard, dashboard.client() as client:
        named = {"Host": "lab.example", "Origin": "https://lab.example", **headers}
        answer = client.post("/boards/rk1/hold", data=HOLD, headers=named)
        assert answer.status_code == status, answer.text
        assert held(dashboard) == (["anna"] if status == 303 else [])


def test_reading_needs_a_token_where_the_lab_says_so(tmp_path: Path) -> None:
    lab = made_lab(tmp_path / "kitchen", more="web: {reading: token}")
    with served(lab) as dashboard, dashboard.client() as client:
        for path in ("/", "/runs", "/audit", "/boards/rk1", "/trends"):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in"), path
        for path in ("/metrics", "/api/v1/boards", "/api/v1/audit"):
            assert client.get(path).status_code == 401, path
        assert client.get("/live").status_code in (303, 401)
        assert client.get("/metrics", headers=dashboard.bearer("look")).status_code == 200
        boards: Any = json.loads(
            client.get("/api/v1/boards", headers=dashboard.bearer("look")).text
        )
        assert [one["name"] for one in boards] == ["rk1", "rk2"]


def test_streams_that_begin_at_once_are_bounded_too(tmp_path: Path) -> None:
    """All ask before any has begun: the limit is looked at and taken in one step."""
    asked = 150
    with limited(tmp_path, streams=3) as dashboard, ExitStack() as links:
        head = f"GET /live HTTP/1.1\r\nHost: {dashboard.host}\r\n\r\n".encode()
        opened = [links.enter_context(raw(dashboard)) for _ in range(asked)]
        for link in opened:
            link.sendall(head)
        statuses = [link.recv(15).split()[1] for link in opened]
    assert (statuses.count(b"200"), statuses.count(b"503")) == (3, asked - 3)


@pytest.mark.parametrize("path", ["/", "/runs", "/static/icon.svg", "/api/v1/boards", "/metrics"])
def test_head_is_get_without_the_body(dashboard: Served, path: str) -> None:
    head, get = dashboard.ask("HEAD", path), dashboard.ask("GET", path)
    assert (head.status_code, head.content) == (200, b"")
    volatile = {"date", "content-length"} if path == "/metrics" else {"date"}
    assert {k: v for k, v in head.headers.items() if k not in volatile} == {
        k: v for k, v in get.headers.items() if k not in volatile
    }


def test_head_of_a_stream_ends(dashboard: Served) -> None:
    answer = dashboard.ask("HEAD", "/live")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert wait_until(
        lambda: "labctl_web_live_pages 0.0" in dashboard.ask("GET", "/metrics").text,
        timeout=30,
        interval=0.1,
    )


@pytest.mark.parametrize("path", ["/", "/runs", "/live", "/metrics", "/api/v1/boards"])
@pytest.mark.parametrize("reading", ["open", "token"])
def test_a_wrong_token_is_refused_where_it_reads(tmp_path: Path, path: str, reading: str) -> None:
    lab = made_lab(tmp_path / "kitchen", more=f"web: {{reading: {reading}}}")
    with served(lab) as dashboard, dashboard.client() as client:
        answer = client.get(path, headers={"Authorization": "Bearer labctl_wrong"})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        text = client.get("/metrics", headers=dashboard.bearer("look")).text
        assert "labctl_web_sign_in_failures_total 1.0" in text
        codes = {
            client.get(path, headers={"Authorization": f"Bearer {n}"}).status_code
            for n in range(12)
        }
        assert codes == {401, 429}


@pytest.mark.parametrize(
    ("method", "path", "options"),
    [
        ("POST", "/api/v1/boards/rk1/hold", {"json": {"reason": 7, "until": "y"}}),
        ("POST", "/api/v1/boards/rk1/hold", {"content": b"{not json"}),
        ("POST", "/api/v1/queue/x/cancel", {"json": {}}),
        ("POST", "/boards/rk1/hold", {"content": b"a=b&" * 5000}),
        ("GET", "/api/v1/queue?ended=-1", {}),
        ("GET", "/api/v1/audit?limit=x", {}),
        ("GET", "/runs/20261121T213000Z-q2-abcdef/log/stream?skip=x", {}),
    ],
)
def test_a_stranger_learns_nothing_about_the_form_of_a_request(
    tmp_path: Path, method: str, path: str, options: dict[str, Any]
) -> None:
    lab = made_lab(tmp_path / "kitchen", more="web: {reading: token}")
    with served(lab) as dashboard:
        refused = dashboard.ask(method, path, headers=origin(dashboard), **options)
        assert refused.status_code in (303, 401), refused.text
        known = dashboard.ask(
            method, path, headers={**origin(dashboard), **dashboard.bearer("run")}, **options
        )
        assert known.status_code in (400, 415, 422), known.text


def test_a_slow_sender_sees_the_refusal(dashboard: Served) -> None:
    """Its body comes in pieces after the answer; a reset would take the answer from it."""
    size, pieces = 50_000, 50
    head = (
        f"POST /boards/rk1/hold HTTP/1.1\r\nHost: {dashboard.host}\r\n"
        "Origin: https://evil.example\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        f"Content-Length: {size}\r\n\r\n"
    )
    with raw(dashboard) as link:
        link.sendall(head.encode())
        for _ in range(pieces):
            link.sendall(b"x" * (size // pieces))
            time.sleep(0.01)  # no condition: the pace of a slow sender is what is tried
        found = b""
        while piece := link.recv(65536):
            found += piece
    assert found.startswith(b"HTTP/1.1 403 ")
    assert found.endswith(b"a page of another site asks for this change\n")
    assert b"connection: close\r\n" in found.lower()


def test_a_refused_body_is_read_up_to_a_bound(tmp_path: Path) -> None:
    with limited(tmp_path, body_seconds=1.0) as dashboard:
        head = (
            f"POST /boards/rk1/hold HTTP/1.1\r\nHost: {dashboard.host}\r\n"
            "Origin: https://evil.example\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        with raw(dashboard) as link:
            link.sendall(head.encode())
            began, found = time.monotonic(), b""
            while piece := link.recv(65536):
                found += piece
            assert time.monotonic() - began < 30
        assert found.startswith(b"HTTP/1.1 403 ")


def test_half_open_requests_of_one_address_keep_nobody_out(tmp_path: Path) -> None:
    """250 begun heads: others are answered at once, and so is the same address."""
    with served(made_lab(tmp_path / "kitchen")) as dashboard, ExitStack() as links:
        host, port = dashboard.host.split(":")
        head = f"GET /static/icon.svg HTTP/1.1\r\nHost: {dashboard.host}\r\n"
        for _ in range(250):
            link = links.enter_context(raw(dashboard))
            link.sendall(head.encode())
        for source in ("127.0.0.2", host):
            with socket.create_connection(
                (host, int(port)), timeout=60, source_address=(source, 0)
            ) as link:
                began = time.monotonic()
                link.sendall(f"{head}Connection: close\r\n\r\n".encode())
                assert link.recv(12) == b"HTTP/1.1 200"
                assert time.monotonic() - began < Limits().head_seconds


def test_requests_of_one_address_are_bounded_and_of_a_named_proxy_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXY_SECRET", "hidden")
    for more, statuses in (("", {200, 503}), (PROXY, {200})):
        lab = made_lab(
            tmp_path / f"lab{len(more)}", more=more.replace("{addr", "{default_role: look, addr")
        )
        with served(lab, Limits(requests_of_address=3)) as dashboard, ExitStack() as links:
            headers = (
                {"X-Forwarded-User": "anna", "X-Labctl-Proxy-Secret": "hidden"} if more else {}
            )
            client = links.enter_context(dashboard.client(headers=headers))
            found = {
                links.enter_context(client.stream("GET", "/live")).status_code for _ in range(5)
            }
            assert found == statuses
