import pytest
from answering import AnsweringTransport

from labctl.errors import IntegrityError
from labctl.transport import BoardHash

HASH = "a" * 64


def test_hash_and_size_are_read() -> None:
    board = AnsweringTransport(f"{HASH.upper()}  /a b c\n12\n")
    digest = BoardHash("sha256", ("sha256sum",)).ask(board, "/a b c", 1, 5)
    assert (digest.hexadecimal, digest.size_bytes) == (HASH, 12)
    assert board.commands == ["sha256sum '/a b c' && wc -c <'/a b c'"]


@pytest.mark.parametrize(
    "said", ["", "\n", HASH, f"{HASH}  /x\nwc: odd", f"{HASH}  /x\n-1", "abc  /x\n3", (1, "gone")]
)
def test_what_is_no_hash_and_size_is_no_proof(said: str | tuple[int, str]) -> None:
    board = AnsweringTransport(said)
    with pytest.raises(IntegrityError, match="cannot hash /x"):
        BoardHash("sha256", ("sha256sum",)).ask(board, "/x", 1, 5)
