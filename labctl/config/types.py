"""Small types that several documents share."""

import ipaddress
import re
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from labctl.config.names import NAME_PATTERN, NAME_RULE, is_name


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"must be {NAME_RULE}")
    return text


def _text_schema(pattern: str, *examples: str) -> WithJsonSchema:
    schema: dict[str, Any] = {"type": "string", "pattern": pattern}
    return WithJsonSchema(schema | {"examples": list(examples)} if examples else schema)


#: A board, host, lab, target, recipe, model or tag.
Name = Annotated[str, AfterValidator(_name), _text_schema(NAME_PATTERN)]

_WORD_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}$"


def _word(text: str) -> str:
    if not re.fullmatch(_WORD_PATTERN.removesuffix("$"), text):
        raise ValueError("must be one word of letters, digits, '_', '.', '+' and '-'")
    return text


#: A word that is safe in a command: a user, a package, a version.
Word = Annotated[str, AfterValidator(_word), _text_schema(_WORD_PATTERN)]


def _line(text: str) -> str:
    if not text.strip():
        raise ValueError("must be text, not empty")
    if any(ord(character) < 32 for character in text):
        raise ValueError("must be one line without control characters")
    return text


#: One line of text.
Line = Annotated[
    str,
    AfterValidator(_line),
    _text_schema(r"^[^\u0000-\u001f]*[^\s\u0000-\u001f][^\u0000-\u001f]*$"),
]


def _argument(text: str) -> str:
    if "\0" in text:
        raise ValueError("has a NUL character in it, which no program can be given")
    return text


#: One word for a program.
Argument = Annotated[str, AfterValidator(_argument)]

_SHA256_PATTERN = r"^[0-9a-fA-F]{64}$"


def _sha256(text: str) -> str:
    if not re.fullmatch(_SHA256_PATTERN.removesuffix("$"), text):
        raise ValueError("must be a SHA-256: 64 hexadecimal digits")
    return text.lower()


Sha256 = Annotated[str, AfterValidator(_sha256), _text_schema(_SHA256_PATTERN)]

_HOST = r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?)"
_PORT = r"([0-9]{1,5})"


def split_endpoint(text: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[ipv6]:port``; raises ValueError for people."""
    match = re.fullmatch(f"{_HOST}:{_PORT}", text)
    host, _, port = text.rpartition(":")
    if match is None or not 1 <= int(port) <= 65535:
        raise ValueError("must be HOST:PORT such as 192.168.1.20:5555")
    return host.strip("[]"), int(port)


def is_on_loopback(endpoint: str) -> bool:
    """Return whether a valid ``HOST:PORT`` leads to this host: to a virtual board, or a tunnel."""
    host, _ = split_endpoint(endpoint)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _endpoint(text: str) -> str:
    split_endpoint(text)
    return text


#: ``host:port``; ``split_endpoint`` takes it apart.
Endpoint = Annotated[
    str, AfterValidator(_endpoint), _text_schema(rf"^{_HOST}:{_PORT}$", "192.168.1.20:5555")
]


_OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4_PORT_PATTERN = rf"({_OCTET}\.){{3}}{_OCTET}:{_PORT}"
_HDC_KEY_PATTERN = rf"^(?!any$)([!-9;-~]{{1,31}}|{_IPV4_PORT_PATTERN})$"


def _hdc_key(text: str) -> str:
    if text == "any":
        raise ValueError("'any' is no board's key: to hdc it means whatever board is connected")
    if not re.fullmatch(r"[!-~]{1,31}", text):
        raise ValueError("must be a key from `hdc list targets`: 1 to 31 characters, no blanks")
    if ":" in text:
        if not re.fullmatch(_IPV4_PORT_PATTERN, text):
            raise ValueError("must be IPv4:PORT such as 192.168.1.20:5555: hdc looks up no names")
        split_endpoint(text)
    return text


#: What an hdc server calls a board. It carries 31 characters.
HdcKey = Annotated[
    str,
    AfterValidator(_hdc_key),
    _text_schema(_HDC_KEY_PATTERN, "7001005458323933328a01ce1", "192.168.1.20:5555"),
]


def _ssh_address(text: str) -> str:
    if not re.fullmatch(_HOST, text):
        split_endpoint(text)
    return text


#: ``host`` or ``host:port``.
SshAddress = Annotated[
    str, AfterValidator(_ssh_address), _text_schema(rf"^{_HOST}(:{_PORT})?$", "build.example.org")
]


def _board_path(text: str) -> str:
    if not text.startswith("/") or text.strip("/") == "":
        raise ValueError("must be an absolute path below / on the board")
    if "%" in text:
        # hdcd hands a failing path to printf as its format.
        raise ValueError("must not contain '%': a path with one can crash the board's hdc daemon")
    if any(part in (".", "..") for part in text.split("/")):
        raise ValueError("must not contain the steps '.' and '..'")
    if len(text) > 200 or any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise ValueError("must be at most 200 characters without control characters")
    return str(PurePosixPath("/", text.strip("/")))


#: An absolute path on a board.
BoardPath = Annotated[
    str,
    AfterValidator(_board_path),
    _text_schema(
        r"^(?!(.*/)?\.{1,2}(/|$))(?!/+$)[^%\u0000-\u001f\u007f]{1,200}$",
        "/data/local/tmp/labctl",
    ),
]


def _host_path(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("must be a path")
    if text.startswith("~"):
        raise ValueError("'~' is not replaced: write the path out")
    return text


#: A path on this host; a relative one begins at the lab's folder.
HostPath = Annotated[
    str, AfterValidator(_host_path), _text_schema(r"^[^~\u0000][^\u0000]*$", "models/model.gguf")
]
