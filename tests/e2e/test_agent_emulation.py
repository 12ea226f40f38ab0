"""ARM64 programs on a virtual board: through the agent, and through the shell's shim."""

import json
import os
import platform
import shutil
from pathlib import Path

import agent_builds
import pytest
from jobs import Job

from labctl import process

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(platform.machine() == "aarch64", reason="ARM64 runs natively here"),
    pytest.mark.skipif(not shutil.which("qemu-aarch64-static"), reason="no qemu-aarch64-static"),
]

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        printf("[%s]", argv[i]);
    const char *preload = getenv("LD_PRELOAD"), *mine = getenv("MINE");
    printf(" %s %s arm64=%d\n", preload ? preload : "-", mine ? mine : "-",
#ifdef __aarch64__
           1
#else
           0
#endif
    );
    return 42;
}
"""
EMULATOR = f"{shutil.which('qemu-aarch64-static')} -cpu cortex-a76"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "with space"
    folder.mkdir()
    return Path(shutil.copy(agent_builds.arm64_program(PROGRAM), folder / "program"))


@pytest.fixture
def sandbox() -> dict[str, str]:
    """The environment of a virtual board's commands."""
    return {
        **os.environ,
        "LABCTL_SANDBOX": "boot",
        "LABCTL_SANDBOX_EMULATOR": EMULATOR,
        "LD_PRELOAD": str(agent_builds.exec_shim()),
        "MINE": "1",
    }


def test_the_agent_puts_the_emulator_before_an_arm64_job(
    tmp_path: Path, program: Path, sandbox: dict[str, str]
) -> None:
    job = Job(agent_builds.native_agent(), tmp_path / "job", sandbox)
    started = job.start(str(program), "one", "two words", "")
    assert started["emulator"] == EMULATOR
    assert job.finish()["exit_status"] == 42
    assert job.read("stdout") == b"[one][two words][] - 1 arm64=1\n"


def test_the_agent_leaves_native_jobs_alone(tmp_path: Path, sandbox: dict[str, str]) -> None:
    job = Job(agent_builds.native_agent(), tmp_path / "job", sandbox)
    started = job.start("/bin/echo", "native")
    assert started["emulator"] is None
    job.finish()
    assert job.read("stdout") == b"native\n"


def test_without_an_emulator_an_arm64_job_is_refused(tmp_path: Path, program: Path) -> None:
    done = Job(agent_builds.native_agent(), tmp_path / "job").run(str(program))
    assert done.exit_status == 126
    assert json.loads(done.stdout)["error"] == "exec-format"


def test_an_emulated_job_is_killed_like_any_other(tmp_path: Path, sandbox: dict[str, str]) -> None:
    endless = agent_builds.arm64_program(
        '#include <stdio.h>\n#include <unistd.h>\nint main(void) { puts("up"); fflush(stdout);'
        " for (;;) sleep(1); }\n"
    )
    job = Job(agent_builds.native_agent(), tmp_path / "job", sandbox)
    job.start(str(endless), timeout=1)
    status = job.finish()
    assert status["outcome"] == "timeout"
    assert job.read("stdout") == b"up\n"


def test_exec_passes_through_in_the_foreground(program: Path, sandbox: dict[str, str]) -> None:
    agent = agent_builds.native_agent()
    done = process.run([agent, "exec", "--", program, "x"], timeout=120, env=sandbox)
    assert (done.exit_status, done.text) == (42, "[x] - 1 arm64=1\n")
    done = process.run([agent, "exec", "--", "/no/such"], timeout=120, env=sandbox)
    assert done.exit_status == 127
    assert "No such file" in json.loads(done.stdout)["message"]


_SPAWN = """
import os, sys
os.environ["PATH"] = os.path.dirname(sys.argv[2]) + ":/bin"
name = os.path.basename(sys.argv[2]) if sys.argv[1] == "posix_spawnp" else sys.argv[2]
pid = getattr(os, sys.argv[1])(name, sys.argv[2:], os.environ)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
_EXECV = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"
_SUBPROCESS = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"

#: Each way of starting a program that the shim knows, by programs that use it.
WAYS = {
    "execve (mksh)": ["mksh", "-c", '"$0" "$@"'],
    "execve (sh)": ["sh", "-c", '"$0" "$@"'],
    "execvp (toybox env)": ["toybox", "env", "A=b"],
    "execvp (timeout)": ["timeout", "20"],
    "execvp (toybox timeout)": ["toybox", "timeout", "20"],
    "execvp (nice)": ["nice", "-n", "1"],
    "execvp (toybox xargs)": ["sh", "-c", 'printf %s "$1" | toybox xargs -0 "$0"'],
    "posix_spawn (python)": ["python3", "-c", _SPAWN, "posix_spawn"],
    "posix_spawnp (python)": ["python3", "-c", _SPAWN, "posix_spawnp"],
    "execv (python)": ["python3", "-c", _EXECV],
    "fork and exec (subprocess)": ["python3", "-c", _SUBPROCESS],
}


@pytest.mark.parametrize("way", WAYS)
def test_the_shim_catches_every_way_to_start(
    way: str, program: Path, sandbox: dict[str, str]
) -> None:
    words = WAYS[way]
    if not shutil.which(words[0]):
        pytest.skip(f"{words[0]} is not installed")
    done = process.run([*words, program, "a b"], timeout=120, env=sandbox)
    status = 123 if "xargs" in way else 42
    assert (done.text, done.exit_status) == ("[a b] - 1 arm64=1\n", status), done.tail()


def test_the_shim_finds_programs_on_the_path(program: Path, sandbox: dict[str, str]) -> None:
    sandbox["PATH"] = f"/nowhere:{program.parent}:{sandbox['PATH']}"
    done = process.run(["sh", "-c", "exec env program x"], timeout=120, env=sandbox)
    assert (done.exit_status, done.text) == (42, "[x] - 1 arm64=1\n")


def test_the_shim_respects_the_execute_bit(program: Path, sandbox: dict[str, str]) -> None:
    program.chmod(0o644)
    if os.access(program, os.X_OK):
        pytest.skip("everything is executable for this user")
    done = process.run(["sh", "-c", '"$0"', program], timeout=120, env=sandbox)
    assert done.exit_status == 126
    assert b"ermission denied" in done.stderr


def test_an_emptied_environment_is_still_the_virtual_board(
    program: Path, sandbox: dict[str, str]
) -> None:
    done = process.run(["env", "-i", program, "x"], timeout=120, env=sandbox)
    assert (done.exit_status, done.text) == (42, "[x] - - arm64=1\n")


def test_a_chain_of_native_programs_keeps_the_shim(program: Path, sandbox: dict[str, str]) -> None:
    words = ["sh", "-c", 'sh -c \'env sh -c "$0" "$@"\' "$0" "$@"', f"'{program}' deep"]
    done = process.run(words, timeout=120, env=sandbox)
    assert (done.exit_status, done.text) == (42, "[deep] - 1 arm64=1\n"), done.tail()
