"""Both versions of llama.cpp, built for the board and started under its emulator.

The first time this takes minutes; the artifacts stay in the user's cache.
"""

import shutil
import signal

import pytest

from labctl import process
from labctl.build.artifact import Artifact
from labctl.build.builder import build
from labctl.build.plan import BuildRequest
from labctl.config.target import load_target

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

TARGET = load_target("rk3568")


def built(version: str, *tools: str) -> Artifact:
    return build(BuildRequest(target=TARGET.name, version=version, tools=tools))


def under_emulator(artifact: Artifact, tool: str, *words: str, cpu: str) -> process.Completed:
    assert TARGET.emulator is not None
    emulator = shutil.which(TARGET.emulator.argv[0])
    if emulator is None and not TARGET.runs_here:
        pytest.skip(f"{TARGET.emulator.argv[0]} is not installed")
    prefix = [emulator, "-cpu", cpu] if emulator else []
    return process.run([*prefix, artifact.tool(tool), *words], timeout=120)


@pytest.mark.parametrize(
    ("version", "tool", "said"),
    [
        ("new", "llama-completion", b"commit 0c1e570"),
        ("classic", "llama-cli", b"(4227c9b)"),
    ],
)
def test_the_program_names_the_commit_of_its_manifest(version: str, tool: str, said: bytes) -> None:
    artifact = built(version, tool)
    artifact.verify()
    done = under_emulator(artifact, tool, "--version", cpu="cortex-a76")
    assert done.exit_status == 0, done.tail()
    assert said in done.stdout + done.stderr
    assert (artifact.manifest.commit or "")[:7].encode() in said


def test_the_program_uses_the_boards_dot_product_instructions() -> None:
    """On a CPU without them it dies at once: proof that they were compiled in."""
    artifact = built("new", "llama-completion")
    tools = artifact.manifest.tools["llama-completion"]
    assert (tools.elf.machine, tools.elf.dynamic) == ("EM_AARCH64", False)
    if TARGET.runs_here:
        pytest.skip("this host is ARM64 itself: no CPU can be chosen")
    done = under_emulator(artifact, "llama-completion", "--version", cpu="cortex-a53")
    assert done.exit_status in (-signal.SIGILL, 128 + signal.SIGILL)
