"""The checks of ``labctl doctor``; they change nothing."""

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from labctl.board.probe_files import last_probes
from labctl.config.lab import LabFile
from labctl.config.target import load_target
from labctl.distribution import install_extra
from labctl.folders import cache_dir, state_dir
from labctl.performance.prediction import memory_clock_doubt, rates_of
from labctl.records.board import Execution

#: Approximate size of a build tree of llama.cpp, its source and a small model.
CACHE_NEED_BYTES = 4 << 30


class Importance(StrEnum):
    """Consequence of a missing program."""

    NEEDED = "needed"
    OPTIONAL = "optional"


@dataclass(frozen=True)
class Finding:
    """Result of one check of this host."""

    name: str
    found: bool
    importance: Importance
    detail: str
    used_for: str
    remedy: str | None = None


def examine(lab: LabFile | None = None) -> list[Finding]:
    """Check this host, and what a lab knows of its boards, without the network or a board.

    Raises ConfigError if the target of a board is wrong.
    """
    found = [finding for check in _CHECKS for finding in check()]
    return [*found, *_consoles(lab), *_memory_clocks(lab)] if lab else found


def _consoles(lab: LabFile) -> Iterator[Finding]:
    """Say whether this host has the serial ports of the lab's consoles, and may use them."""
    for board in lab.lab.boards.values():
        if board.console is None or "://" in (device := board.console.device):
            continue
        there = Path(device).exists()
        usable = os.access(device, os.R_OK | os.W_OK)
        yield Finding(
            f"console of {board.name}",
            usable,
            Importance.OPTIONAL,
            device if usable else f"{device} {'may not be used' if there else 'is missing'}",
            "reasons of failures; whether it answers: labctl boards check",
            "its cable; on Debian, its user in the group dialout",
        )


def _memory_clocks(lab: LabFile) -> Iterator[Finding]:
    """Warn of boards whose memory may be slow, from their last probes."""
    for board in lab.lab.boards.values():
        probes = last_probes(lab.root, board.name, Execution.BOARD)
        rates = rates_of(probes, load_target(board.target, lab.root).expectations)
        if probes and (doubt := memory_clock_doubt(probes[0].facts, rates)):
            yield Finding(
                f"memory clock of {board.name}",
                found=False,
                importance=Importance.OPTIONAL,
                detail=f"{doubt} (as of {probes[0].taken:%Y-%m-%d})",
                used_for="fast tokens: DRAM limits most models, and its clock decides its speed",
                remedy="a bootloader and kernel that scale the memory clock; then probe again",
            )


def _python() -> Iterator[Finding]:
    yield Finding(
        "Python",
        sys.version_info >= (3, 11),
        Importance.NEEDED,
        f"{platform.python_version()} at {sys.executable}",
        "labctl itself",
        "install Python 3.11 or newer",
    )


def _builders() -> Iterator[Finding]:
    local = "building tools on this host (no root needed)"
    needed = [(name, Importance.NEEDED, local, "build") for name in ("cmake", "ninja", "ziglang")]
    optional = [
        ("fabric", Importance.OPTIONAL, "building tools on another host", "ssh"),
        ("pyserial", Importance.OPTIONAL, "serial consoles of boards", "console"),
        ("psycopg", Importance.OPTIONAL, "a lab in a PostgreSQL database", "postgresql"),
        ("optuna", Importance.OPTIONAL, "labctl tune with more than 60 settings", "tune"),
    ]
    for package, importance, used_for, extra in (*needed, *optional):
        try:
            detail, found = importlib.metadata.version(package), True
        except importlib.metadata.PackageNotFoundError:
            detail, found = "not installed in this Python environment", False
        yield Finding(
            package,
            found,
            importance,
            detail,
            used_for,
            install_extra(extra),
        )


def _programs() -> Iterator[Finding]:
    foreign = platform.machine() != "aarch64"
    table = [
        ("git", "sources given as --git, and the lab's revision in run.json", "git"),
        ("adb", "phones (kind: adb): its server has their cables and keys", "adb"),
        ("podman", "builds in containers (without it: docker)", "podman"),
        ("mksh", "the shell of a virtual board (without it: this host's sh)", "mksh"),
        ("toybox", "the commands of a virtual board (without it: this host's)", "toybox"),
    ]
    if foreign:
        table.insert(
            0,
            (
                "qemu-aarch64-static",
                "smoke runs of ARM64 builds, virtual boards with ARM64 programs",
                "qemu-user-static",
            ),
        )
    for program, used_for, debian in table:
        path = shutil.which(program)
        yield Finding(
            program,
            path is not None,
            Importance.OPTIONAL,
            path or "not on PATH",
            used_for,
            f"Debian, Ubuntu: sudo apt-get install {debian}",
        )


def _hdc() -> Iterator[Finding]:
    path = shutil.which("hdc")
    yield Finding(
        "hdc",
        path is not None,
        Importance.OPTIONAL,
        path or "not on PATH",
        "boards on USB and UART cables (link: server); boards on the network need none",
        "the toolchains of the OpenHarmony SDK have one, for Linux on x86_64 only",
    )


def _places() -> Iterator[Finding]:
    for name, path, need in (
        ("cache", cache_dir(), CACHE_NEED_BYTES),
        ("state", state_dir(), 1 << 20),
    ):
        existing = _nearest_existing(path)
        free = shutil.disk_usage(existing).free
        writable = os.access(existing, os.W_OK)
        yield Finding(
            f"{name} directory",
            writable and free >= need,
            Importance.NEEDED,
            f"{path}, {free / 1e9:.1f} GB free" + ("" if writable else ", not writable"),
            "sources, builds, models" if name == "cache" else "locks and leases of boards",
            f"free {need / 1e9:.1f} GB there, or set LABCTL_{name.upper()} to another directory",
        )


def _nearest_existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


_CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _builders,
    _programs,
    _hdc,
    _places,
)
