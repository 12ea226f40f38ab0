"""A pull request's source, built by a real podman: what it tries, and what stops it."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from podman import containers_of, podman_environment

from labctl import process
from labctl.retry import wait_until

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

    @property
    def words(self) -> list[str]:
        words = ["--lab", str(self.lab), "build", "--untrusted", "--target", "rk3568"]
        return [*words, "--product", "trial", "--source", str(self.source)]

    def attack(self, script: str) -> None:
        (self.source / "attack.sh").write_text(f"{script}\ncp /source/program.c tool.c\n")

    def build(self, attack: str = "true", *words: str) -> process.Completed:
        self.attack(attack)
        return self.run("-m", "labctl", *self.words, *words)

    def with_less(self, attack: str, **restrictions: int) -> process.Completed:
        """Build with smaller limits."""
        self.attack(attack)
        return self.run(
            "-c",
            "import dataclasses, sys; from labctl.build.container import builder, disk;"
            " disk._free = lambda _folder: 1 << 40;"  # others may write as much as a small limit
            f" less = {restrictions!r};"
            " builder.UNTRUSTED_SECONDS = less.pop('seconds', builder.UNTRUSTED_SECONDS);"
            " builder.RESTRICTIONS = dataclasses.replace(builder.RESTRICTIONS, **less);"
            f" from labctl.cli.root import run_cli; sys.exit(run_cli({self.words!r}))",
        )

    def run(self, *words: str) -> process.Completed:
        environment = os.environ | self.environment
        return process.run([sys.executable, *words], timeout=600, cwd=self.source, env=environment)

    @property
    def cache(self) -> Path:
        return Path(self.environment["LABCTL_CACHE"])

    @property
    def left(self) -> list[str]:
        """What builds have left in their folders."""
        return sorted(path.name for path in self.cache.glob("build/rk3568/trial-untrusted-*/*"))

    @property
    def log(self) -> str:
        (log,) = self.cache.glob("build/rk3568/trial-untrusted-*/build.log")
        return log.read_text()


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
    assert not (farm.cache / "ccache").exists()
    (home,) = farm.cache.glob("build/rk3568/trial-untrusted-*")
    assert home.stat().st_mode & 0o077 == 0
    assert farm.left == ["build.log"]


#: What it tries, by its name. With ``!``: what it may do, which shows that the way of trying works.
OWN_NAMESPACE = "unshare --user --map-root-user --mount sh -c"
ATTACKS = {
    "read the lab": "cat @LAB@/secret",
    "read the home folder": "ls @HOME@ | grep .",
    "read the secrets of the host": "grep -r . /run/secrets /etc/ssh /root /var/lib/containers",
    "read the environment": 'test -n "$SECRET_TOKEN"',
    "read the environment of others": "cat /proc/[0-9]*/environ | grep -a words-of-the-environment",
    "!read its own environment": "cat /proc/self/environ | grep -a HOME",
    "reach the network": "test $(wc -l </proc/net/route) -gt 1",
    "have a network device": "grep -v lo: /proc/net/dev | grep :",
    "change its source": "touch /source/CMakeLists.txt",
    "change its system": "touch /usr/bin/cc",
    "change the labels of its source": "chmod 777 /source",
    "mount something": "mount -t tmpfs none /mnt",
    "mount its source anew": "mount -o remount,rw,bind /source",
    "mount its source elsewhere": "mount --bind /source /build/elsewhere",
    "unmount what hides something": "umount /source",
    "have a mount namespace": "unshare --mount true",
    "mount it anew in a user namespace": f"{OWN_NAMESPACE} 'mount -o remount,rw,bind /source'",
    "unmount in a user namespace": f"{OWN_NAMESPACE} 'umount /source || umount /source/.git'",
    "enter a namespace by a user namespace": f"{OWN_NAMESPACE} 'nsenter --target 1 --net true'",
    "enter a namespace of PID 1": "nsenter --target 1 --mount true",
    "see processes of the host": "test $(ls -d /proc/[0-9]* | wc -l) -gt 100",
    "see labctl": "cat /proc/[0-9]*/cmdline | grep -qa -e '--un[t]rusted'",
    "trace a program": "grep -q CapEff:.*[1-9a-f] /proc/self/status",
    "get rights": "grep -q 'NoNewPrivs:.*0' /proc/self/status",
    "read memory of the kernel": "head -c 1 /dev/mem || head -c 1 /proc/kcore || dmesg",
    "make a device": "mknod disk b 8 0",
    "have a disk": "ls -l /dev | grep ^b",
    "change the kernel": "echo 1 >/proc/sys/vm/drop_caches || echo h >/proc/sysrq-trigger",
    "leave its cgroup": "mkdir /sys/fs/cgroup/memory/other || mkdir /sys/fs/cgroup/other",
    "give a file away": "touch given; chown 1 given",
    "fill the disk with a file": "dd if=/dev/zero of=large bs=1M seek=4097 count=1",
    "keep more files open": "ulimit -n 2000",
    "have descriptors of labctl": "ls /proc/1/fd | grep -v '^[012]$'",
    "read a token of git": "grep -r 'token-of-the[-]CI' /source",
    "!read another file of its source": "grep -rq add_executable /source",
}


def git_of_a_ci(source: Path) -> None:
    """What a CI's checkout leaves: tokens in a repository, a submodule, and a tree elsewhere."""
    for folder in (".git", ".git/modules/inner", "vendor/whole/.git", "kept", "kept/worktrees/w"):
        (source / folder).mkdir(parents=True)
        for name in ("config", "config.worktree", "credentials", "FETCH_HEAD"):
            (source / folder / name).write_text(f"{folder} has the token-of-the-CI\n")
    for folder, named in (("inner", "../.git/modules/inner"), ("apart", "../kept/worktrees/w")):
        (source / folder).mkdir()
        (source / folder / ".git").write_text(f"gitdir: {named}\n")
    (source / "kept" / "worktrees" / "w" / "commondir").write_text("../..\n")
    (source / "dangling").mkdir()
    (source / "dangling" / ".git").symlink_to("nowhere")


