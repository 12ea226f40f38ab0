"""Power meters of boards, as ``devices.yaml`` defines them."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from labctl.config.types import Argument, Duration, Line
from labctl.config.yaml.document import StrictModel
from labctl.text_types import LAB_ROOT

#: Units of a meter: watts or joules, and the conversion factor.
WATTS = {"W": 1.0, "mW": 0.001}
JOULES = {"J": 1.0, "Wh": 3600.0, "kWh": 3_600_000.0}
Unit = Literal["W", "mW", "J", "Wh", "kWh"]

_ADDRESS_PATTERN = (
    r"^http://(localhost|[0-9]{1,3}(\.[0-9]{1,3}){3}|\[[0-9A-Fa-f:]{2,45}\])(:[0-9]{1,5})?"
    r"(/[!-~]{0,1000})?$"
)


def _address(text: str) -> str:
    if not re.fullmatch(_ADDRESS_PATTERN.removesuffix("$"), text):
        raise ValueError("must be an address such as http://192.168.1.30/status, by number")
    parts = urlsplit(text)
    host = parts.hostname or ""
    if parts.port == 0:
        raise ValueError("has no such port")
    if host != "localhost":
        number = ipaddress.ip_address(host)
        if not number.is_private or number.is_unspecified:
            raise ValueError("must be in this network: a private or loopback address")
    return text


def _polling(seconds: float) -> float:
    if not 0.1 <= seconds <= 60:
        raise ValueError("must be from 100ms to 60s")
    return seconds


_Polling = Annotated[Duration, AfterValidator(_polling)]

#: Address of a device in this network, with an IP address as host, so no request leaves it.
LocalAddress = Annotated[
    str,
    AfterValidator(_address),
    WithJsonSchema({"type": "string", "pattern": _ADDRESS_PATTERN}),
]


class _Meter(StrictModel):
    """Common keys of all meters."""

    unit: Unit
    """Unit of the number: `W` or `mW` of power, or `J`, `Wh` or `kWh` of a counter of energy that
    only grows."""
    interval: _Polling = Field(1.0, json_schema_extra={"default": "1s"})
    """Interval between two readings while a program runs, from 100ms to 60s."""
    timeout: _Polling = Field(2.0, json_schema_extra={"default": "2s"})
    """Longest time of one answer."""


class CommandMeter(_Meter):
    """A program of this host that prints its measurement."""

    kind: Literal["command"]
    """Kind of the meter."""
    command: Annotated[tuple[Argument, ...], Field(min_length=1)]
    """A program of this host and its arguments; it prints one number and nothing else. No shell
    reads it; it is run in the lab's folder."""

    _folder: Path | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _in_the_lab(self, info: ValidationInfo) -> Self:
        root = (info.context or {}).get(LAB_ROOT)
        self._folder = None if root is None else Path(root)
        return self

    @property
    def folder(self) -> Path | None:
        """Working folder: the lab's folder, if known."""
        return self._folder

    @property
    def location(self) -> str:
        """Name of the meter in records."""
        return f"command {Path(self.command[0]).name}"


class HttpMeter(_Meter):
    """A device that answers over http with JSON, for example a smart plug."""

    kind: Literal["http"]
    """Kind of the meter."""
    address: LocalAddress
    """Address of the GET request; its host is an IP address in this network. Proxies are not used,
    redirections not followed."""
    field: Line
    """Path of the number in the JSON of its answer: `apower`, `StatusSNS.ENERGY.Power`,
    `meters.0.power`."""

    @property
    def location(self) -> str:
        """Name of the meter in records; without a query, which may contain a password."""
        return f"http {urlsplit(self.address).netloc}"


Meter = Annotated[CommandMeter | HttpMeter, Field(discriminator="kind")]
