"""``toolchains/<target>/target.yaml``: a kind of machine that tools are built for.

A lab's own ``toolchains/<target>`` wins over the one that comes with labctl.
"""

import platform
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field

from labctl import package_data
from labctl.config.types import Line, Name
from labctl.config.yaml.document import StrictModel, load
from labctl.errors import ConfigError
from labctl.files import host_reads
from labctl.suggestions import unknown
from labctl.text_types import Word

FILE_NAME = "target.yaml"
TOOLCHAINS = "toolchains"
#: Target of boards of which nothing is known.
DEFAULT_TARGET = "rk3568"
#: What a phone over adb is, as long as it cannot be asked.
PHONE_TARGET = "android-arm64"
#: Target of boards with an ARM chip that has no target of its own.
GENERIC_TARGET = "generic-armv8-a"

#: ``e_machine`` of the ELF header (``elf.h``) -> output of ``uname -m`` on such a machine.
MACHINES = {
    "EM_AARCH64": "aarch64",
    "EM_X86_64": "x86_64",
    "EM_ARM": "armv7l",
    "EM_RISCV": "riscv64",
}
#: ``e_machine`` -> bits of the ELF class that labctl uses for it.
BITS = {"EM_AARCH64": 64, "EM_X86_64": 64, "EM_ARM": 32, "EM_RISCV": 64}


class ZigTarget(StrictModel):
    """Options of ``zig cc`` for the target."""

    target: Word
    """Zig's target triple, e.g. ``aarch64-linux-musl``."""
    cpu: Word
    """Zig's CPU, which fixes the instruction set of everything, the C library too."""


class Emulator(StrictModel):
    """A program that runs the target's programs on a host of another machine."""

    argv: Annotated[tuple[Line, ...], Field(min_length=1)]
    """The emulator's words; the program and its arguments follow."""
    note: Line
    """Reason for this emulator and these arguments."""


