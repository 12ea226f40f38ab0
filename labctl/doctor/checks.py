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

from labctl.distribution import install_extra
from labctl.folders import cache_dir, state_dir

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


def examine() -> list[Finding]:
    """Check this host, without the network or a board."""
    return [finding for check in _CHECKS for finding in check()]


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
        ("psycopg", Importance.OPTIONAL, "a lab in a PostgreSQL database", "postgresql"),
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
