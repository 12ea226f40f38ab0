"""Create the client for an address."""

import os
import re
from typing import Literal
from urllib.parse import urlsplit

from labctl.errors import ConfigError
from labctl.evaluation.endpoints.base import EndpointClient
from labctl.evaluation.endpoints.connection import Connection
from labctl.evaluation.endpoints.monitor import ServerMonitor

Api = Literal["openai-chat", "openai-completions", "llama-server"]
#: Default number of concurrent requests.
CONNECTIONS = 64
_PASTED = re.compile(r"(/(chat/completions|completions|completion|models))?/*$")
_VERSION = re.compile(r"/v[0-9]+$")


def open_client(
    *,
    api: Api,
    address: str,
    key_env: str | None = None,
    served_name: str | None = None,
    connections: int = CONNECTIONS,
    silence_s: float | None = None,
) -> EndpointClient:
    """Return a client of a server; ask nothing yet. Use it in one event loop, then ``aclose``.

    ``address``: ``http://host:8000``, also followed by ``/v1`` or the whole path of a request.
    ``key_env``: the environment variable that holds the key; its value never appears in a record or
    message, except a short one that an answer repeats (:class:`Connection`). ``served_name``: the
    model's name in the API; None: the only one that is served. ``connections``: concurrent
    requests; the others wait, before their times start. ``silence_s``: the longest silence in an
    answer; None: the time-out of the whole answer. Raises ConfigError.
    """
    root, version = _split(address)
    connection = Connection(root, key=_key(key_env), connections=connections, silence_s=silence_s)
    if api == "llama-server":
        from labctl.evaluation.endpoints.llama_server import LlamaServerClient

        return LlamaServerClient(connection, served_name)
    from labctl.evaluation.endpoints.openai import OpenAiChatClient, OpenAiCompletionsClient

    kind = OpenAiChatClient if api == "openai-chat" else OpenAiCompletionsClient
    return kind(connection, served_name, version=version or "/v1")


def open_monitor(*, address: str, key_env: str | None = None) -> ServerMonitor:
    """Return a monitor of a server's health and counters; arguments as for :func:`open_client`."""
    root, _ = _split(address)
    return ServerMonitor(Connection(root, key=_key(key_env), connections=2))


def _split(address: str) -> tuple[str, str]:
    """Split an address into the server's root and the API version after it."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme.lower() in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            "the address of an endpoint must be http://HOST:PORT or https://HOST",
            hint="such as http://127.0.0.1:8080",
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"the address of {parts.hostname} must not contain a login or a query",
            hint="put the key into an environment variable and name it: key_env",
        )
    path = _PASTED.sub("", parts.path)
    found = _VERSION.search(path)
    root = parts._replace(path=path[: found.start()] if found else path).geturl()
    return root, found.group() if found else ""


def _key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name)
    if not key:
        raise ConfigError(
            f"the environment variable {name}, which holds the endpoint's key, is not set",
            hint=f"export {name}=…",
        )
    if not re.fullmatch(r"[!-~]+", key):
        raise ConfigError(
            f"the key in {name} contains characters that an HTTP header does not allow"
        )
    return key
