import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labctl.errors import ProtocolError
from labctl.hdc.lz4_chunks import compress_chunk, decompress_chunk


@given(st.binary(max_size=5000) | st.builds(lambda b, n: b * n, st.binary(max_size=9), st.just(99)))
def test_what_shrinks_comes_back(data: bytes) -> None:
    packed = compress_chunk(data)
    if packed is not None:
        assert len(packed) < len(data)
        assert decompress_chunk(packed, len(data)) == data


def test_text_shrinks_and_noise_does_not() -> None:
    assert compress_chunk(b"the quick brown fox\n" * 1000) is not None
    assert compress_chunk(os.urandom(5000)) is None
    assert compress_chunk(b"") is None


def test_a_recorded_block_is_read() -> None:
    block = bytes.fromhex("ff0774686520717569636b2062726f776e20666f7820310a1600")
    with pytest.raises(ProtocolError):  # cut short
        decompress_chunk(block, 66_000)
    assert decompress_chunk(b"\x50hello", 5) == b"hello"


@pytest.mark.parametrize(
    ("data", "size", "says"),
    [
        (b"", 66_000, "holds none"),  # what 3.1.0e makes of data that does not shrink
        (b"\x50hello", 6, "holds 5"),
        (b"\x50hello", 4, "damaged"),
        (b"\xff" * 30, 1 << 40, "too many"),
        (b"\xff" * 30, 500, "damaged"),
    ],
)
def test_damaged_blocks_are_told(data: bytes, size: int, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        decompress_chunk(data, size)


def test_an_empty_file_is_an_empty_block() -> None:
    assert decompress_chunk(b"", 0) == b""


@given(st.binary(max_size=200), st.integers(0, 2**64 - 1))
def test_any_bytes_are_a_value_of_that_size_or_an_error(data: bytes, size: int) -> None:
    with suppress(ProtocolError):
        assert len(decompress_chunk(data, size)) == size
