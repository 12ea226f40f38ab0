"""What every transport owes its users, on each that there is."""

import os
import secrets
import socket
import stat
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labctl.errors import (
    BoardError,
    BoardNoSpace,
    BoardPermission,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    LinkError,
    LinkRefused,
    RemoteExit,
)
from labctl.retry import wait_until
from labctl.transport.base import TransferOptions, Transport, remote_words

OPTIONS = TransferOptions(timeout=30)


@pytest.mark.parametrize(
    ("command", "status", "output"),
    [
        ("true", 0, b""),
        ("exit 3", 3, b""),
        ("echo out; echo err >&2; exit 1", 1, b"out\nerr\n"),
        ("printf 'a\\000b\\377'", 0, b"a\0b\xff"),
        ("no-such-program-here 2>/dev/null", 127, b""),
        ("cat; echo end", 0, b"end\n"),
        ("echo a # b", 0, b"a\n"),
        ("echo '[Fail]Device not found'", 0, b"[Fail]Device not found\n"),
        ('"echo" "x  y"', 0, b"x  y\n"),
    ],
)
def test_commands_give_their_status_and_output(
    transport: Transport, command: str, status: int, output: bytes
) -> None:
    result = transport.run(command, timeout=30)
    assert (result.exit_status, result.output) == (status, output)
    assert result.command == command
    assert result.duration_ns > 0


def test_death_by_a_signal_is_a_status(transport: Transport) -> None:
    assert transport.run("sh -c 'kill -9 $$'", timeout=30).exit_status == 128 + 9


