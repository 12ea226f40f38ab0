from pathlib import Path

import pytest

from labctl import process
from labctl.build.zig import environment, locate, zig_flags
from labctl.config.target import load_target
from labctl.package_data import TOOLCHAINS


@pytest.mark.parametrize("target", ["rk3568", "host-x86_64"])
def test_the_agent_compiles_without_a_warning(target: str, tmp_path: Path) -> None:
    folder = TOOLCHAINS / "agent"
    strict = ("-std=c11", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror")
    done = process.run(
        [
            *(locate().zig, "cc", *zig_flags(load_target(target), None)),
            *(*strict, "-c", *sorted(folder.glob("*.c"))),
        ],
        timeout=240,
        cwd=tmp_path,
        env=environment(),
    )
    assert (done.exit_status, done.tail()) == (0, "")
