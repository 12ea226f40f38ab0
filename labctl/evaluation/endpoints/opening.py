"""From an address to a client."""

import os
import re
from typing import Literal
from urllib.parse import urlsplit

from labctl.errors import ConfigError
from labctl.evaluation.endpoints.base import EndpointClient
from labctl.evaluation.endpoints.connection import Connection

Api = Literal["openai-chat", "openai-completions", "tgi", "llama-server"]
#: Requests under way at once, unless a recipe says otherwise.
CONNECTIONS = 64
_PASTED = re.compile(
    r"(/(chat/completions|completions|completion|generate_stream|generate|models))?/*$"
)
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
    """Return a client of a server; nothing is asked yet. Use it in one event loop, then ``aclose``.

    ``address``: ``http://host:8000``, also with ``/v1`` or the whole path of a request behind it.
    ``key_env``: the environment variable that holds the key; its value is in no record or message,
    but for a short one that an answer repeats (:class:`Connection`).
    ``served_name``: the model's name in the API; None: the only one that is served.
    ``connections``: requests at once; the others wait, and their times do not run.
    ``silence_s``: the longest silence in an answer; None: as long as the whole answer may take.
    Raises ConfigError.
    """
    root, version = _split(address)
    connection = Connection(root, key=_key(key_env), connections=connections, silence_s=silence_s)
    if api == "llama-server":
        from labctl.evaluation.endpoints.llama_server import LlamaServerClient

        return LlamaServerClient(connection, served_name)
    if api == "tgi":
        from labctl.evaluation.endpoints.tgi import TgiClient

        return TgiClient(connection)
    from labctl.evaluation.endpoints.openai import OpenAiChatClient, OpenAiCompletionsClient

    kind = OpenAiChatClient if api == "openai-chat" else OpenAiCompletionsClient
    return kind(connection, served_name, version=version or "/v1")


def _split(address: str) -> tuple[str, str]:
    """Return the server's root, and the version of an API that follows it."""
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
            f"the address of {parts.hostname} must hold no login and no query",
            hint="name the variable that holds the key: key_env",
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
        raise ConfigError(f"the key in {name} holds what a header of HTTP does not allow")
    return key