def test_what_a_build_cannot_do(farm: Farm) -> None:
    git_of_a_ci(farm.source)
    tries = [
        f"( {script} ) && echo did: {name} || echo refused: {name}"
        for name, script in ATTACKS.items()
    ]
    script = "\n".join(["mkdir elsewhere", *tries])
    done = farm.build(script.replace("@LAB@", str(farm.lab)).replace("@HOME@", str(Path.home())))
    assert done.exit_status == 0, done.tail(30)
    own = [name for name in ATTACKS if name.startswith("!")]
    assert re.findall("did: (.*)", farm.log) == own
    assert re.findall("refused: (.*)", farm.log) == [name for name in ATTACKS if name not in own]
    assert "the lab's own words" not in farm.log
    assert not farm.started.exists()


@pytest.mark.soak
def test_another_token_is_no_other_source(farm: Farm) -> None:
    git_of_a_ci(farm.source)
    first = json.loads(farm.build("true", "--json").stdout)
    (farm.source / ".git" / "config").write_text("another token\n")
    assert json.loads(farm.build("true", "--json").stdout)["key"] == first["key"]
    (farm.source / "program.c").write_text("int main(void) { return 0; }\n")
    assert json.loads(farm.build("true", "--json").stdout)["key"] != first["key"]


#: Words of the host's, and what only looks like a fault of the host.
BLAMED = {
    "prints": "echo error: No space left on device, Cannot allocate memory, OutOfMemory; exit 1",
    "link": "ln -s /etc/passwd bin-tool; rm -rf bin; ln -s /etc bin; exit 0",
    "kills PID 1": "kill -TERM 1; sleep 600",
    "writes a status": "echo missing ninja >/labctl/status; kill -TERM 1; sleep 600",
    "hides the status": "rm -rf /labctl/*; mkdir /labctl/status; kill -TERM 1; sleep 600",
}


def some(cases: dict[str, str], *first: str) -> list[Any]:
    """The first of the cases, each a build in a container; `make soak` tries all of them."""
    return [
        pytest.param(case, id=name, marks=[] if name in first else [pytest.mark.soak])
        for name, case in cases.items()
    ]


@pytest.mark.parametrize("attack", some(BLAMED, "writes a status"))
def test_what_a_source_says_and_does_is_not_the_fault_of_the_host(farm: Farm, attack: str) -> None:
    done = farm.build(attack)
    assert done.exit_status == 1, done.tail(30)
    assert farm.left == ["build.log"]


LEFT_FOR_THE_TOOL = {
    "a pipe": "rm -f $tool; mkfifo $tool",
    "a folder": "rm -f $tool; mkdir $tool",
    "a link to itself": "ln -sf tool.stripped $tool",
    "a link to a file of the host": "ln -sf /etc/passwd $tool",
    "nothing": "rm -f $tool",
}


@pytest.mark.parametrize("made", some(LEFT_FOR_THE_TOOL, "a link to a file of the host"))
def test_what_a_build_leaves_in_place_of_its_program(farm: Farm, made: str) -> None:
    """A process that outlives ninja waits until the program is made."""
    lines = [CMAKE, "add_custom_command(TARGET tool POST_BUILD COMMAND sh"]
    lines += ["  ${CMAKE_SOURCE_DIR}/late.sh VERBATIM)"]
    (farm.source / "CMakeLists.txt").write_text("\n".join(lines))
    (farm.source / "late.sh").write_text(f"tool=/build/bin/tool\n{made}\n")
    done = farm.build()
    assert done.exit_status == 1, done.tail(30)
    assert farm.left == ["build.log"]


