import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labctl.transport.sentinel import Framed, FrameReader


class Read:
    """What a reader makes of an output that came in pieces of ``size`` bytes."""

    def __init__(self, framed: Framed, output: bytes, size: int = 1 << 20):
        self.printed = bytearray()
        self.errors = bytearray()
        apart = self.errors.extend if framed.separate_stderr else None
        reader = FrameReader(framed, self.printed.extend, apart)
        for start in range(0, len(output), size):
            reader.feed(output[start : start + size])
        reader.finish()
        self.status = reader.exit_status
        self.process_id = reader.process_id
        self.held = reader.held

    @property
    def result(self) -> tuple[int | None, bytes]:
        return self.status, bytes(self.printed)


def through(shell: str, framed: Framed, **environment: str) -> bytes:
    return subprocess.run(
        [shell, "-c", framed.script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        env={**os.environ, **environment},
    ).stdout


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("true", (0, b"")),
        ("exit 3", (3, b"")),
        ("echo a", (0, b"a\n")),
        ("printf a", (0, b"a")),
        ("printf '\\n\\n'", (0, b"\n\n")),
        ("echo a # comment", (0, b"a\n")),
        ("cat <<END\nhere\nEND", (0, b"here\n")),
        ("cat", (0, b"")),
        ("printf '\\377\\000\\036z\\036'", (0, b"\xff\0\x1ez\x1e")),
        ("a() { return 7; }; a", (7, b"")),
        ("echo out; echo err >&2", (0, b"out\nerr\n")),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_status_and_output_are_the_commands_own(
    command: str, result: tuple[int, bytes], size: int
) -> None:
    framed = Framed.around(command)
    assert Read(framed, through("/bin/sh", framed), size).result == result


@pytest.mark.parametrize("shell", ["/bin/sh", "bash", "mksh"])
def test_standard_error_is_kept_apart_and_nothing_is_left(shell: str, tmp_path: Path) -> None:
    command = "ls $TMPDIR; echo out; echo err >&2; sh -c 'printf more >&2; exit 5'"
    framed = Framed.around(command, separate_stderr=True)
    try:
        output = through(shell, framed, TMPDIR=str(tmp_path))
    except FileNotFoundError:
        pytest.skip(f"{shell} is not installed")
    read = Read(framed, output, 3)
    assert (read.result, read.errors) == ((5, b"out\n"), b"err\nmore")
    assert list(tmp_path.iterdir()) == []


def test_without_room_for_standard_error_nothing_is_run(tmp_path: Path) -> None:
    framed = Framed.around("echo run", separate_stderr=True)
    read = Read(framed, through("/bin/sh", framed, TMPDIR=str(tmp_path / "none")))
    assert (read.status, read.process_id) == (None, None)
    assert b"run\n" not in read.printed


def test_death_by_a_signal_is_a_status() -> None:
    framed = Framed.around("sh -c 'kill -9 $$'")
    assert Read(framed, through("/bin/sh", framed)).status == 128 + 9


def test_a_command_that_prints_its_own_frame_fools_nobody() -> None:
    framed = Framed.around("cat /proc/$PPID/cmdline /proc/$$/cmdline; exit 4")
    read = Read(framed, through("/bin/sh", framed))
    assert read.status == 4
    assert framed.nonce.encode() in read.printed


@given(st.binary(max_size=60), st.integers(0, 255), st.integers(1, 50), st.data())
def test_only_the_last_status_counts(
    printed: bytes, status: int, size: int, data: st.DataObject
) -> None:
    framed = Framed.around("x")
    nonce = framed.nonce.encode()
    mark = b"\x1e" + nonce
    forged = data.draw(
        st.sampled_from([b"", mark + b":0\n", mark + b":err\n", mark + b":1234\n", mark, b"\x1e"])
    )
    output = nonce + b":123\n" + printed + forged + mark + b":%d\n" % status
    read = Read(framed, output, size)
    assert read.result == (status, printed + forged)
    assert read.process_id == 123


def test_output_is_handed_on_at_once() -> None:
    framed = Framed.around("x")
    seen: list[bytes] = []
    reader = FrameReader(framed, seen.append)
    reader.feed(framed.nonce.encode() + b":12\n")
    for piece in (b"a prompt: ", b"line\n", b"labctl-", b"\n", b"\x1d"):
        reader.feed(piece)
        assert seen[-1] == piece
    reader.feed(b"\x1e")  # may be the beginning of the end
    assert len(seen) == 5
    reader.feed(b"!")
    assert b"".join(seen[5:]) == b"\x1e!"


@pytest.mark.parametrize(
    "output",
    [b"", b"{n}", b"{n}:12\n", b"{n}:12\npartial", b"{n}:12\n\x1e{n}:", b"{n}:12\n\x1e{n}:%d\n"],
)
def test_without_the_whole_mark_there_is_no_status(output: bytes) -> None:
    framed = Framed.around("x")
    sent = output.replace(b"{n}", framed.nonce.encode())
    for size in (1, 100):
        assert Read(framed, sent, size).status is None


@given(st.binary(max_size=80), st.integers(1, 9))
def test_output_without_a_frame_is_kept_whole(output: bytes, size: int) -> None:
    read = Read(Framed.around("x"), output, size)
    assert (read.status, bytes(read.printed) + read.held) == (None, output)
    assert read.process_id is None


def test_what_comes_before_a_frame_is_output_once_there_is_a_status() -> None:
    framed = Framed.around("echo x", separate_stderr=False)
    sent = b"WARNING: odd\n" + through("sh", framed)
    for size in (1, 7, 1000):
        read = Read(framed, sent, size)
        assert (read.status, read.held) == (0, b"")
        assert bytes(read.printed).startswith(b"WARNING: odd\n")
    long = Read(framed, b"y" * 100_000, 1000)  # live output is not held for ever
    assert len(long.printed) == 100_000


@pytest.mark.parametrize("shell", ["sh", "mksh"])
@pytest.mark.parametrize("apart", [False, True])
def test_of_a_command_with_a_bracket_too_many_nothing_is_run(shell: str, apart: bool) -> None:
    framed = Framed.around("echo run )", separate_stderr=apart, scratch="/tmp")
    read = Read(framed, through(shell, framed))
    assert (read.status, bytes(read.printed)) == (None, b"")
    assert b"yntax error" in read.held


def test_nonces_are_never_used_twice() -> None:
    assert len({Framed.around("x").nonce for _ in range(100)}) == 100
