"""Secrets that devices.yaml names but never contains: environment variables or private files."""

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from labctl.errors import ConfigError
from labctl.files import host_reads

_PATTERN = r"^(env:[A-Za-z_][A-Za-z0-9_]{0,127}|file:[^~\u0000-\u001f][^\u0000-\u001f]{0,1000})$"
_MOST_BYTES = 4096


def _secret(text: object) -> str:
    if not isinstance(text, str) or not re.fullmatch(_PATTERN.removesuffix("$"), text):
        # Messages add the value to "must be".
        raise ValueError(
            "has to be env:VARIABLE or file:PATH: the secret itself is never in devices.yaml"
        )
    return text


#: Place of a secret: ``env:VARIABLE``, or ``file:PATH`` below the lab's folder. Checked first,
#: since the message of another check could show a secret that is a number.
SecretPlace = Annotated[
    str,
    BeforeValidator(_secret),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": _PATTERN,
            "examples": ["env:LABCTL_CHAT", "file:secrets/chat"],
        }
    ),
]


def read_secret(place: str, root: Path) -> str:
    """Return the secret at a place, without blanks around it; ``root`` is the lab's folder.

    Raises ConfigError if there is no secret, or if other users may read the file; HostError.
    """
    kind, _, name = place.partition(":")
    if kind == "env":
        secret = os.environ.get(name, "").strip()
        if not secret:
            raise ConfigError(
                f"the environment variable {name} is not set", hint=f"export {name}=..."
            )
        return secret
    path = root / name
    with host_reads(path):
        if not path.is_file():
            raise ConfigError(f"no file {path}", hint="write the secret into it, mode 0600")
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise ConfigError(f"others may read {path}", hint=f"chmod 600 {path}")
            data = file.read(_MOST_BYTES + 1)
    try:
        secret = data.decode().strip()
    except UnicodeDecodeError:
        secret = ""
    if not secret or len(data) > _MOST_BYTES:
        raise ConfigError(f"{path} must hold one secret of at most {_MOST_BYTES} bytes")
    return secret
