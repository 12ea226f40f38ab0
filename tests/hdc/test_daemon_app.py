"""install, uninstall, bugreport and track-jpid. Texts as seen, wire as in the source: not run."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import daemon
from jobs import is_alive
from raw_hdc import RawPeer, raw_host

from labctl.hdc.messages import TransferConfig, TransferPayload
from labctl.hdc.wire import Command
from labctl.retry import wait_until

_BM = """#!/bin/sh
echo "bm: $*"
case $1 in install) cat "$(eval echo \\${$#})";; esac
echo done
exit ${BM_STATUS:-0}
"""


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """A board's folder, with a package manager and a dumper."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "data/local/tmp").mkdir(parents=True)
    for name, text in (("bm", _BM), ("hidumper", "#!/bin/sh\necho dump\necho of it\n")):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


@pytest.fixture
def host(board: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RawPeer]:
    monkeypatch.setenv("PATH", f"{board}/bin:/usr/bin:/bin")
    with daemon(board) as address, raw_host(address) as peer:
        peer.shake_hands()
        yield peer


def install(host: RawPeer, content: bytes, options: str = "", name: str = "x.hap") -> bytes:
    """Send one package; how it was finished."""
    config = TransferConfig(
        len(content), options=options, optional_name=name, function_name="install"
    )
    host.send(3, Command.APP_CHECK, config.encode())
    assert host.receive() == (3, Command.APP_BEGIN, b"\5" + bytes(7))
    for offset in range(0, max(len(content), 1), 1000):
        body = content[offset : offset + 1000]
        area = TransferPayload(offset, 0, len(body), len(body)).encode_area()
        host.send(3, Command.APP_DATA, area + body)
    channel, command, data = host.receive()
    assert (channel, command) == (3, Command.APP_FINISH)
    return data


def test_packages_are_installed_one_after_the_other(host: RawPeer, board: Path) -> None:
    host.send(3, Command.WAKEUP_SLAVETASK)
    path = f"{board}/data/local/tmp/x.hap"
    said = ""
    for content in (b"package " * 400, b"small"):
        said += f"bm: install -p {path} {content.decode()}done "
        assert install(host, content) == b"\1\1" + said.encode()  # of all so far
        assert list((board / "data/local/tmp").iterdir()) == []
    said += f"bm: install -r -s {path} done "
    assert install(host, b"", "-r -s") == b"\1\1" + said.encode()
    host.send(3, Command.CHANNEL_CLOSE, b"\1")
    assert host.receive() == (3, Command.CHANNEL_CLOSE, b"\0")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("com.a.b", "\2\1bm: uninstall -n com.a.b done "),
        ("-k com.a.b", "\2\1bm: uninstall -k -n com.a.b done "),
        ("-n com.a.b", "\2\1bm: uninstall -n com.a.b done "),
        ('"-v 10001" com.a.b', "\2\1bm: uninstall -v 10001 -n com.a.b done "),
        ("-bundle-x com.a.b", "\2\1bm: uninstall -bundle-x -n com.a.b done "),
        ("-nodebug com.a.b", "\2\1bm: uninstall -nodebug com.a.b done "),
        ("-k com.a.b@2,c=d:e~f+g%h", "\2\1bm: uninstall -k -n com.a.b@2,c=d:e~f+g%h done "),
        ("-k; touch$IFS/x com.a.b", "\2\0Incorrect package name or option"),
    ],
)
def test_a_package_is_removed(host: RawPeer, words: str, said: str) -> None:
    host.send(3, Command.WAKEUP_SLAVETASK)
    host.send(3, Command.APP_UNINSTALL, words.encode() + b"\0")
    assert host.receive() == (3, Command.WAKEUP_SLAVETASK, b"")
    assert host.receive() == (3, Command.APP_FINISH, said.encode())