@pytest.mark.parametrize(
    ("attack", "less", "said"),
    [
        ("tail /dev/zero; exit 1", {"memory_bytes": 200 << 20}, "more than 210 MB of memory"),
        pytest.param(
            *("for i in $(seq 100); do sleep 60 & done", {"processes": 50}, "Cannot fork"),
            marks=pytest.mark.soak,
        ),
        pytest.param(
            *("sleep 600", {"seconds": 20}, "ninja took more than 20 s, and was ended"),
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_program_has_limits(farm: Farm, attack: str, less: dict[str, int], said: str) -> None:
    """The limits are smaller ones here."""
    done = farm.with_less(attack, **less)
    assert done.exit_status == 1, done.tail(30)
    assert said in done.tail(30)
    assert not (farm.source / "oom").exists()
    assert farm.left == ["build.log"]


DEEP = """\
make_deep() {
    mkdir -p "$1"; cd "$1"
    i=0; while [ $i -lt 1500 ]; do mkdir d; ln -s / l; cd d; i=$((i+1)); done
    touch "$(printf 'new\\nline')" "$(printf 'no\\377text')"
    mkdir shut; touch shut/in; chmod 0 shut . ..
}
( make_deep /build/deep ); ( make_deep /labctl/deep ); chmod 0 /build/deep
"""


@pytest.mark.soak
def test_what_lies_too_deep_is_removed(farm: Farm) -> None:
    done = farm.build(DEEP)
    assert done.exit_status == 0, done.tail(30)
    assert farm.left == ["build.log"]


@pytest.mark.soak
def test_a_build_cannot_print_for_ever(farm: Farm) -> None:
    """Ninja keeps what a step prints, in memory that has a limit; CMake hands it on at once."""
    (farm.source / "CMakeLists.txt").write_text("execute_process(COMMAND cat /dev/zero)\n")
    done = farm.build()
    assert done.exit_status == 1, done.tail(30)
    assert "printed more than 67.1 MB" in done.tail(30)


@pytest.mark.soak
def test_a_build_cannot_fill_the_disk(farm: Farm) -> None:
    """With many files, each of them small; the limit is a smaller one here."""
    fill = "i=0; while :; do dd if=/dev/zero of=f$i bs=1M count=8 2>/dev/null; i=$((i+1)); done"
    done = farm.with_less(fill, disk_bytes=200_000_000)
    assert done.exit_status == 1, done.tail(30)
    assert "took more than 200 MB of disk" in done.tail(30)
    assert farm.left == ["build.log"]


#: Ends the container's own watch for the end of labctl, and goes on.
FOR_EVER = """\
for one in /proc/[0-9]*; do
    if grep -q 'PPid:.1$' $one/status && grep -q 'Name:.sh$' $one/status; then
        kill -KILL ${one#/proc/}
    fi
done
for one in /proc/[0-9]*; do
    if grep -q 'Name:.flock$' $one/status; then kill -KILL ${one#/proc/}; fi
done
touch /build/goes-on
sleep 600
"""


def kill_group(running: "Popen[bytes]") -> None:
    os.killpg(running.pid, signal.SIGKILL)


def hang_up(running: "Popen[bytes]") -> None:
    """What the end of a terminal does."""
    running.send_signal(signal.SIGHUP)


@pytest.mark.parametrize("end", [kill_group, pytest.param(hang_up, marks=pytest.mark.soak)])
def test_a_source_cannot_outlive_labctl(farm: Farm, end: Callable[["Popen[bytes]"], None]) -> None:
    farm.attack(FOR_EVER)
    running = process.start(
        [sys.executable, "-m", "labctl", *farm.words],
        cwd=farm.source,
        env=os.environ | farm.environment,
    )
    goes_on = "build/rk3568/trial-untrusted-*/tree/goes-on"
    assert wait_until(lambda: any(farm.cache.glob(goes_on)), timeout=300, interval=0.2)
    assert len(containers_of(farm.cache, farm.environment)) == 1
    end(running)
    began = time.monotonic()
    assert wait_until(
        lambda: not containers_of(farm.cache, farm.environment), timeout=60, interval=0.1
    )
    took = time.monotonic() - began
    running.communicate(timeout=60)
    assert took < 5
    # What it left goes before the next build of an untrusted source, or with a prune.
    if end is kill_group:
        assert "tree" in farm.left
        pruned = farm.run("-m", "labctl", "artifacts", "prune")
        assert pruned.exit_status == 0, pruned.tail()
        assert "trial-untrusted-" in pruned.text
    assert "tree" not in farm.left


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
