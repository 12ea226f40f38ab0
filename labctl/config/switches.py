"""Switches of ``devices.yaml`` that recover a failing board."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from labctl.config.console import ConsoleCommand
from labctl.config.power import LocalAddress
from labctl.config.types import Argument, Duration, Line
from labctl.config.yaml.document import StrictModel

_LONGEST_SECONDS = 7200.0
_VARIABLE_PATTERN = r"^[A-Z_][A-Z0-9_]{0,99}$"


def _time(seconds: float) -> float:
    if seconds > _LONGEST_SECONDS:
        raise ValueError("must be at most 2h")
    return seconds


def _variable(text: str) -> str:
    if not re.fullmatch(_VARIABLE_PATTERN, text):
        raise ValueError(  # messages add the value to "must be"
            "has to be the name of an environment variable, such as PDU_AUTHORIZATION"
        )
    return text


_Time = Annotated[Duration, AfterValidator(_time)]
_Variable = Annotated[
    str,
    AfterValidator(_variable),
    WithJsonSchema({"type": "string", "pattern": _VARIABLE_PATTERN}),
]


class CommandAction(StrictModel):
    """A program of this host that acts on the board; exit status 0 is success."""

    kind: Literal["command"]
    """Kind of the action."""
    command: Annotated[tuple[Argument, ...], Field(min_length=1)]
    """A program of this host and its arguments. No shell reads it; it is run in the lab's
    folder."""
    timeout: _Time = Field(60.0, json_schema_extra={"default": "1m"})
    """Longest time that it takes; then it is ended."""


class HttpAction(StrictModel):
    """A request to a device in this network; a status from 200 to 299 is success."""

    kind: Literal["http"]
    """Kind of the action."""
    address: LocalAddress
    """Address of the request; its host is an IP address in this network. Proxies are not used,
    redirections not followed."""
    method: Literal["GET", "POST", "PUT"] = "GET"
    """Method of the request."""
    body: Line | None = None
    """Body of the request, sent as JSON."""
    authorization_env: _Variable | None = None
    """Environment variable that holds the value of the header Authorization."""
    timeout: _Time = Field(60.0, json_schema_extra={"default": "1m"})
    """Longest time until it is answered."""


Action = Annotated[CommandAction | HttpAction, Field(discriminator="kind")]


class Switch(StrictModel):
    """Something that is switched off for a while, and on again."""

    off: Action
    """Action that switches it off."""
    on: Action
    """Action that switches it on; it is done even if `off` failed."""
    pause: _Time = Field(5.0, json_schema_extra={"default": "5s"})
    """Time between off and on, in which the board loses its charge."""


class Switches(StrictModel):
    """Means to recover a failing board, from the mildest to the strongest."""

    restart_hdc: bool = False
    """True if the hdc server through which the board is reached may be restarted; all its boards
    lose their links for a moment."""
    console: Annotated[tuple[ConsoleCommand, ...], Field(max_length=16)] = ()
    """Commands for a shell on the board's console, such as `[[begetctl, stop_service, hdcd]]`;
    sent, quoted, only once a shell there is proven."""
    usb: Switch | None = None
    """Power of the board's USB port."""
    reboot: Action | Literal["board"] | None = None
    """Restart: `board` asks the board itself, over its link; an action presses a button."""
    power: Switch | None = None
    """Power supply of the board."""
    reflash: Action | None = None
    """Action that writes the board's system anew. What is in the workdir may be lost."""
    wait: _Time = Field(120.0, json_schema_extra={"default": "2m"})
    """Longest wait for the board's answer after each of these; before the first, at most 10 s."""
