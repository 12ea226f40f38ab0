"""Which llama-quantize to run on this host."""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from labctl.build import find_artifact
from labctl.config.target import load_target
from labctl.errors import ConfigError

PRODUCT = "llama.cpp"
TOOL = "llama-quantize"


@dataclass(frozen=True)
class Quantizer:
    """A llama-quantize that runs here."""

    argv: tuple[str | PathLike[str], ...]
    #: What its output depends on: the source it was built from.
    commit: str


FindQuantizer = Callable[[], Quantizer]


def find_quantizer(target: str, lab_root: Path | None) -> Quantizer:
    """A llama-quantize for this host's CPU, else the target's behind its emulator.

    Nothing is built. Raises ConfigError when there is neither.
    """
    host = f"host-{platform.machine()}"
    for name in dict.fromkeys((host, target)):
        try:
            artifact = find_artifact(name, PRODUCT)
            tool = artifact.tool(TOOL)
            emulator = load_target(name, lab_root).emulator
        except ConfigError:
            continue
        if name == host:
            return Quantizer((tool,), artifact.manifest.source.commit)
        if emulator:
            return Quantizer((*emulator, tool), artifact.manifest.source.commit)
    raise ConfigError(
        f"no {TOOL} that runs on this host",
        hint=f"labctl build --target {target} --tools {TOOL}",
    )
