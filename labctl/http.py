"""The single gateway to servers over http.

Proxies (``HTTPS_PROXY``, ``NO_PROXY``), certificates (``SSL_CERT_FILE``, ``REQUESTS_CA_BUNDLE``)
and ``~/.netrc`` are used as the environment says. A redirect to another host carries no
credentials: httpx drops ``Authorization`` when the origin changes.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from labctl import interrupts
from labctl.errors import ConfigError, HostError

if TYPE_CHECKING:
    import ssl

    import httpx

CONNECT_SECONDS = 15.0
#: The longest silence in the middle of an answer.
SILENCE_SECONDS = 60.0
_NO_HEADER = "a header holds what http does not allow"


class Unreachable(HostError):
    """The server cannot be reached, fell silent or is in trouble: worth another try."""

    #: The cause without the address, which may hold a password.
    reason = ""
    timed_out = False


@contextmanager
def request(
    method: str,
    address: str,
    *,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    connect_s: float = CONNECT_SECONDS,
    silence_s: float = SILENCE_SECONDS,
    follow: bool = True,
    direct: bool = False,
    at: str | None = None,
) -> Iterator["httpx.Response"]:
    """Send a request; read the answer's body in the block, with :func:`pieces` or ``read``.

    ``direct`` ignores the environment: no proxy, no ~/.netrc. ``at`` is the number of the host that
    is contacted, which was checked: its name is not looked up again. Raises Unreachable, also for
    what breaks in the block; ConfigError for an address, a proxy or certificates that cannot be
    used.
    """
    import httpx  # slow to import, and most commands ask no server

    what = f"cannot reach {urlsplit(address).hostname}"
    asking = {"Accept-Encoding": "identity", **(headers or {})}
    with _environment_checked(what):
        client = httpx.Client(
            timeout=httpx.Timeout(silence_s, connect=connect_s),
            **_policy(address, asking, follow=follow, direct=direct),
        )
    where, more = _pinned(address, at) if at else (address, {})
    asking |= more.get("headers", {})
    try:
        with (
            client,
            _begun(
                client.stream(
                    method,
                    where,
                    headers=asking,
                    content=content,
                    extensions=more.get("extensions"),
                )
            ) as answer,
        ):
            what = f"{without_login(address)} was interrupted"
            yield answer
    except httpx.InvalidURL as error:
        raise ConfigError(f"{what}: {error}", hint="check the address") from error
    except UnicodeEncodeError as error:  # its own words hold the header, which may be a token
        raise ConfigError(
            f"{what}: {_NO_HEADER}", hint="check HF_TOKEN and MODELSCOPE_API_TOKEN"
        ) from error
    except httpx.HTTPError as error:
        reason = reason_of(error)
        unreachable = Unreachable(
            f"{what}: {reason}",
            hint="is this host offline? Copy the file here and name it by its path instead,"
            " or set HTTPS_PROXY, or HF_ENDPOINT for a mirror of Hugging Face",
        )
        unreachable.reason = reason
        unreachable.timed_out = isinstance(error, httpx.TimeoutException)
        raise unreachable from error


@contextmanager
def _begun(stream: "AbstractContextManager[httpx.Response]") -> "Iterator[httpx.Response]":
    with ExitStack() as stack:
        with interrupts.waiting():
            answer = stack.enter_context(stream)
        yield answer


def pieces(answer: "httpx.Response") -> Iterator[bytes]:
    """Yield the body of an answer as it comes."""
    arriving = answer.iter_raw()
    while True:
        with interrupts.waiting():
            piece = next(arriving, None)
        if piece is None:
            return
        yield piece


def _pinned(address: str, number: str) -> tuple[str, dict[str, dict[str, str]]]:
    """Return an address by number, with the name for the server and for its certificate."""
    parts = urlsplit(address)
    host = f"[{number}]" if ":" in number else number
    port = f":{parts.port}" if parts.port else ""
    where = parts._replace(netloc=f"{host}{port}").geturl()
    named = parts.netloc.rpartition("@")[2]
    return where, {
        "headers": {"Host": named},
        "extensions": {"sni_hostname": parts.hostname or ""},
    }


def many_at_once(
    address: str,
    *,
    connections: int,
    headers: Mapping[str, str],
    connect_s: float = CONNECT_SECONDS,
    silence_s: float | None = SILENCE_SECONDS,
    direct: bool = False,
) -> "httpx.AsyncClient":
    """Make a client for many requests at once to one server, with the policy of ``request``.

    It follows no redirect. ``silence_s`` None: as long as its user waits. Raises ConfigError.
    """
    import httpx  # slow to import, and most commands ask no server

    asking = {"Accept-Encoding": "identity", **headers}
    with _environment_checked(f"cannot reach {urlsplit(address).hostname}"):
        return httpx.AsyncClient(
            base_url=address,
            headers=asking,
            timeout=httpx.Timeout(silence_s, connect=connect_s, pool=None),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            **_policy(address, asking, follow=False, direct=direct),
        )


def media_type(answer: "httpx.Response") -> str:
    """Return the type that an answer says it has: ``text/html``."""
    stated = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return stated if stated.isprintable() and stated else "no type"


def not_the_file(answer: "httpx.Response", address: str, what: str, sent: str) -> HostError:
    """Return the error for a whole answer that is not the file: asking again would not help."""
    return HostError(
        f"{without_login(address)} sent {sent} ({media_type(answer)}), not {what}",
        hint="does a proxy, a login page or a licence answer in its place? Open the address in a"
        " browser, or set HTTPS_PROXY or NO_PROXY",
    )


def without_login(address: str) -> str:
    """Leave a user and a password out of an address, for messages."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def read_body(answer: "httpx.Response", *, within_s: float, most_bytes: int) -> bytes:
    """Read a whole body, however slowly it comes.

    Raises Unreachable when it is not complete in time, or too long.
    """
    until, body = time.monotonic() + within_s, bytearray()
    for piece in pieces(answer):
        body += piece
        if len(body) > most_bytes:
            raise Unreachable(f"{answer.url.host} answers without end")
        if time.monotonic() > until:
            late = Unreachable(f"{answer.url.host} did not finish its answer in {within_s:g} s")
            late.timed_out = True
            raise late
    return bytes(body)


