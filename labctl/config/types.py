"""Small types of users' files: names, lines, hashes, paths, durations, sizes; and base models.

A duration has a unit (``90s``, ``10m``, ``1h30m``, ``250ms``); a plain number is refused, since it
may mean seconds or milliseconds. It is stored as a float in seconds, the unit of every time-out in
labctl. A size has a unit of powers of 1000 (``2GB``) or 1024 (``512MiB``), or is a plain number of
bytes; it is stored as an int in bytes.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticSerializationError

from labctl.text_types import LONGEST_USE_SECONDS, NAME_PATTERN, NAME_RULE, is_name


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"must be {NAME_RULE}")
    return text


def _text_schema(pattern: str, *examples: str) -> WithJsonSchema:
    schema: dict[str, Any] = {"type": "string", "pattern": pattern}
    return WithJsonSchema(schema | {"examples": list(examples)} if examples else schema)


#: Name of a board, host, lab, target, recipe, model or tag.
Name = Annotated[str, AfterValidator(_name), _text_schema(NAME_PATTERN)]


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


def _board_path(text: str) -> str:
    if not text.startswith("/") or text.strip("/") == "":
        raise ValueError("must be an absolute path below / on the board")
    if "%" in text:
        # hdcd passes a failing path to printf as the format.
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


_DATABASE_PATTERN = (
    r"^postgres(ql)?://([^@/?#\s]*@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]*)(:[0-9]{1,5})?"
    r"/[^/?#\s]+(\?[^#\s]*)?$"
)


def check_database_url(text: object) -> str:
    """Return the URL of a PostgreSQL database. Raises ValueError without any part of it."""
    with suppress(ValueError):  # brackets without an IPv6 address, a port above 65535
        if isinstance(text, str) and re.fullmatch(_DATABASE_PATTERN.removesuffix("$"), text):
            _ = urlsplit(text).port
            return text
    raise ValueError(
        "has to be a URL such as postgresql://user@host:5432/database; '@', ':', '/' and '#'"
        " of a password are written %40, %3A, %2F and %23"
    )


#: URL of a PostgreSQL database; no message shows it, since it may hold a password. Checked first,
#: since the message of another check could show a number.
DatabaseUrl = Annotated[
    str,
    BeforeValidator(check_database_url),
    _text_schema(_DATABASE_PATTERN, "postgresql://labctl@db.example.org/lab"),
]

_STORE_PATTERN = r"^((s3|https?)://[A-Za-z0-9._-]+(:[0-9]{1,5})?(/[^@?#\s]*)?|[^:@?#\s]+)$"


def _store_url(text: str) -> str:
    if not re.fullmatch(_STORE_PATTERN.removesuffix("$"), text):
        raise ValueError(
            "has to be a folder, s3://BUCKET/PREFIX or https://HOST/PATH, without a user or a key:"
            " these come from the environment"
        )
    return text


#: A folder, or the URL of a store of objects; does not contain a secret.
StoreUrl = Annotated[
    str, AfterValidator(_store_url), _text_schema(_STORE_PATTERN, "s3://lab-files/labctl")
]

_NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
_DURATION = re.compile(
    rf"(?:({_NUMBER})d)?(?:({_NUMBER})h)?(?:({_NUMBER})m(?!s))?(?:({_NUMBER})s)?(?:({_NUMBER})ms)?"
)
#: Ten years: a date so far ahead can still be shown.
_MOST_DAYS = 3650
_UNITS_IN_SECONDS = tuple(map(Decimal, ("86400", "3600", "60", "1", "0.001")))

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)")
_UNITS_IN_BYTES = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_MOST_BYTES = (1 << 63) - 1


def parse_duration(text: object, *, most_days: int = _MOST_DAYS) -> float:
    """Return the seconds of ``1h30m``. Raises ValueError with a sentence for people."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        raise ValueError(  # noqa: TRY004 - pydantic converts only ValueError
            f"a duration needs a unit; write {text:g}s for seconds"
        )
    match = _DURATION.fullmatch(text) if isinstance(text, str) and text else None
    if match is None:
        raise ValueError("must be a duration such as 90s, 10m or 1h30m")
    seconds = sum(
        (
            Decimal(number) * unit
            for number, unit in zip(match.groups(), _UNITS_IN_SECONDS, strict=True)
            if number
        ),
        Decimal(0),
    )
    if not seconds:
        raise ValueError("a duration must be longer than 0")
    if seconds > most_days * 86_400:
        raise ValueError(f"a duration must be at most {most_days} days")
    return float(seconds)