class Expectations(StrictModel):
    """Expected rates of the hardware; used for predictions only, never as a result."""

    cores: Annotated[int, Field(ge=1)]
    """Number of CPU cores."""
    storage_read_bytes_per_s: Annotated[float, Field(gt=0)] | None = None
    """Sequential read speed of the storage that models lie on, bytes per second."""
    dram_read_bytes_per_s: Annotated[float, Field(gt=0)] | None = None
    """Read speed of main memory with all cores, bytes per second."""
    system_memory_bytes: Annotated[int, Field(ge=0)] = 0
    """Memory that the system of such a board uses itself, bytes. Subtracted if only a board's whole
    memory is known, up to half of it."""
    source: Line
    """Source of these numbers."""

    def free_of(self, memory_bytes: int) -> int:
        """Return the part of a board's memory that is free for a program."""
        return memory_bytes - min(self.system_memory_bytes, memory_bytes // 2)


class Target(StrictModel):
    """A kind of machine that tools are built for."""

    name: Name
    """Name of the target, equal to the name of its folder."""
    description: Line
    """Short description of the machine."""
    triple: Word
    """GNU triple, e.g. ``aarch64-linux-gnu``: the prefix of a cross GCC."""
    elf_machine: Literal["EM_AARCH64", "EM_X86_64", "EM_ARM", "EM_RISCV"]
    """Machine of the ELF header that every program must have."""
    elf_bits: Literal[32, 64] = 64
    """Class of the ELF header."""
    zig: ZigTarget
    """Options of zig for the target."""
    cpu_flags: tuple[Line, ...] = ()
    """The same instruction set as zig's CPU, in GCC's flags."""
    features: tuple[Word, ...] = ()
    """Parts of the instruction set that its programs may use, by their names in /proc/cpuinfo."""
    compatible: tuple[Line, ...] = ()
    """Names of its chip in device trees, to recognise a board that is given by its address."""
    cpu_parts: tuple[Word, ...] = ()
    """Kinds of its CPU cores, as `CPU part` of /proc/cpuinfo, to recognise a board without a device
    tree."""
    android: bool = False
    """Its machines run Android; no other target is chosen for a phone."""
    cmake: dict[Word, bool | int | str] = Field(default_factory=dict)
    """CMake definitions that every product gets for this target."""
    emulator: Emulator | None = None
    """Emulator for its programs on a host of another machine."""
    health_check: Line | None = None
    """Recipe of the health checks of such boards, in place of `health.recipe` of devices.yaml."""
    expectations: Expectations | None = None
    """Expected properties of the hardware."""

    @property
    def machine(self) -> str:
        """Name that ``uname -m`` prints on such a machine."""
        return MACHINES[self.elf_machine]

    def document(self, built: Iterable[str]) -> dict[str, object]:
        """Return the target as JSON, with the products that are ``built`` for it."""
        return {
            "name": self.name,
            "description": self.description,
            "machine": self.machine,
            "features": self.features,
            "built": sorted(set(built)),
        }

    def for_machine(self, elf_machine: str) -> Self:
        """Return this target for files of another machine, such as an SDK for a 32-bit userland."""
        if elf_machine == self.elf_machine:
            return self
        given = {"elf_machine": elf_machine, "elf_bits": BITS[elf_machine], "emulator": None}
        return self.model_copy(update={**given, "features": ()})

    @property
    def runs_here(self) -> bool:
        """True if this host is such a machine."""
        return platform.machine() == self.machine


_SHIPPED = package_data.TOOLCHAINS.resolve()


def toolchain_folders(lab_root: Path | None) -> tuple[Path, ...]:
    """Return the folders of targets, the lab's own before the shipped ones."""
    own = () if lab_root is None else ((lab_root / TOOLCHAINS).resolve(),)
    return tuple(dict.fromkeys((*own, _SHIPPED)))


def target_names(lab_root: Path | None) -> list[str]:
    """Return the names of all known targets, sorted."""
    folders = toolchain_folders(lab_root)
    return sorted({path.parent.name for f in folders for path in f.glob(f"*/{FILE_NAME}")})


def target_file(name: str, lab_root: Path | None) -> Path | None:
    """Return the file of the target with this name, or None.

    Raises ConfigError if a place cannot be read: the lab's own target, which wins, may be there.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return None
    for folder in toolchain_folders(lab_root):
        file = folder / name / FILE_NAME
        with host_reads(file), suppress(FileNotFoundError, NotADirectoryError):
            file.stat()
            return file
    return None


def load_targets(lab_root: Path | None) -> tuple[list[Target], list[str]]:
    """Load all known targets, sorted by name; also return a line for each wrong one left out."""
    targets, left_out = [], []
    for name in target_names(lab_root):
        try:
            targets.append(load_target(name, lab_root))
        except ConfigError as error:
            left_out.append(f"left out: {error.message}")
    return targets, left_out


def target_of(
    machine: str,
    compatible: Iterable[str],
    default: str,
    lab_root: Path | None,
    *,
    android: bool = False,
) -> str | None:
    """Return the target of a board: for its chip, else the default, else any for its machine.

    ``machine``: output of ``uname -m``. ``compatible``: names of board and chip in the device tree,
    ``vendor,chip``. None if there is no target for such a machine.
    """
    able = [target for target in load_targets(lab_root)[0] if target.machine == machine]
    fitting = [target for target in able if target.android == android] or able
    chips = {name.rpartition(",")[2] for name in compatible}
    # A chip that no target names may lack instructions that the default target uses.
    preferred = [*sorted(chips), GENERIC_TARGET if chips else default]
    names = [target.name for target in fitting]
    return next((name for name in [*preferred, *names] if name in names), None)


def load_target(name: str, lab_root: Path | None = None) -> Target:
    """Load the target with this name.

    Raises ConfigError for an unknown name (with the nearest one) or a wrong file.
    """
    path = target_file(name, lab_root)
    if path is None:
        raise ConfigError(
            unknown("target", name, target_names(lab_root)),
            hint=f"a target is a folder in {TOOLCHAINS}/ with a {FILE_NAME}",
        )
    target = load(path, Target)
    if target.name != name:
        raise ConfigError(f"{path}: name: must be '{name}', the folder's, not '{target.name}'")
    return target
