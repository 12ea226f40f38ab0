import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import is_alive

from labctl import process
from labctl.errors import ConfigError
from labctl.retry import wait_until
from labctl.virtual import sandbox
from labctl.virtual.marks import MARK
from labctl.virtual.sandbox import Sandbox, boot, kill_boot, kill_process, most_wasteful

needs_board_userland = pytest.mark.skipif(
    not (shutil.which("mksh") and shutil.which("toybox")),
    reason="mksh and toybox are not installed",
)


@pytest.fixture
def children() -> Iterator[list["subprocess.Popen[bytes]"]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        child.kill()
        child.communicate()


def sh(box: Sandbox, command: str) -> process.Completed:
    return process.run([*box.shell, command], env=box.environment, timeout=30)


def start_marked(box: Sandbox, argv: list[str]) -> "subprocess.Popen[bytes]":
    """Start a process that shows its mark: for a moment of its exec it has no environment."""
    child = process.start(argv, env=box.environment)
    mark = f"{MARK}={box.boot_id}".encode()
    environ = Path(f"/proc/{child.pid}/environ")
    assert wait_until(lambda: mark in environ.read_bytes().split(b"\0"), timeout=20, interval=0.001)
    return child


def test_nothing_of_the_hosts_environment_gets_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    box = boot(tmp_path)
    said = sh(box, "env").text
    assert "hunter2" not in said
    assert f"{MARK}={box.boot_id}" in said.splitlines()


@needs_board_userland
def test_the_userland_is_a_boards(tmp_path: Path) -> None:
    box = boot(tmp_path)
    assert box.note is None
    assert "MIRBSD KSH" in sh(box, "echo $KSH_VERSION").text
    for gnu_habit in ("grep -P a /dev/null", "seq --help=x", "python3 -V", "bash -c :", "gcc"):
        assert sh(box, gnu_habit).exit_status != 0, gnu_habit
    for applet in ("ls", "sha256sum", "printf", "stat", "df", "ps", "mkdir", "mv", "ln"):
        assert sh(box, f"command -v {applet}").text == f"{tmp_path}/system/bin/{applet}\n"


def test_without_mksh_the_hosts_sh_stands_in_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox.shutil, "which", lambda _: None)
    box = boot(tmp_path)
    assert box.note is not None
    assert "mksh" in box.note
    assert sh(box, "echo works").text == "works\n"


@pytest.mark.parametrize("userland", ["the board's", "the host's"])
def test_parameters_are_set_and_persist_outlives_a_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, userland: str
) -> None:
    if userland == "the host's":
        monkeypatch.setattr(sandbox.shutil, "which", lambda _: None)
    box = boot(tmp_path)
    for name in ("persist.a", "b"):
        assert sh(box, f"param set {name} 'x y'").text == f"Set parameter {name} x y success\n"
        assert sh(box, f"param get {name}").text == "x y \n"
    box = boot(tmp_path)
    assert sh(box, "param get persist.a").text == "x y \n"
    assert sh(box, "param get b").text == 'Get parameter "b" fail! errNum is:106!\n'
    for words in ("set ../x y", "get .x", "set", ""):
        assert sh(box, f"param {words}").text == "param get|set NAME [VALUE]\n"
    assert not (tmp_path / "x").exists()
    for version in ("3.2.0c", "3.1.0e"):
        box = boot(tmp_path, version=version)
        said = sh(box, "param get const.hdc.version; hdcd -v").text
        assert said == f"Ver: {version} \nVer: {version}\n"


def test_a_boot_has_a_workdir_and_an_id_of_its_own(tmp_path: Path) -> None:
    first, second = boot(tmp_path), boot(tmp_path)
    assert first.boot_id != second.boot_id
    assert (tmp_path / "data/local/tmp/labctl").is_dir()


def test_a_boot_kills_what_an_earlier_one_left_and_nothing_else(
    tmp_path: Path, children: list["subprocess.Popen[bytes]"]
) -> None:
    ours, theirs = boot(tmp_path / "ours"), boot(tmp_path / "theirs")
    children += [
        process.start([*box.shell, "sleep 60"], env=box.environment) for box in (ours, theirs)
    ]
    boot(tmp_path / "ours")
    assert children[0].wait(30) == -9
    assert children[1].poll() is None


