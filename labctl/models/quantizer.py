"""Choice of the llama-quantize to run on this host."""

import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from labctl.build import Artifact, list_artifacts
from labctl.config.target import load_target
from labctl.errors import ConfigError, ToolMissing

PRODUCT = "llama.cpp"
TOOL = "llama-quantize"


@dataclass(frozen=True)
class Quantizer:
    """A llama-quantize that runs here."""

    argv: tuple[str | PathLike[str], ...]
    #: SHA-256 of the program. Its commit is not enough: for another CPU it rounds differently, and
    #: then other bytes come out of the same model.
    sha256: str


FindQuantizer = Callable[[], Quantizer]


def find_quantizer(target: str, lab_root: Path | None) -> Quantizer:
    """Return the newest llama-quantize built for this host, else the target's behind its emulator.

    Nothing is built. Raises ConfigError when there is neither, ToolMissing without the emulator.
    """
    host = f"host-{platform.machine()}"
    built = [a for a in list_artifacts() if a.manifest.product == PRODUCT and a.has([TOOL])]
    for name in (host, target):
        if artifact := max((a for a in built if a.manifest.target == name), key=_age, default=None):
            argv: tuple[str | PathLike[str], ...] = (
                *_emulator(name, lab_root),
                artifact.tool(TOOL),
            )
            return Quantizer(argv, artifact.manifest.tools[TOOL].sha256)
    raise ConfigError(
        f"no {TOOL} that runs on this host is built",
        hint=f"labctl build --target {target} --product {PRODUCT} --tool {TOOL}",
    )


def _age(artifact: Artifact) -> float:
    return artifact.manifest.tools[TOOL].built.timestamp()


def _emulator(target_name: str, lab_root: Path | None) -> tuple[str, ...]:
    """Return the words that start a program of that target on this host."""
    target = load_target(target_name, lab_root)
    if target.runs_here:
        return ()
    if target.emulator is None or shutil.which(target.emulator.argv[0]) is None:
        raise ToolMissing(
            f"the {TOOL} of target {target_name} needs an emulator on this host",
            hint=f"install it (`labctl doctor`), or: labctl build --target"
            f" host-{platform.machine()} --product {PRODUCT} --tool {TOOL}",
        )
    return target.emulator.argv