@pytest.mark.parametrize("sign", [*"|;&$<>`\\!", "\n"])
def test_what_a_shell_could_take_for_more_is_refused(host: RawPeer, board: Path, sign: str) -> None:
    host.send(3, Command.WAKEUP_SLAVETASK)
    host.send(3, Command.APP_UNINSTALL, f'"-k{sign}x" com.a.b'.encode())
    assert host.receive() == (3, Command.WAKEUP_SLAVETASK, b"")
    refused = b"Incorrect package name or option"
    assert host.receive() == (3, Command.APP_FINISH, b"\2\0" + refused)
    host.send(3, Command.CHANNEL_CLOSE, b"\0")
    host.send(3, Command.WAKEUP_SLAVETASK)
    assert install(host, b"x", f"-r{sign}x") == b"\1\0" + refused
    assert list((board / "data/local/tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-r", "-r -p"),
        ("-spare", "-spare"),
        ("-r -w 180", "-r -w 180 -p"),
        ("--preload", "--preload"),
        ("-rsp", "-rsp -p"),
    ],
)
def test_a_package_is_named_by_p_unless_the_options_do(
    host: RawPeer, board: Path, options: str, words: str
) -> None:
    host.send(3, Command.WAKEUP_SLAVETASK)
    said = f"bm: install {words} {board}/data/local/tmp/my (2).hap done "
    assert install(host, b"", options, "my (2).hap") == b"\1\1" + said.encode()


def test_options_that_could_do_harm_are_refused(host: RawPeer, board: Path) -> None:
    host.send(3, Command.WAKEUP_SLAVETASK)
    said = install(host, b"x", "-r; touch test001")
    assert said == b"\1\0Incorrect package name or option"
    assert not (board / "test001").exists()


def test_a_manager_that_fails_or_is_missing_is_told(host: RawPeer, board: Path) -> None:
    (board / "bin/bm").write_text("#!/bin/sh\necho error: no\nexit 3\n")
    host.send(3, Command.WAKEUP_SLAVETASK)
    assert install(host, b"x") == b"\1\0error: no "
    (board / "bin/bm").unlink()
    assert re.match(rb"\x01\x00error: no .*not found", install(host, b"x"))


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "x\0"])
def test_a_package_lands_nowhere_else(host: RawPeer, name: str) -> None:
    host.send(3, Command.WAKEUP_SLAVETASK)
    host.send(3, Command.APP_CHECK, TransferConfig(1, optional_name=name).encode())
    assert host.ended()


def test_a_manager_that_never_ends_is_ended_with_the_channel(host: RawPeer, board: Path) -> None:
    (board / "bin/bm").write_text("#!/bin/sh\necho $$ >pid\nexec sleep 1000\n")
    host.send(3, Command.WAKEUP_SLAVETASK)
    host.send(3, Command.APP_UNINSTALL, b"com.a.b")
    written = board / "pid"
    assert wait_until(lambda: written.exists() and written.read_text(), timeout=30, interval=0.01)
    installer = int(written.read_text())
    host.send(3, Command.CHANNEL_CLOSE, b"\1")
    assert wait_until(lambda: not is_alive(installer), timeout=30, interval=0.01)


def test_a_bug_report_is_what_the_dumper_prints(host: RawPeer) -> None:
    host.send(3, Command.BUGREPORT_INIT)
    *pieces, close = host.until_close(3)
    assert {command for command, _ in pieces} == {Command.BUGREPORT_DATA}
    assert b"".join(data for _, data in pieces) == b"dump\nof it\n"
    assert close == (Command.CHANNEL_CLOSE, b"\1")


@pytest.mark.parametrize("option", ["", "a", "p"])
def test_processes_to_debug_are_told_until_the_host_closes(host: RawPeer, option: str) -> None:
    host.send(3, Command.JDWP_TRACK, option.encode())
    assert host.receive() == (3, Command.ECHO, b"\x020000\n")
    assert host.is_silent()
    host.send(3, Command.CHANNEL_CLOSE, b"\1")
    assert host.receive() == (3, Command.CHANNEL_CLOSE, b"\0")
