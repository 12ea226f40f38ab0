"""Build hosts that fail in the middle of a build, lie, or lack something."""

import os
import platform
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from small_disk import fill, small_disk
from sshd_host import PATH, SshHost, ssh_host
from sshd_lab import LASTING, TARGET, SshLab, is_lasting, run_in

from labctl import process
from labctl.errors import ConfigError, HostError, IntegrityError, ToolMissing
from labctl.retry import wait_until
from labctl.transport.ssh.link import Watch
from labctl.transport.ssh.login import log_in

pytestmark = pytest.mark.e2e


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshLab:
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    return SshLab(tmp_path / "lab")


@contextmanager
def host_of(lab: SshLab, *, path: str = PATH, config: str = "") -> Iterator[SshHost]:
    with ssh_host(lab.root / "x86", path=path, config=config) as host:
        lab.write_hosts(x86=host.entry())
        yield host


@contextmanager
def lasting_build(
    lab: SshLab, host: SshHost, work: Callable[[], object] | None = None
) -> Iterator["Future[object]"]:
    """A build that has come to its compiler and goes on until something happens."""
    lab.let_builds_last()
    with ThreadPoolExecutor(1) as pool:
        build = pool.submit(work or lab.build)
        wait_until(lambda: is_lasting(host) or build.done(), timeout=120, interval=0.05)
        assert not build.done(), build.exception()
        yield build


def is_clean(host: SshHost) -> bool:
    return host.working() == [] and not (host.workdir / "builds").exists()


def programs(folder: Path, *without: str, **instead: str) -> str:
    """A PATH on which some programs are missing, and others are scripts."""
    folder.mkdir()
    for workspace in reversed(PATH.split(":")):
        for program in Path(workspace).iterdir():
            if program.name not in without:
                (folder / program.name).unlink(missing_ok=True)
                (folder / program.name).symlink_to(program.resolve())
    for name, script in instead.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return str(folder)


def test_a_host_that_hangs_up_in_mid_build_is_an_infra_failure(lab: SshLab) -> None:
    with host_of(lab) as host, lasting_build(lab, host) as build:
        host.hang_up()
        with pytest.raises(HostError, match="build host 'x86' is gone: it closed the connection"):
            build.result(timeout=120)
        assert wait_until(lambda: is_clean(host), timeout=120, interval=0.1), host.working()
        assert not list((lab.root.parent / "cache").glob("artifacts/*/*"))


def test_a_frozen_host_is_noticed(lab: SshLab) -> None:
    watched = partial(log_in, watch=Watch(0.2, 5.0))

    def work() -> None:
        with lab.workspace(open_link=watched) as workspace:
            run_in(workspace, LASTING.split(), timeout=300)

    with host_of(lab) as host, lasting_build(lab, host, work) as build:
        frozen = host.sessions()
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        with pytest.raises(HostError, match="build host 'x86' is gone: no answer for 5 s"):
            build.result(timeout=120)
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        assert wait_until(lambda: is_clean(host), timeout=120, interval=0.1), host.working()


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)]
)
def test_nothing_goes_on_there_when_labctl_ends(
    lab: SshLab, number: signal.Signals, status: int
) -> None:
    lab.let_builds_last()
    words = ["build", "--target", TARGET, "--product", "tiny", "--host", "x86"]
    with host_of(lab) as host:
        labctl = process.start(
            [sys.executable, "-m", "labctl", *words], cwd=lab.root, env=os.environ
        )
        try:
            assert wait_until(lambda: is_lasting(host), timeout=120, interval=0.05)
            os.kill(labctl.pid, number)
            labctl.communicate(timeout=120)
            assert labctl.returncode == status
            assert wait_until(lambda: is_clean(host), timeout=120, interval=0.1), host.working()
        finally:
            process.stop(labctl)


def test_a_full_disk_there_is_told(lab: SshLab, tmp_path: Path) -> None:
    with host_of(lab) as host, small_disk(tmp_path / "small", 256) as disk:
        lab.write_hosts(x86=host.entry(workdir=str(disk / "work")))
        (lab.source / "noise").write_bytes(os.urandom(1 << 19))
        with pytest.raises(HostError, match="cannot keep the source: the disk of build host 'x86'"):
            lab.build()
        assert not (disk / "work" / "builds").exists()
        (lab.source / "noise").unlink()
        with lab.workspace() as workspace:
            fill(disk)
            with pytest.raises(HostError, match=r"cannot write .*: the disk of build host 'x86'"):
                workspace.write("large", "x" * 100_000)


