"""Requests as a user's environment shapes them: proxies, logins, certificates, redirects."""

import ssl
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from certificates import self_signed

from labctl.errors import ConfigError
from labctl.http import Unreachable, read_body, request, without_login


class Noting(ThreadingHTTPServer):
    """Notes the path and the login of each request; redirects where it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.seen: list[tuple[str, str | None]] = []
        self.leads_to: str | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answers(BaseHTTPRequestHandler):
    server: Noting

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers.get("Authorization")))
        self.send_response(302 if self.server.leads_to else 200)
        if self.server.leads_to:
            self.send_header("Location", self.server.leads_to)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")


@contextmanager
def served(server: Noting) -> Iterator[Noting]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server() -> Iterator[Noting]:
    with served(Noting()) as server:
        yield server


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def get(address: str, **more: object) -> bytes:
    with request("GET", address, **more) as answer:  # type: ignore[arg-type]
        return b"".join(answer.iter_raw())


def test_a_redirect_to_another_host_takes_no_login_along(server: Noting) -> None:
    """As a hub redirects to its storage: the user's token is nobody's but the hub's."""
    token = {"Authorization": "Bearer secret"}
    with served(Noting()) as hub:
        hub.leads_to = f"{server.address}/storage"
        assert get(f"{hub.address}/file", headers=token) == b"ok"
        assert hub.seen == [("/file", "Bearer secret")]
    assert server.seen == [("/storage", None)]


def test_logins_of_netrc_are_used_unless_there_is_another(server: Noting, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password pass\n")
    get(server.address)
    get(server.address, headers={"Authorization": "Bearer token"})
    get(server.address, direct=True)
    assert [login for _, login in server.seen] == ["Basic bWU6cGFzcw==", "Bearer token", None]


def test_proxies_of_the_environment_are_used(
    server: Noting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.address)
    assert get("http://models.example/tiny.gguf") == b"ok"
    assert server.seen == [("http://models.example/tiny.gguf", None)]
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    get(f"{server.address}/near")
    assert server.seen[-1] == ("/near", None)


@pytest.mark.parametrize(
    ("name", "value"),
    [("HTTPS_PROXY", "ftp://proxy:1"), ("SSL_CERT_FILE", "/none"), ("REQUESTS_CA_BUNDLE", "/none")],
)
def test_an_environment_that_cannot_be_used_is_the_users(
    server: Noting, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"cannot reach 127\.0\.0\.1: ") as refused:
        get(server.address)
    assert name in (refused.value.hint or "")


def test_a_token_that_no_header_can_hold_is_not_shown(server: Noting) -> None:
    with pytest.raises(Unreachable, match="a header holds") as refused:
        get(server.address, headers={"Authorization": "Bearer secret\n"})
    assert "secret" not in refused.value.message


def test_a_token_that_is_no_ascii_is_the_users(server: Noting) -> None:
    with pytest.raises(ConfigError, match="a header holds") as refused:
        get(server.address, headers={"Authorization": "Bearer gehe\u00efm"})
    assert "gehe" not in refused.value.message
    assert "HF_TOKEN" in (refused.value.hint or "")


def test_logins_in_addresses_are_left_out_of_messages() -> None:
    assert without_login("https://me:pw@host:1/x?y#z") == "https://host:1/x?y#z"
    assert without_login("https://host/x") == "https://host/x"


def test_a_body_that_trickles_or_never_ends_is_given_up(server: Noting) -> None:
    with (
        request("GET", server.address) as answer,
        pytest.raises(Unreachable, match="answers without end"),
    ):
        read_body(answer, within_s=5, most_bytes=1)
    with (
        request("GET", server.address) as answer,
        pytest.raises(Unreachable, match="did not finish its answer in 0 s") as late,
    ):
        read_body(answer, within_s=0, most_bytes=100)
    assert late.value.timed_out


def test_a_server_that_nobody_vouches_for_is_refused_until_the_user_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Noting()
    bundle = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(bundle)
    own.socket = context.wrap_socket(own.socket, server_side=True)
    with served(own):
        address = own.address.replace("http:", "https:")
        for written in (address, address.replace("https", "HTTPS")):
            for follow in (True, False):
                with (
                    pytest.raises(Unreachable, match="certificate verify failed"),
                    request("GET", written, follow=follow),
                ):
                    pass
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
        assert get(address) == b"ok"


def test_hubs_need_no_more_than_the_plain_install() -> None:
    """One http client, and no hub's own library, among what `pip install labctl` brings."""
    project = Path(__file__).parent.parent / "pyproject.toml"
    plain = tomllib.loads(project.read_text())["project"]["dependencies"]
    assert [line for line in plain if line.startswith("httpx")]
    assert not [line for line in plain if line.startswith(("requests", "huggingface", "modelsc"))]