def _policy(
    address: str, headers: Mapping[str, str], *, follow: bool, direct: bool
) -> dict[str, Any]:
    """Return what every client shares: redirects, the environment, certificates, logins."""
    parts = urlsplit(address)
    plain = parts.scheme == "http"  # in small letters, however it was written
    has_login = "Authorization" in headers or "@" in parts.netloc
    return {
        "follow_redirects": follow,
        "trust_env": not direct,
        # Reading them takes 30 ms, and a meter over plain http is asked every second.
        "verify": False if plain and not follow else _certificates(),
        "auth": None if direct or has_login else _login(address),
    }


@contextmanager
def _environment_checked(what: str) -> Iterator[None]:
    import httpx

    try:
        yield
    except (httpx.InvalidURL, ValueError, OSError) as error:
        raise ConfigError(
            f"{what}: {error}",
            hint="check HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and REQUESTS_CA_BUNDLE",
        ) from error


def _certificates() -> "ssl.SSLContext":
    """Trust the well-known authorities, those of this system, and those that the user names."""
    import httpx

    context = httpx.create_ssl_context()
    context.load_default_certs()
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if bundle := os.environ.get(name):
            is_folder = Path(bundle).is_dir()
            context.load_verify_locations(**{"capath" if is_folder else "cafile": bundle})
    return context


def _login(address: str) -> tuple[str, str] | None:
    """Look the host up in ``~/.netrc``; as in curl, a file that cannot be read knows nobody."""
    import netrc

    with suppress(OSError, netrc.NetrcParseError):
        known = netrc.netrc(os.environ.get("NETRC") or None)
        if found := known.authenticators(urlsplit(address).hostname or ""):
            return found[0], found[2] or ""
    return None


def reason_of(error: "httpx.HTTPError") -> str:
    """Return the message of the operating system, or of httpx; neither knows the address."""
    import httpx

    if isinstance(error, httpx.LocalProtocolError):
        return _NO_HEADER  # httpx quotes it: it may be a token
    if isinstance(error, httpx.TimeoutException):
        return "timed out"
    inner: BaseException = error
    while inner.__cause__ or inner.__context__:
        inner = inner.__cause__ or inner.__context__  # type: ignore[assignment]
    if isinstance(inner, BaseExceptionGroup):  # one of each address that the name has
        inner = inner.exceptions[-1]
    if isinstance(inner, ConnectionError) and inner.errno:  # asyncio adds the address
        return os.strerror(inner.errno)
    return getattr(inner, "strerror", None) or str(error) or type(error).__name__
