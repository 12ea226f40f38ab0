"""By its token a host knows a lease again that one of its processes took."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from labctl.board.lease import Lease
from labctl.errors import HostError
from labctl.runs.board.own_tokens import is_own_token, new_own_token, secret_path

pytestmark = pytest.mark.usefixtures("private_state")


def test_a_token_is_known_again_on_its_host_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = new_own_token()
    assert is_own_token(token)
    monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "other"))
    assert not is_own_token(token)
    assert not secret_path().exists()  # a question makes none
    new_own_token()
    assert not is_own_token(token)


def test_no_other_text_is_an_own_token() -> None:
    token = new_own_token()
    nonce, signature = token[:16], token[16:]
    others = ["", nonce, signature, "0" * 16 + signature, nonce + "0" * 64, nonce + "é" * 64]
    others += [token + "0", token.upper(), " " + token[1:], "\udcff" * 16 + signature]
    assert [text for text in others if is_own_token(text)] == []


def test_tokens_take_no_space_and_their_secret_is_the_users_own() -> None:
    made = [new_own_token() for _ in range(100)]
    assert len(set(made)) == 100
    assert all(is_own_token(token) for token in made)
    folder = secret_path().parent
    assert sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) < 100
    assert stat.S_IMODE(secret_path().stat().st_mode) == 0o600


def test_a_lease_with_it_is_one_that_the_agent_reads() -> None:
    """The agent's buffer for a lease has 4096 bytes, and a board's own state has one line."""
    line = "x" * 255
    lease = Lease(line, 1 << 52, line, line, new_own_token(), line)
    assert len(json.dumps(vars(lease))) < 4096


MAKES = """
import sys
from labctl.runs.board.own_tokens import new_own_token
sys.stdin.readline()
print(new_own_token())
"""


def test_processes_that_begin_at_the_same_moment_share_one_secret() -> None:
    words = [sys.executable, "-c", MAKES]
    started = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    made = [process.communicate(timeout=60)[0].strip() for process in started]
    assert len(set(made)) == 8
    assert all(is_own_token(token) for token in made)


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"z" * 64, b"0" * 63, b"0" * 66, None])
def test_a_secret_that_cannot_be_read_is_said(content: bytes | None) -> None:
    token = new_own_token()
    secret_path().unlink()
    if content is None:
        secret_path().mkdir()
    else:
        secret_path().write_bytes(content)
    for use in (new_own_token, lambda: is_own_token(token)):
        with pytest.raises(HostError, match=r"cannot read .*lease-secret.*: (it is damaged|Is a)"):
            use()
    if content is not None:
        assert secret_path().read_bytes() == content  # it may be mended
