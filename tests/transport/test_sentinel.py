import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labctl.transport.sentinel import Framed


def through(shell: str, framed: Framed) -> bytes:
    return subprocess.run(
        [shell, "-c", framed.script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
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
        ("printf '\\377\\000z'", (0, b"\xff\0z")),
        ("a() { return 7; }; a", (7, b"")),
        ("echo out; echo err >&2", (0, b"out\nerr\n")),
    ],
)
def test_status_and_output_are_the_commands_own(command: str, result: tuple[int, bytes]) -> None:
    framed = Framed.around(command)
    assert framed.result(through("/bin/sh", framed)) == result


def test_death_by_a_signal_is_a_status() -> None:
    framed = Framed.around("sh -c 'kill -9 $$'")
    result = framed.result(through("/bin/sh", framed))
    assert result is not None
    assert result[0] == 128 + 9


def test_a_command_that_prints_its_own_frame_fools_nobody() -> None:
    framed = Framed.around("cat /proc/$PPID/cmdline /proc/$$/cmdline; exit 4")
    output = through("/bin/sh", framed)
    result = framed.result(output)
    assert result is not None
    assert result[0] == 4
    assert framed.nonce.encode() in result[1]


@given(st.binary(max_size=60), st.integers(0, 255), st.data())
def test_only_the_last_status_line_counts(printed: bytes, status: int, data: st.DataObject) -> None:
    framed = Framed.around("x")
    nonce = framed.nonce.encode()
    forged = data.draw(st.sampled_from([b"", b"\n" + nonce + b":0\n", nonce + b":1\n", b"\nx:0\n"]))
    output = nonce + b":123\n" + printed + forged + b"\n" + nonce + b":%d\n" % status
    assert framed.result(output) == (status, printed + forged)
    assert framed.process_id(output) == 123


@pytest.mark.parametrize(
    "output",
    [b"", b"{n}", b"{n}:12\n", b"{n}:12\npartial", b"{n}:12\n\n{n}:", b"{n}:12\n\n{n}:%d\n"],
)
def test_without_the_whole_last_line_there_is_no_status(output: bytes) -> None:
    framed = Framed.around("x")
    assert framed.result(output.replace(b"{n}", framed.nonce.encode())) is None


def test_nonces_are_never_used_twice() -> None:
    assert len({Framed.around("x").nonce for _ in range(100)}) == 100
