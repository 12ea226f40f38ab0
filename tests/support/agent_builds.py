"""The agent and its shim as users build them, and small ARM64 programs for tests."""

import hashlib
import importlib.util
import platform
from functools import cache
from pathlib import Path

import pytest

from labctl import process
from labctl.build.builder import build
from labctl.build.plan import BuildRequest
from labctl.build.zig import environment, locate, zig_flags
from labctl.config.target import load_target
from labctl.folders import cache_dir
from labctl.locks import locked
from labctl.package_data import TOOLCHAINS

SOURCE = TOOLCHAINS / "agent"
HOST = f"host-{platform.machine()}"


def native_agent() -> Path:
    """The agent for this host."""
    return agent(platform.machine())


@cache
def agent(machine: str) -> Path:
    """The agent for a machine (x86_64, aarch64), static."""
    return _built("rk3568" if machine == "aarch64" else f"host-{machine}", "agent", "agent")


@cache
def counting_agent() -> Path:
    """The agent for this host with a stand-in for the kernel's perf events."""
    _need_zig()
    other = Path(__file__).with_name("perf_stand_in.c")
    left_out = {"exec_shim.c", "perf_call.c"}
    sources = [path for path in sorted(SOURCE.glob("*.c")) if path.name not in left_out]
    texts = [path.read_bytes() for path in (*sorted(SOURCE.glob("*.[ch]")), other)]
    name = f"counting-agent-{hashlib.sha256(b''.join(texts)).hexdigest()[:16]}"
    folder = cache_dir() / "tests"
    with locked(folder / f"{name}.lock", timeout=1000):
        output = folder / name
        if not output.exists():
            temporary = output.with_name(f".{name}.tmp")
            words = [locate().zig, "cc", "-std=c11", "-O2", "-Wall", "-Wextra", f"-I{SOURCE}"]
            done = process.run(
                [*words, *sources, other, "-o", temporary], timeout=900, env=environment()
            )
            assert done.exit_status == 0, done.tail()
            temporary.replace(output)
    return output


@cache
def exec_shim() -> Path:
    """The library for LD_PRELOAD, for this host's C library."""
    return _built(HOST, "sandbox-shim", "exec_shim.so")


@cache
def arm64_program(text: str) -> Path:
    """A static ARM64 program made from C."""
    _need_zig()
    folder = cache_dir() / "tests"
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    with locked(folder / f"{name}.lock", timeout=1000):
        output, source = folder / name, folder / f"{name}.c"
        if not output.exists():
            source.write_text(text)
            temporary = output.with_name(f".{name}.tmp")
            flags = zig_flags(load_target("rk3568"), None)
            words = [locate().zig, "cc", *flags, "-O2", "-static", source, "-o", temporary]
            done = process.run(words, timeout=900, env=environment())
            assert done.exit_status == 0, done.tail()
            temporary.replace(output)
    return output


def _built(target: str, product: str, tool: str) -> Path:
    _need_zig()
    return build(BuildRequest(target=target, product=product)).tool(tool)


def _need_zig() -> None:
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed: no C compiler for the agent")


def lend_artifact(artifact: Path, folder: Path) -> None:
    """Have an artifact in another cache too: a folder of its own with links to what it holds."""
    (folder / artifact.name).mkdir()
    for path in artifact.iterdir():
        (folder / artifact.name / path.name).symlink_to(path)
