"""Serial consoles of boards, as ``devices.yaml`` defines them."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

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
