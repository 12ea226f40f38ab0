"""A pull request's source, built by a real podman: what it tries, and what stops it."""

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from podman import podman_environment

from labctl import process

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

SPEC = """\
product: trial
description: A program of a pull request
builder: cmake
default_version: first
versions:
  first:
    source: {folder: ../../own-source}
definitions: {CMAKE_BUILD_TYPE: Release}
tools:
  tool: {smoke: [], infer: ["{model}"]}
"""

CMAKE = """\
cmake_minimum_required(VERSION 3.14)
project(trial C)
add_custom_command(OUTPUT tool.c COMMAND sh ${CMAKE_SOURCE_DIR}/attack.sh VERBATIM)
add_executable(tool ${CMAKE_CURRENT_BINARY_DIR}/tool.c)
"""
#: Starting the program would leave a file beside this test's folders.
PROGRAM = """\
#include <stdio.h>
int main(void) { FILE *f = fopen("@STARTED@", "w"); return f ? fclose(f) : 0; }
"""


@dataclass(frozen=True)
class Farm:
    """A lab with a secret, and the folder of a pull request beside it."""

    lab: Path
    source: Path
    started: Path
    environment: dict[str, str]

    def build(self, attack: str = "true", *words: str) -> process.Completed:
        (self.source / "attack.sh").write_text(f"{attack}\ncp /source/program.c tool.c\n")
        command = [sys.executable, "-m", "labctl", "--lab", str(self.lab), "build", "--untrusted"]
        command += ["--target", "rk3568", "--product", "trial", "--source", str(self.source)]
        return process.run(
            [*command, *words], timeout=600, cwd=self.source, env=os.environ | self.environment
        )


@pytest.fixture(scope="module")
def podman() -> dict[str, str]:
    return podman_environment()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def farm(tmp_path: Path, podman: dict[str, str], cache: Path) -> Farm:
    lab, source = tmp_path / "lab", tmp_path / "pull-request"
    spec = lab / "toolchains" / "rk3568" / "trial.yaml"
    spec.parent.mkdir(parents=True)
    spec.write_text(SPEC)
    (lab / "devices.yaml").write_text("boards: {}\n")
    (lab / "own-source").mkdir()
    (lab / "secret").write_text("the lab's own words\n")
    source.mkdir()
    started = tmp_path / "started"
    (source / "CMakeLists.txt").write_text(CMAKE)
    (source / "program.c").write_text(PROGRAM.replace("@STARTED@", str(started)))
    environment = {**podman, "LABCTL_CACHE": str(cache), "SECRET_TOKEN": "words-of-the-environment"}
    return Farm(lab, source, started, environment)


def test_what_is_built_is_marked_and_never_started_here(farm: Farm) -> None:
    done = farm.build("true", "--json")
    assert done.exit_status == 0, done.tail(30)
    manifest = json.loads(done.stdout)
    assert manifest["untrusted"] is True
    assert re.fullmatch("untrusted-[0-9a-f]{12}", manifest["version"])
    tool = manifest["tools"]["tool"]
    assert (tool["smoke"]["done"], tool["infer"]["done"]) == (False, False)
    assert "not trusted" in tool["smoke"]["reason"]
    assert manifest["toolchain"]["on"]["network"] is False
    assert not farm.started.exists()
    # Nobody else's compilers take what it left for them.
    cache = Path(farm.environment["LABCTL_CACHE"])
    assert not list((cache / "ccache").rglob("*")) if (cache / "ccache").exists() else True
    homes = list((cache / "build" / "rk3568").glob("trial-untrusted-*"))
    assert [home.stat().st_mode & 0o077 for home in homes] == [0] * len(homes) != []


