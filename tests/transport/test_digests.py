from hashlib import sha256

import pytest

from labctl.errors import IntegrityError
from labctl.transport.file_transfer import BoardHash
from labctl.transport.testing import ScriptedTransport

HASH = "a" * 64


def test_hash_and_size_are_read() -> None:
    board = ScriptedTransport(f"{HASH.upper()}  /a b c\n12\n")
    digest = BoardHash("sha256", ("sha256sum",)).ask(board, "/a b c", 1, 5)
    assert (digest.hexadecimal, digest.size_bytes) == (HASH, 12)
    assert board.commands == ["sha256sum '/a b c' && wc -c <'/a b c'"]


@pytest.mark.parametrize(
    "said", ["", "\n", HASH, f"{HASH}  /x\nwc: odd", f"{HASH}  /x\n-1", "abc  /x\n3", (1, "gone")]
)
def test_what_is_no_hash_and_size_is_no_proof(said: str | tuple[int, str]) -> None:
    board = ScriptedTransport(said)
    with pytest.raises(IntegrityError, match="cannot hash /x"):
        BoardHash("sha256", ("sha256sum",)).ask(board, "/x", 1, 5)


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 20, 25])
@pytest.mark.parametrize("piece", [1, 3, 10, 25])
def test_a_hash_by_parts(length: int, piece: int) -> None:
    data = bytes(range(length))
    digest = BoardHash("sha256", ("agent", "hash", "--parts", "10"), 10).digest()
    for start in range(0, length, piece):
        digest.update(data[start : start + piece])
    parts = [sha256(data[start : start + 10]).digest() for start in range(0, length, 10)]
    assert digest.hexadecimal == sha256(b"".join(parts)).hexdigest()
    assert digest.size_bytes == length