#: Seconds for which a board is used, held or reserved; as :func:`parse_duration`.
parse_use_time = partial(parse_duration, most_days=round(LONGEST_USE_SECONDS / 86_400))


def format_duration(seconds: float) -> str:
    """Return the shortest text that ``parse_duration`` reads as exactly ``seconds``."""
    minutes, rest = divmod(Decimal(repr(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours:f}h" if hours else "", f"{minutes:f}m" if minutes else ""]
    if rest or not any(parts):
        text = f"{rest:f}"
        parts.append(f"{text.rstrip('0').rstrip('.') if '.' in text else text}s")
    return "".join(parts)


def parse_size(text: object) -> int:
    """Return the bytes of ``2GB`` or a number. Raises ValueError with a sentence for people."""
    if isinstance(text, int) and not isinstance(text, bool):
        size = Decimal(text)
    else:
        match = _SIZE.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise ValueError("must be a size such as 512MiB, 2GB or a whole number of bytes")
        size = Decimal(match[1]) * _UNITS_IN_BYTES[match[2]]
    if size < 0 or size != int(size) or size > _MOST_BYTES:
        raise ValueError("a size must be a whole number of bytes, 0 or more")
    return int(size)


_DURATION_AS_JSON = (
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": f"^(?=[0-9]){_DURATION.pattern}$",
            "examples": ["90s", "10m", "1h30m"],
        }
    ),
)
#: Seconds, above 0.
Duration = Annotated[float, BeforeValidator(parse_duration), *_DURATION_AS_JSON]
#: Longest time (s) of a run.
RunTime = Annotated[float, BeforeValidator(parse_use_time), *_DURATION_AS_JSON]

_NEVER = "none"
#: Intervals that the agent on the board accepts.
_LEAST_INTERVAL, _MOST_INTERVAL = 0.01, 3600.0


def parse_interval(text: object) -> float:
    """Return the seconds; 0 for ``none``. Raises ValueError with a sentence for people."""
    if text == _NEVER:
        return 0.0
    seconds = parse_duration(text)
    if not _LEAST_INTERVAL <= seconds <= _MOST_INTERVAL:
        raise ValueError("must be none, or from 10ms to 1h")
    return seconds


#: Seconds; 0: never.
Interval = Annotated[
    float,
    BeforeValidator(parse_interval),
    PlainSerializer(
        lambda seconds: format_duration(seconds) if seconds else _NEVER,
        return_type=str,
        when_used="json",
    ),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": _NEVER},
                {"type": "string", "pattern": f"^(?=[0-9]){_DURATION.pattern}$"},
            ],
            "examples": ["1s", _NEVER],
        }
    ),
]

#: Bytes, 0 or more.
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": f"^{_SIZE.pattern}$"},
            ],
            "examples": ["512MiB", "2GB"],
        }
    ),
]

_PERCENT = re.compile(rf"({_NUMBER}) ?%")


def parse_share(text: object) -> float:
    """Return the share in ``3%`` or ``0.03``. Raises ValueError with a sentence for people."""
    match = _PERCENT.fullmatch(text) if isinstance(text, str) else None
    if match is not None:
        share = float(Decimal(match[1]) / 100)
    elif isinstance(text, int | float) and not isinstance(text, bool):
        share = float(text)
    else:
        raise ValueError("must be a share such as 3% or 0.03")
    if not 0 < share < 1:
        raise ValueError("must be above 0 and below 100%; write 3% or 0.03")
    return share


#: Above 0 and below 1.
Share = Annotated[
    float,
    BeforeValidator(parse_share),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
                {"type": "string", "pattern": f"^{_PERCENT.pattern}$"},
            ],
            "examples": ["3%", 0.03],
        }
    ),
]


class InterruptibleModel(BaseModel):
    """A model whose serialization Ctrl-C can interrupt in a script.

    pydantic wraps every exception of a function that it calls there into its own error; only the
    text names the exception. The program ``labctl`` does not need this: there no signal raises.
    """

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return a dict, as pydantic does. Raises KeyboardInterrupt for Ctrl-C."""
        with _interrupts():
            return super().model_dump(**options)

    def model_dump_json(self, **options: Any) -> str:
        """Return JSON, as pydantic does. Raises KeyboardInterrupt for Ctrl-C."""
        with _interrupts():
            return super().model_dump_json(**options)


@contextmanager
def _interrupts() -> Iterator[None]:
    try:
        yield
    except PydanticSerializationError as error:
        if re.search(r"Error calling function `[^`]*`: KeyboardInterrupt\b", str(error)):
            raise KeyboardInterrupt from error
        raise