#: What it tries, by its name.
ATTACKS = {
    "read the lab": "cat @LAB@/secret",
    "read the environment": 'test -n "$SECRET_TOKEN"',
    "reach the network": "test $(wc -l </proc/net/route) -gt 1",
    "change its source": "touch /source/CMakeLists.txt",
    "change its system": "touch /usr/bin/cc",
    "mount something": "mount -t tmpfs none /mnt",
    "give a file away": "touch given; chown 1 given",
    "fill the disk with a file": "dd if=/dev/zero of=large bs=1M seek=4097 count=1",
}


def test_what_a_build_cannot_do(farm: Farm) -> None:
    tries = [
        f"( {script} ) && echo did: {name} || echo refused: {name}"
        for name, script in ATTACKS.items()
    ]
    done = farm.build("\n".join(tries).replace("@LAB@", str(farm.lab)))
    assert done.exit_status == 0, done.tail(30)
    (log,) = Path(farm.environment["LABCTL_CACHE"]).glob("build/rk3568/trial-untrusted-*/build.log")
    printed = log.read_text()
    assert re.findall("did: (.*)", printed) == []
    assert re.findall("refused: (.*)", printed) == list(ATTACKS)
    assert "the lab's own words" not in printed
    assert not farm.started.exists()


def test_a_build_cannot_print_for_ever(farm: Farm) -> None:
    """Ninja keeps what a step prints, in memory that has a limit; CMake hands it on at once."""
    (farm.source / "CMakeLists.txt").write_text("execute_process(COMMAND cat /dev/zero)\n")
    done = farm.build()
    assert done.exit_status == 1, done.tail(30)
    assert "printed more than 67.1 MB" in done.tail(30)


def test_a_build_cannot_fill_the_disk(farm: Farm) -> None:
    """With many files, each of them small; the limit is a smaller one here."""
    fill = "i=0; while :; do dd if=/dev/zero of=f$i bs=1M count=8 2>/dev/null; i=$((i+1)); done"
    (farm.source / "attack.sh").write_text(f"{fill}\n")
    words = ["--lab", str(farm.lab), "build", "--untrusted", "--target", "rk3568"]
    words += ["--product", "trial", "--source", str(farm.source)]
    with_less = (
        "import dataclasses, sys; from labctl.build.container import builder, disk;"
        " disk._free = lambda _folder: 1 << 40;"  # others may write as much as this small limit
        " builder.RESTRICTIONS = dataclasses.replace(builder.RESTRICTIONS, disk_bytes=200_000_000);"
        f" from labctl.cli.root import run_cli; sys.exit(run_cli({words!r}))"
    )
    done = process.run(
        [sys.executable, "-c", with_less],
        timeout=600,
        cwd=farm.source,
        env=os.environ | farm.environment,
    )
    assert done.exit_status == 1, done.tail(30)
    assert "took more than 200 MB of disk" in done.tail(30)


def test_a_repository_whose_settings_name_a_program(farm: Farm, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    for words in (("init", "-q"), ("config", "core.fsmonitor", str(hook))):
        process.run(["git", "-C", str(farm.source), *words], timeout=30)
    process.run(["git", "-C", str(farm.source), "status"], timeout=30)
    assert ran.exists(), "git starts it: the test would show nothing"
    ran.unlink()
    assert farm.build("true", "--json").exit_status == 0
    assert not ran.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--builder", "local"), "built in a container only"),
        (("--builder", "ssh", "--host", "b"), "built in a container only"),
    ],
)
def test_no_other_builder(farm: Farm, words: tuple[str, ...], said: str) -> None:
    done = farm.build("true", *words)
    assert done.exit_status == 2
    assert said in done.tail()


def test_a_lab_within_the_pull_request_is_not_taken(farm: Farm) -> None:
    (farm.source / "devices.yaml").write_text("boards: {}\n")
    words = [sys.executable, "-m", "labctl", "build", "--untrusted", "--target", "rk3568"]
    done = process.run(
        [*words, "--source", "."], timeout=120, cwd=farm.source, env=os.environ | farm.environment
    )
    assert done.exit_status == 2
    assert "share a folder" in done.tail()
