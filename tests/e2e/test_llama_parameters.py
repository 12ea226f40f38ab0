"""Shared parameters and adapters on the real programs of both versions, with the tiny model."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_gguf import write_tiny_gguf
from tiny_lora import write_tiny_lora

from labctl.build.artifact import list_artifacts
from labctl.engines.base import Inputs
from labctl.engines.llama_cpp.engine import LlamaCpp

ENGINE = LlamaCpp()
#: Version, program, a target whose programs start here, words before them.
BUILDS = (
    ("new", "llama-completion", "host-x86_64", ()),
    ("classic", "llama-cli", "host-x86_64", ()),
    ("classic", "llama-cli", "rk3568", ("qemu-aarch64-static", "-cpu", "cortex-a76")),
)
Run = Callable[..., bytes]


@pytest.fixture(params=["new", "classic"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Return a function that completes a text with the version's program."""
    model = write_tiny_gguf(tmp_path / "tiny.gguf")
    there = list_artifacts()
    built = [
        (artifact.tool(program), before, program)
        for version, program, target, before in BUILDS
        if version == request.param and (not before or shutil.which(before[0]))
        for artifact in there
        if (artifact.manifest.version, artifact.manifest.target) == (version, target)
        and artifact.has([program])
    ]
    if not built:
        pytest.skip(f"no {request.param} llama.cpp is built that can start here")
    path, before, program = built[0]
    tool = ENGINE.tool([program], offered=[program])

    def completed(adapters: tuple[tuple[str, float], ...] = (), **parameters: Any) -> bytes:
        asked = ENGINE.parameters({"tokens": 12, "threads": 1, "context": 64, **parameters})
        inputs = Inputs(str(path), str(model), "hello", adapters=adapters)
        argv = ENGINE.command(tool, ENGINE.for_version(tool, asked), inputs)
        done = subprocess.run(
            [*before, *argv], capture_output=True, timeout=60, stdin=subprocess.DEVNULL, check=False
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-1000:]
        return done.stdout

    return completed


def test_what_changes_only_the_speed_changes_no_text(run: Run) -> None:
    plain = run()
    assert plain
    for same in (
        {"mmap": False},
        {"mmap": False, "mlock": True},
        {"threads_batch": 2, "poll": 0, "prio": 0},
        {"cpu_strict": True, "poll": 100},
        {"flash_attention": True, "cache_type_v": "bf16"},
        {"flash_attention": False},
    ):
        assert run(**same) == plain, same


def test_an_adapter_changes_the_text_by_its_scale(run: Run, tmp_path: Path) -> None:
    adapter = str(write_tiny_lora(tmp_path / "style.gguf"))
    plain, whole = run(), run(((adapter, 1.0),))
    assert run(((adapter, 0.0),)) == plain
    assert whole != plain
    second = str(write_tiny_lora(tmp_path / "same.gguf"))
    assert run(((adapter, 0.25), (second, 0.75))) == whole