def test_a_copy_of_a_running_boards_folder_kills_nothing(
    tmp_path: Path, children: list["subprocess.Popen[bytes]"]
) -> None:
    box = boot(tmp_path / "board")
    children.append(process.start([*box.shell, "sleep 60"], env=box.environment))
    shutil.copytree(tmp_path / "board", tmp_path / "copy", symlinks=True)
    boot(tmp_path / "copy")
    assert children[0].poll() is None
    (tmp_path / "board").rename(tmp_path / "moved")  # that is the same board, elsewhere
    boot(tmp_path / "moved")
    assert children[0].wait(30) == -9


def test_a_mark_that_cannot_be_read_is_no_mark(
    tmp_path: Path, children: list["subprocess.Popen[bytes]"]
) -> None:
    mark = tmp_path / ".labctl-boot-id"
    box = boot(tmp_path)
    children.append(start_marked(box, ["sleep", "60"]))
    for content in (b"", b"\xff\xfe", b"a b c"):
        mark.write_bytes(content)
        again = boot(tmp_path)
        assert mark.read_text().split()[0] == again.boot_id != box.boot_id
        assert children[0].poll() is None, content  # no mark names it


@pytest.mark.parametrize("linked", ["", "system", "system/bin"])
def test_somebody_elses_programs_are_never_replaced(tmp_path: Path, linked: str) -> None:
    theirs = tmp_path / "theirs"
    board = tmp_path / "board"
    programs = board / "system/bin"
    if linked:
        boot(board)
        shutil.rmtree(board / linked)
        (board / linked).symlink_to(theirs)
        programs = theirs / "system/bin".removeprefix(linked).lstrip("/")
    programs.mkdir(parents=True)
    (programs / "precious").touch()
    with pytest.raises(ConfigError, match="not made by a virtual board"):
        boot(board)
    assert [path.name for path in programs.iterdir()] == ["precious"]


def test_a_process_in_the_middle_of_an_exec_is_killed_too(
    tmp_path: Path, children: list["subprocess.Popen[bytes]"]
) -> None:
    box = boot(tmp_path)
    (tmp_path / "again").write_text('exec sh "$0"')
    for _ in range(20):
        child = process.start([*box.shell, "exec sh again"], env=box.environment, cwd=tmp_path)
        children.append(child)
        time.sleep(0.02)  # wherever it is by then
        kill_boot(box.boot_id)
        assert child.wait(30) == -9


def test_processes_that_left_their_session_are_found(
    tmp_path: Path, children: list["subprocess.Popen[bytes]"]
) -> None:
    box = boot(tmp_path)
    child = process.start([*box.shell, "setsid sleep 60 & echo $!; wait"], env=box.environment)
    children.append(child)
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    kill_boot(box.boot_id)
    child.wait(30)
    assert wait_until(lambda: not is_alive(pid), timeout=30, interval=0.01)
    kill_boot(box.boot_id)  # nothing is left: no matter


def test_a_process_is_counted_before_it_is_killed(
    tmp_path: Path, children: list["subprocess.Popen[bytes]"]
) -> None:
    """Whoever sees its end reads the count next."""
    box = boot(tmp_path)
    assert most_wasteful(box.boot_id) is None
    child = start_marked(box, ["sleep", "60"])
    children.append(child)
    assert most_wasteful(box.boot_id) == child.pid
    seen: list[int | None] = []
    assert kill_process(child.pid, box.boot_id, lambda: seen.append(child.poll()))
    assert seen == [None]
    assert child.wait(30) == -9
    assert not kill_process(child.pid, box.boot_id, lambda: seen.append(child.poll()))
    assert seen == [None]  # what is gone is not counted


def test_the_emulator_is_exported_in_words(tmp_path: Path) -> None:
    box = boot(tmp_path, emulator=["/usr/bin/qemu-aarch64-static", "-cpu", "cortex-a76"])
    assert (
        box.environment["LABCTL_SANDBOX_EMULATOR"] == "/usr/bin/qemu-aarch64-static -cpu cortex-a76"
    )
    assert "LABCTL_SANDBOX_EMULATOR" not in boot(tmp_path).environment


def test_a_shim_that_cannot_be_preloaded_is_refused(tmp_path: Path) -> None:
    """ld.so divides at blanks and colons, and each command would complain."""
    shim = tmp_path / "my cache" / "shim.so"
    with pytest.raises(ConfigError, match="cannot hold a blank"):
        boot(tmp_path, emulator=["/usr/bin/qemu-aarch64-static"], preload=shim)


@pytest.mark.parametrize("words", [["qemu-aarch64-static"], ["/opt/my qemu"], ["/bin/qemu", ""]])
def test_an_emulator_that_cannot_be_exported_is_refused(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(ConfigError, match="emulator"):
        boot(tmp_path, emulator=words)
    assert list(tmp_path.iterdir()) == []
