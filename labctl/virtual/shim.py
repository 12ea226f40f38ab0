"""The shared object that puts the emulator before ARM64 programs typed in a virtual board's shell.

Its C source comes with the agent's, which does the same for jobs. It is built for this host's C
library with the first compiler at hand, and kept in the cache under the hash of its source.
"""

import hashlib
import importlib.util
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from labctl import process, shipped
from labctl.errors import HostError
from labctl.files import cache_dir, host_writes

_SOURCES = ("exec_shim.c", "emulate.c")
_HEADERS = ("emulate.h",)
_COMPILE_SECONDS = 120.0


def exec_shim() -> Path | None:
    """The built shim; None when this host has no C compiler. Raises HostError when it fails."""
    compiler = _compiler()
    if compiler is None:
        return None
    folder = shipped.TOOLCHAINS / "agent"
    digest = hashlib.sha256(" ".join(compiler).encode())
    for name in (*_SOURCES, *_HEADERS):
        digest.update((folder / name).read_bytes())
    shim = cache_dir() / "exec-shim" / digest.hexdigest()[:16] / "exec_shim.so"
    if shim.is_file():
        return shim
    with host_writes(shim):
        shim.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=shim.parent) as scratch:
            built = Path(scratch) / shim.name
            done = process.run(
                [*compiler, "-shared", "-fPIC", "-O2", "-std=c11"]
                + [str(folder / name) for name in _SOURCES]
                + ["-o", str(built), "-ldl"],
                timeout=_COMPILE_SECONDS,
            )
            if done.exit_status != 0:
                raise HostError(f"cannot build {shim.name}", details=done.tail())
            built.replace(shim)
    return shim


def _compiler() -> list[str] | None:
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc", "-target", f"{platform.machine()}-linux-gnu"]
    return None
