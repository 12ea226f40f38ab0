"""The agent's hashing threads, under ThreadSanitizer."""

import shutil
from pathlib import Path

import agent_builds
import pytest

from labctl import process

pytestmark = pytest.mark.e2e

_COMPILE = ("gcc", "-std=gnu11", "-g", "-O1", "-fsanitize=thread", "-pthread")
_SOURCES = ("hash", "threads", "sha256", "sha256_x86", "sha256_armv8", "failure", "json", "util")
_MAIN = """
#include <stdlib.h>
#include "agent.h"
int main(int count, char **words)
{
    (void)count;
    return command_hash_parts(words + 2, strtoull(words[1], NULL, 10));
}
"""


def test_threads_that_hash_share_nothing_unguarded(tmp_path: Path) -> None:
    if shutil.which("gcc") is None or shutil.which("setarch") is None:
        pytest.skip("gcc or setarch is not installed")
    main, program, file = tmp_path / "main.c", tmp_path / "hash", tmp_path / "file"
    main.write_text(_MAIN)
    file.write_bytes(bytes(1_000_000))
    sources = [agent_builds.SOURCE / f"{name}.c" for name in _SOURCES]
    built = process.run(
        [*_COMPILE, f"-I{agent_builds.SOURCE}", "-o", program, main, *sources],
        timeout=60,
    )
    assert built.exit_status == 0, built.text
    # ThreadSanitizer wants its addresses where a random layout may put something else.
    done = process.run(["setarch", "-R", program, "4096", file], timeout=120)
    assert done.exit_status == 0, done.text
