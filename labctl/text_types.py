"""Names and other kinds of text that a user writes, each with its check and its JSON schema.

Models of pydantic take the kinds as types of their fields, but nothing here imports pydantic: what
is made without it (a transport that the command line names) does not wait for it.
"""

import os
import re
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema, core_schema

#: What a board, build host, lab, target, model or recipe may be called: safe as a file name,
#: as an option's value and as a word of a command.
NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,62}$"
LONGEST_NAME = 63
NAME_RULE = "a-z, 0-9, '-' and '_' (at most 63), beginning with a letter or digit"

#: Longest text that a user writes about a board, a job or a run: one line of a list.
LONGEST_LINE = 500
#: Shortest and longest time (s) for which a board is held, reserved or used by one run.
SHORTEST_USE_SECONDS, LONGEST_USE_SECONDS = 60.0, 30 * 86_400.0

#: The newest run that passed: what a gate of a recipe may name as it names a baseline.
LAST_GOOD = "last-good"


#: Variables with folders, of which an empty or relative one means the present folder.
_FOLDER_LISTS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")


def forget_relative(environment: MutableMapping[str, str]) -> None:
    """Remove the relative and the empty folders from an environment's lists of folders."""
    for name in _FOLDER_LISTS:
        given = environment.get(name)
        if given is None:
            continue
        kept = os.pathsep.join(one for one in given.split(os.pathsep) if one.startswith("/"))
        if not kept:
            del environment[name]
        elif kept != given:
            environment[name] = kept


def is_name(text: str) -> bool:
    """Return True if ``text`` may name something in a lab."""
    return re.fullmatch(NAME_PATTERN, text) is not None


def plain_name(text: str) -> str:
    """Make a name from a text such as an address; empty if no character is allowed in a name."""
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_")[:LONGEST_NAME].rstrip("-_")


#: The key of a validation's context that holds the lab's folder.
LAB_ROOT = "lab_root"


class Checked:
    """A check for pydantic to make, in an ``Annotated`` text.

    ``check`` gives the text as it is kept, or raises ValueError with words for people. ``schema``
    is what a JSON schema says of it.
    """

    def __init__(self, check: Callable[[str], str], **schema: object):
        self._check = check
        self._schema = schema

    def __get_pydantic_core_schema__(
        self, source: type[str], handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.with_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> dict[str, Any]:
        return handler(schema) | self._schema

    def _checked(self, text: str, info: "core_schema.ValidationInfo") -> str:
        del info
        return self._check(text)


class InLab(Checked):
    """A path of this host that begins at the lab's folder, where a lab is read."""

    def __init__(self) -> None:
        super().__init__(lambda path: path)

    def _checked(self, text: str, info: "core_schema.ValidationInfo") -> str:
        root = (info.context or {}).get(LAB_ROOT)
        if root is None:
            return text
        from pathlib import Path

        return str(Path(root) / text)


_WORD_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}$"


def _word(text: str) -> str:
    if not re.fullmatch(_WORD_PATTERN.removesuffix("$"), text):
        raise ValueError("must be one word of letters, digits, '_', '.', '+' and '-'")
    return text


#: A word that is safe in a command: a user, a package, a version.
Word = Annotated[str, Checked(_word, pattern=_WORD_PATTERN)]

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
    import ipaddress

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
    str, Checked(_endpoint, pattern=rf"^{_HOST}:{_PORT}$", examples=["192.168.1.20:5555"])
]

_OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4_PORT_PATTERN = rf"({_OCTET}\.){{3}}{_OCTET}:{_PORT}"
#: Characters of a board's key on an hdc server: MAX_CONNECTKEY_SIZE of hdc. The official hdc 3.1.0e
#: and 3.2.0c run commands on a key of 32, and refuse 33. On USB a DAYU200 has 32 hex digits.
MAX_HDC_KEY = 32
_HDC_KEY_PATTERN = rf"^(?!any$)([!-9;-~]{{1,{MAX_HDC_KEY}}}|{_IPV4_PORT_PATTERN})$"


def hdc_key(text: str) -> str:
    """Return ``text`` if an hdc server can have a board of that key. Raises ValueError."""
    if text == "any":
        raise ValueError("'any' is not a board's key: to hdc it means any connected board")
    if not re.fullmatch(rf"[!-~]{{1,{MAX_HDC_KEY}}}", text):
        raise ValueError(
            f"must be a key from `hdc list targets`: 1 to {MAX_HDC_KEY} characters, no blanks"
        )
    if ":" in text:
        if not re.fullmatch(_IPV4_PORT_PATTERN, text):
            raise ValueError("must be IPv4:PORT such as 192.168.1.20:5555: hdc looks up no names")
        split_endpoint(text)
    return text


#: Name of a board on an hdc server.
HdcKey = Annotated[
    str,
    Checked(
        hdc_key,
        pattern=_HDC_KEY_PATTERN,
        examples=["7001005458323933328a01ce1c2f3900", "192.168.1.20:5555"],
    ),
]


_ADB_SERIAL_PATTERN = r"^[^\x00-\x20\x7f]([^\x00-\x1f\x7f]{0,253}[^\x00-\x20\x7f])?$"


def _adb_serial(text: str) -> str:
    if not re.fullmatch(_ADB_SERIAL_PATTERN, text):
        raise ValueError("must be a serial as `adb devices -l` shows it")
    return text


#: Name of a phone on an adb server.
AdbSerial = Annotated[
    str,
    Checked(
        _adb_serial,
        pattern=_ADB_SERIAL_PATTERN,
        examples=["R5CT30XXXXX", "192.168.1.30:5555", "usb:1-1"],
    ),
]


def _ssh_address(text: str) -> str:
    if not re.fullmatch(_HOST, text):
        split_endpoint(text)
    return text


#: ``host`` or ``host:port``.
SshAddress = Annotated[
    str,
    Checked(_ssh_address, pattern=rf"^{_HOST}(:{_PORT})?$", examples=["build.example.org"]),
]


def _host_name(text: str) -> str:
    import ipaddress

    try:
        if ":" in text:
            ipaddress.IPv6Address(text)
        valid = re.fullmatch(_HOST_NAME, text) is not None
    except ValueError:
        valid = False
    if not valid:
        raise ValueError("must be a host's name or address, without a port")
    return text


_HOST_NAME = (
    r"[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*|[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?"
)
#: A host's name or address; IPv6 without brackets.
HostName = Annotated[
    str,
    Checked(_host_name, pattern=f"^({_HOST_NAME})$", examples=["192.168.1.20", "board.local"]),
]


def split_hop(text: str) -> tuple[str | None, str, int | None]:
    """User, host and port of ``[user@]host[:port]``; raises ValueError for people."""
    user, at, address = text.rpartition("@")
    try:
        _ssh_address(address)
        if at:
            _word(user)
    except ValueError:
        raise ValueError("must be [USER@]HOST[:PORT] such as me@gate.example.org:2222") from None
    if re.fullmatch(_HOST, address):
        return user or None, address.strip("[]"), None
    host, port = split_endpoint(address)
    return user or None, host, port


def _hop(text: str) -> str:
    split_hop(text)
    return text


#: ``[user@]host[:port]``; ``split_hop`` takes it apart.
SshHop = Annotated[
    str,
    Checked(
        _hop,
        pattern=rf"^([A-Za-z0-9_][A-Za-z0-9_.+-]{{0,127}}@)?{_HOST}(:{_PORT})?$",
        examples=["me@gate.example.org:2222"],
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
    str,
    Checked(_host_path, pattern=r"^[^~\u0000][^\u0000]*$", examples=["models/model.gguf"]),
]