def test_missing_programs_are_named_with_their_packages(lab: SshLab, tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", "cmake", "ninja", "g++", "x86_64-linux-gnu-g++")
    with host_of(lab, path=path), pytest.raises(ToolMissing) as caught:
        lab.build()
    assert re.fullmatch(
        r"not installed on x86: (x86_64-linux-gnu-)?g\+\+, cmake, ninja", caught.value.message
    )
    assert re.search(r"apt-get install g\+\+\S* cmake ninja-build", caught.value.hint or "")


def test_a_host_without_the_usual_programs_is_told(lab: SshLab, tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", "flock", "setsid")
    with host_of(lab, path=path), pytest.raises(ToolMissing) as caught, lab.workspace():
        pass
    assert caught.value.message == "not installed on build host 'x86': flock setsid"
    assert "util-linux" in (caught.value.hint or "")


#: Adds a byte to what comes through a pipe, or to what is read from a file.
_DAMAGE = "/bin/cat; [ -f /proc/self/fd/0 ] {} printf x; true"


def test_a_source_that_arrives_damaged_is_not_built(lab: SshLab, tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", cat=_DAMAGE.format("||"))
    message = "the source arrived damaged on build host 'x86'"
    with host_of(lab, path=path) as host:
        with pytest.raises(IntegrityError, match=message):
            lab.build()
        assert list((host.workdir / "sources").iterdir()) == []


def test_a_program_that_arrives_damaged_is_no_artifact(lab: SshLab, tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", cat=_DAMAGE.format("&&"))
    with host_of(lab, path=path), lab.workspace() as workspace:
        run_in(workspace, ["touch", "made"])
        with pytest.raises(IntegrityError, match="made of build host 'x86' arrived damaged"):
            workspace.fetch("made", tmp_path / "here" / "made")
        assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (r"printf 'x86_64\033[2J; rm -rf /'", "build host 'x86' does not report its machine type"),
        ("exec yes", "build host 'x86' answers without end"),
        ("exit 1", "build host 'x86' does not report its machine type"),
    ],
    ids=["text", "endless", "none"],
)
def test_answers_are_not_believed(lab: SshLab, tmp_path: Path, script: str, message: str) -> None:
    path = programs(tmp_path / "bin", uname=script)
    with host_of(lab, path=path), pytest.raises(HostError) as caught:
        lab.build()
    assert caught.value.message == message
    assert "\033" not in caught.value.message


def test_what_a_shell_prints_at_its_start_is_passed_over(lab: SshLab) -> None:
    noise = lab.root / "noisy.sh"
    noise.write_text(
        '#!/bin/sh\necho "Welcome!"; echo "No mail." >&2; eval "$SSH_ORIGINAL_COMMAND"\n'
    )
    noise.chmod(0o755)
    with host_of(lab, config=f"ForceCommand {noise}\n"):
        assert lab.build().manifest.toolchain.on.machine == platform.machine()


def test_a_host_that_runs_nothing_is_told(lab: SshLab) -> None:
    with (
        host_of(lab, config="ForceCommand echo This account is not available\n"),
        pytest.raises(HostError) as caught,
    ):
        lab.build()
    assert "does not run commands: its shell ended with status 0" in caught.value.message
    assert "This account is not available" in (caught.value.details or "")


def test_a_workdir_that_is_a_link_is_refused(lab: SshLab, tmp_path: Path) -> None:
    with host_of(lab) as host:
        host.workdir.symlink_to(tmp_path)
        with pytest.raises(HostError, match="belongs to another user, or is a link"):
            lab.build()
    assert not (tmp_path / "builds").exists()


def test_a_log_without_end_is_cut_off(lab: SshLab) -> None:
    with host_of(lab) as host:
        with (
            lab.workspace(log_bytes=1 << 20) as workspace,
            pytest.raises(HostError, match="prints without end"),
        ):
            run_in(workspace, ["yes"])
        assert wait_until(lambda: is_clean(host), timeout=120, interval=0.1), host.working()


def test_a_compilers_words_cannot_write_to_the_terminal(lab: SshLab) -> None:
    lines: list[str] = []
    with host_of(lab), lab.workspace() as workspace:
        done = run_in(workspace, ["printf", r"\033]0;mine\007 \377 x\n"], on_line=lines.append)
    assert lines == ["\\x1b]0;mine\\x07 \ufffd x"]
    assert done.text == lines[0]
    assert (lab.root.parent / "cache" / "log").read_text() == lines[0] + "\n"


def test_a_program_that_is_not_there_is_told(lab: SshLab) -> None:
    with host_of(lab), lab.workspace() as workspace:
        with pytest.raises(ToolMissing, match="not installed on build host 'x86': nothing-like-it"):
            run_in(workspace, ["nothing-like-it"])
        assert run_in(workspace, ["sh", "-c", "exit 127"]).exit_status == 127


def test_a_source_that_cannot_be_read_is_the_users(lab: SshLab) -> None:
    shutil.rmtree(lab.source)
    with host_of(lab), pytest.raises(ConfigError, match="no source folder"):
        lab.build()
