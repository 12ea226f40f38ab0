"""Serial consoles of boards, as ``devices.yaml`` defines them."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from labctl.config.types import Argument
from labctl.config.yaml.document import StrictModel
from labctl.text_types import split_endpoint

_DEVICE_PATTERN = r"^(/dev/[!-~]{1,250}|(socket|rfc2217)://[!-~]{3,260})$"


def _device(text: str) -> str:
    if not re.fullmatch(_DEVICE_PATTERN.removesuffix("$"), text):
        raise ValueError(
            "must be /dev/NAME, socket://HOST:PORT or rfc2217://HOST:PORT, such as /dev/ttyUSB0"
        )
    if "://" in text:
        split_endpoint(text.partition("://")[2])
    return text


def _printable(command: tuple[str, ...]) -> tuple[str, ...]:
    if not all(word.isprintable() for word in command):
        raise ValueError("must have no control characters: a terminal obeys them")
    return command


ConsoleCommand = Annotated[
    tuple[Argument, ...], Field(min_length=1, max_length=64), AfterValidator(_printable)
]


class ConsoleLogin(StrictModel):
    """User who gets a shell on a console."""

    user: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
    """Name of the user."""
    password_env: Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]{0,99}$")] | None = None
    """Environment variable that holds the password."""


class Console(StrictModel):
    """A board's serial console."""

    device: Annotated[
        str,
        AfterValidator(_device),
        WithJsonSchema({"type": "string", "pattern": _DEVICE_PATTERN}),
    ]
    """Serial port of this host, or a terminal server: `socket://HOST:PORT` (bytes as they come) or
    `rfc2217://HOST:PORT`."""
    baud: Annotated[int, Field(ge=50, le=8_000_000)] = 1_500_000
    """Speed of the port, in bit/s."""
    login: ConsoleLogin | None = None
    """User for `switches.console`, if the console asks for one."""
