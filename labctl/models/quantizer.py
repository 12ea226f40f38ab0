"""Choice of the llama-quantize, or another program, to run on this host."""

import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from labctl.build.artifact import Artifact, list_artifacts
from labctl.config.target import load_target
from labctl.errors import ConfigError, ToolMissing

PRODUCT = "llama.cpp"
TOOL = "llama-quantize"


@dataclass(frozen=True)
class Quantizer:
    """A llama-quantize, or another program of its build, that runs here."""

    argv: tuple[str | PathLike[str], ...]
    #: SHA-256 of the program. Its commit is not enough: a build for another CPU rounds differently
    #: and produces other bytes from the same model.
    sha256: str
    #: Label of its version in the build spec.
    version: str | None = None


FindQuantizer = Callable[[], Quantizer]


def find_quantizer(target: str | None, lab_root: Path | None) -> Quantizer:
    """Return the newest llama-quantize for this host; otherwise the target's, if any, emulated.

    Raises as :func:`find_host_tool` does.
    """
    return find_host_tool(TOOL, target, lab_root)


def find_host_tool(tool: str, target: str | None, lab_root: Path | None) -> Quantizer:
    """Return the newest build of a program for this host; otherwise the target's, if any, emulated.

    Builds nothing. Raises ConfigError if this host has neither, ToolMissing without the emulator.
    """
    host = f"host-{platform.machine()}"
    built = [a for a in list_artifacts() if a.manifest.product == PRODUCT and a.has([tool])]
    for name in filter(None, (host, target)):
        if artifact := max(
            (a for a in built if a.manifest.target == name),
            key=lambda a: _age(a, tool),
            default=None,
        ):
            argv: tuple[str | PathLike[str], ...] = (
                *_emulator(tool, name, lab_root),
                artifact.tool(tool),
            )
            manifest = artifact.manifest
            return Quantizer(argv, manifest.tools[tool].sha256, manifest.version)
    raise ConfigError(
        f"no {tool} that runs on this host is built",
        hint=f"labctl build --target {target or host} --product {PRODUCT} --tool {tool}",
    ).of_host()


def _age(artifact: Artifact, tool: str) -> float:
    return artifact.manifest.tools[tool].built.timestamp()


def _emulator(tool: str, target_name: str, lab_root: Path | None) -> tuple[str, ...]:
    """Return the words that start a program of this target on this host."""
    target = load_target(target_name, lab_root)
    if target.runs_here:
        return ()
    emulator = None if target.emulator is None else target.emulator.argv
    if emulator is None or shutil.which(emulator[0]) is None:
        raise ToolMissing(
            f"the {tool} of target {target_name} needs an emulator on this host",
            hint=f"install it (`labctl doctor`), or: labctl build --target"
            f" host-{platform.machine()} --product {PRODUCT} --tool {tool}",
            program=emulator[0] if emulator else None,
        )
    return emulator