def test_check_raises_for_a_status_that_is_not_zero(transport: Transport) -> None:
    assert transport.run("true", timeout=30).check().exit_status == 0
    with pytest.raises(RemoteExit, match="status 4"):
        transport.run("echo why; exit 4", timeout=30).check()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.text(
            st.characters(exclude_characters="\0", exclude_categories=["Cs"])
            | st.sampled_from("'\"\\ $`\n;&|<>()*?[]#~=%!{}\t\r\x7f-"),
            max_size=30,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_words_arrive_as_they_are(transport: Transport, words: list[str]) -> None:
    said = transport.run(remote_words("printf", "%s\\0", *words), timeout=30)
    assert said.output == b"".join(word.encode() + b"\0" for word in words)


def test_large_output_arrives_whole(transport: Transport) -> None:
    said = transport.run("seq 1 200000", timeout=30).output
    assert len(said) == 1_288_895
    assert said == b"".join(b"%d\n" % n for n in range(1, 200_001))


def test_streams_can_be_kept_apart(transport: Transport) -> None:
    command = "echo out; echo err >&2; printf 'b\\377' >&2; exit 4"
    result = transport.run(command, timeout=30, separate_stderr=True)
    assert (result.exit_status, result.output, result.stderr) == (4, b"out\n", b"err\nb\xff")
    assert transport.run(command, timeout=30).stderr is None
    with pytest.raises(RemoteExit) as caught:
        result.check()
    assert caught.value.details is not None
    assert "err" in caught.value.details


def test_output_comes_live(transport: Transport, folder: str) -> None:
    go_on = remote_words(f"{folder}/go-on")
    seen: list[bytes] = []

    def write(piece: bytes) -> None:
        seen.append(piece)
        Path(f"{folder}/go-on").touch()  # what the command waits for

    command = f"echo first; while [ ! -e {go_on} ]; do sleep 0.01; done; echo err >&2; exit 3"
    assert transport.stream(command, timeout=30, write=write) == 3
    assert b"".join(seen) == b"first\nerr\n"


def is_gone(transport: Transport, command: str) -> bool:
    """Wait until no process runs a command: a killed one needs its turn on a busy host."""
    look = f"ps -ef | grep '[{command[0]}]{command[1:]}' || true"
    return wait_until(lambda: transport.run(look, timeout=30).text == "", timeout=20, interval=0.1)


def test_who_stops_reading_ends_the_command_and_its_children(transport: Transport) -> None:
    mine = f"48.{secrets.randbelow(10**9):09}"

    def write(piece: bytes) -> None:
        del piece
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transport.stream(f"sleep {mine} & echo x; sleep {mine}", timeout=20, write=write)
    assert is_gone(transport, f"sleep {mine}")


@pytest.mark.parametrize("apart", [False, True])
def test_commands_may_be_of_any_length(transport: Transport, apart: bool) -> None:
    words = [f"word-{number}" for number in range(30_000)]
    command = remote_words("printf", "%s ", *words) + "; echo é; (exit 6)"
    result = transport.run(command, timeout=20, separate_stderr=apart)
    assert result.exit_status == 6
    assert result.output.decode() == " ".join(words) + " é\n"
    assert transport.run("ls ${TMPDIR:-/tmp}/labctl-*.sh 2>/dev/null; :", timeout=30).output == b""


def test_a_command_without_an_end_is_stopped_with_all_its_children(transport: Transport) -> None:
    mine = f"47.{secrets.randbelow(10**9):09}"  # no other test's process has this name
    began = time.monotonic()
    with pytest.raises(CommandTimeout, match=r"2\.5 s"):  # its shell tells who it is before that
        transport.run(f"sleep {mine} & sleep {mine}", timeout=2.5)
    assert time.monotonic() - began < 20
    assert is_gone(transport, f"sleep {mine}")


def test_a_command_whose_shell_is_killed_has_no_status(transport: Transport) -> None:
    with pytest.raises(LinkError, match="no exit status"):
        transport.run("kill -9 $$", timeout=30)


def test_a_nul_byte_is_refused(transport: Transport) -> None:
    with pytest.raises(ConfigError, match="NUL"):
        transport.run("echo a\0b", timeout=30)


def test_half_a_surrogate_pair_is_refused(transport: Transport, folder: str) -> None:
    with pytest.raises(ConfigError, match="is not text"):
        transport.run("echo \ud800", timeout=30)
    with pytest.raises(ConfigError, match="is not text"):
        transport.pull(f"{folder}/\ud800", Path("x"), OPTIONS)


@pytest.mark.parametrize("size", [0, 1, 418_611, 418_612, 3_000_000])
def test_files_go_there_and_back(
    transport: Transport, folder: str, tmp_path: Path, size: int
) -> None:
    here, back = tmp_path / "here", tmp_path / "deep" / "back"
    here.write_bytes(os.urandom(size))
    seen: list[int] = []
    transport.push(here, f"{folder}/a b'$x", TransferOptions(timeout=30, progress=seen.append))
    transport.pull(f"{folder}/a b'$x", back, OPTIONS)
    assert back.read_bytes() == here.read_bytes()
    assert (seen[-1] if size else 0) == size
    assert seen == sorted(seen)
    assert stat.S_IMODE(back.stat().st_mode) == 0o644
    assert [path.name for path in back.parent.iterdir()] == ["back"]


def test_a_push_replaces_a_longer_file(transport: Transport, folder: str, tmp_path: Path) -> None:
    here = tmp_path / "here"
    for content in (b"a long first content", b"short"):
        here.write_bytes(content)
        transport.push(here, f"{folder}/x", OPTIONS)
    assert transport.run(remote_words("cat", f"{folder}/x"), timeout=30).output == b"short"


def test_a_failed_pull_leaves_nothing_and_keeps_what_was_there(
    transport: Transport, folder: str, tmp_path: Path
) -> None:
    local = tmp_path / "kept"
    local.write_bytes(b"old")
    with pytest.raises(BoardError, match="no such file"):
        transport.pull(f"{folder}/missing", local, OPTIONS)
    assert local.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["board", "kept"]


def test_errors_of_the_board_have_their_types(
    transport: Transport, folder: str, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.write_bytes(b"x" * 100)
    with pytest.raises(BoardError, match="no such file or directory"):
        transport.push(here, f"{folder}/no/such/x", OPTIONS)
    with pytest.raises(BoardNoSpace, match="storage is full"):
        transport.push(here, "/dev/full", OPTIONS)
    with pytest.raises(BoardPermission, match="refuses access"):  # read-only, also for root
        transport.push(here, "/sys/labctl-test", OPTIONS)
    with pytest.raises(BoardError, match=r"directory|folder is empty"):
        transport.pull(folder, tmp_path / "x", OPTIONS)


def test_sources_that_are_no_files_are_the_users_error(
    transport: Transport, folder: str, tmp_path: Path
) -> None:
    for local in (tmp_path / "missing", tmp_path):
        with pytest.raises(ConfigError, match="not a file on this host"):
            transport.push(local, f"{folder}/x", OPTIONS)


def test_unsafe_paths_are_refused_before_anything_is_done(
    transport: Transport, folder: str, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.write_bytes(b"x")
    for path in ("relative", f"{folder}/100%", f"{folder}/a\nb", f"{folder}/../x"):
        with pytest.raises(ConfigError, match="unsafe path"):
            transport.push(here, path, OPTIONS)
        with pytest.raises(ConfigError, match="unsafe path"):
            transport.pull(path, tmp_path / "x", OPTIONS)
    assert list(Path(folder).iterdir()) == []


def test_it_is_alive_and_close_can_be_called_twice(transport: Transport) -> None:
    assert transport.is_alive()
    transport.close()
    transport.close()
    assert transport.is_alive()  # a link is opened again when it is needed


def test_compressed_files_arrive_whole(transport: Transport, folder: str, tmp_path: Path) -> None:
    here, back = tmp_path / "here", tmp_path / "back"
    here.write_bytes(b"the same again, " * 100_000 + os.urandom(500_000))
    transport.push(here, f"{folder}/x", TransferOptions(timeout=30, compress=True))
    transport.pull(f"{folder}/x", back, TransferOptions(timeout=30, compress=True))
    assert back.read_bytes() == here.read_bytes() == Path(f"{folder}/x").read_bytes()


def test_ports_of_the_board_are_reached(transport: Transport) -> None:
    sent = os.urandom(300_000)  # more than one packet of any link, in both directions
    with socket.create_server(("127.0.0.1", 0)) as service:

        def answer() -> None:
            connection, _ = service.accept()
            with connection:
                got = b""
                while len(got) < len(sent):
                    got += connection.recv(1 << 16)
                connection.sendall(got[::-1])

        answering = threading.Thread(target=answer)
        answering.start()
        with transport.connect(service.getsockname()[1], timeout=30) as stream:
            stream.send(sent)
            back = b""
            while piece := stream.receive(1000):
                assert len(piece) <= 1000
                back += piece
            assert stream.receive(1) == b""
        answering.join()
    assert back[::-1] == sent


def test_a_silent_port_is_not_waited_for_without_end(transport: Transport) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as service,
        transport.connect(service.getsockname()[1], timeout=30) as stream,
    ):
        stream.timeout = 0.3
        with pytest.raises(CommandTimeout):
            stream.receive(1)


def test_a_port_where_nothing_listens_gives_nothing(transport: Transport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        port = service.getsockname()[1]

    def reach() -> None:
        with transport.connect(port, timeout=30) as stream:
            # An hdc server accepts before it knows.
            assert stream.receive(1) == b""
            raise DeviceLost("the connection was cut at once")

    with pytest.raises((LinkRefused, DeviceLost)):
        reach()
