"""The agent and its shim, compiled for tests and kept in the cache by the hash of their source."""

import hashlib
import importlib.util
import os
import platform
import sys
from functools import cache
from pathlib import Path

import pytest

from labctl import process
from labctl.files import cache_dir, locked
from labctl.shipped import TOOLCHAINS

SOURCE = TOOLCHAINS / "agent"
_SHIM_SOURCES = ("exec_shim.c", "emulate.c")
_FLAGS = ("-std=c11", "-O2", "-s", "-Wall", "-Wextra", "-Werror")


def native_agent() -> Path:
    """The agent for this host."""
    return agent(platform.machine())


@cache
def agent(machine: str) -> Path:
    """The agent for a machine (x86_64, aarch64), static."""
    sources = sorted(path.name for path in SOURCE.glob("*.c") if path.name != "exec_shim.c")
    return _compiled(f"agent-{machine}", ("-target", f"{machine}-linux-musl", "-static"), sources)


@cache
def exec_shim() -> Path:
    """The library for LD_PRELOAD, for this host's C library."""
    target = f"{platform.machine()}-linux-gnu"
    return _compiled("exec_shim.so", ("-target", target, "-shared", "-fPIC"), _SHIM_SOURCES)


@cache
def arm64_program(text: str) -> Path:
    """A static ARM64 program made from C."""
    folder = cache_dir() / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.c"
    if not source.exists():
        source.write_text(text)
    flags = ("-target", "aarch64-linux-musl", "-static")
    return _compiled(source.stem, flags, (str(source),))


def _compiled(name: str, flags: tuple[str, ...], sources: list[str] | tuple[str, ...]) -> Path:
    digest = hashlib.sha256(repr((flags, _FLAGS, sources)).encode())
    for path in sorted([*SOURCE.glob("*.[ch]"), *map(Path, sources)]):
        digest.update((SOURCE / path).read_bytes())
    output = cache_dir() / "tests" / f"{name}-{digest.hexdigest()[:16]}"
    with locked(output.with_name(f"{output.name}.lock"), timeout=250):
        if not output.exists():
            if importlib.util.find_spec("ziglang") is None:
                pytest.skip("ziglang is not installed: no C compiler for the agent")
            temporary = output.with_name(f".{output.name}.tmp")
            words = [sys.executable, "-m", "ziglang", "cc", *flags, *_FLAGS, "-o", temporary]
            done = process.run(["nice", *words, *sources], timeout=240, cwd=SOURCE, env=os.environ)
            assert done.exit_status == 0, done.tail()
            temporary.replace(output)
    return output
