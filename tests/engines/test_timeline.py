import pytest
from hypothesis import given
from hypothesis import strategies as st

from labctl.engines.timeline import STDERR, STDOUT, Chunk, parse_timeline
from labctl.errors import OutputNotUnderstood


def test_chunks_of_both_streams_in_order() -> None:
    timeline = parse_timeline(b"labctl-timeline 1 100\n110 2 0 5\n120 1 0 3\n120 2 5 1\n")
    assert timeline.start_mono_ns == 100
    assert timeline.of(STDOUT) == (Chunk(120, 1, 0, 3),)
    assert [chunk.end for chunk in timeline.of(STDERR)] == [5, 6]


def test_a_silent_program_has_no_chunks() -> None:
    assert parse_timeline(b"labctl-timeline 1 100\n").chunks == ()


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "does not begin"),
        (b"labctl-timeline 2 100\n", "does not begin"),
        (b"labctl-timeline 1 100\n110 1 0", "middle of a line"),
        (b"labctl-timeline 1 100\n110 3 0 5\n", "line 2 is not"),
        (b"labctl-timeline 1 100\n110 1 0 5\n109 1 5 5\n", "line 3 goes back"),
        (b"labctl-timeline 1 100\n99 1 0 5\n", "line 2 goes back"),
        (b"labctl-timeline 1 100\n110 1 0 5\n111 1 6 5\n", "line 3 does not follow"),
        (b"labctl-timeline 1 100\n110 1 0 0\n", "line 2 does not follow"),
    ],
)
def test_a_timeline_that_cannot_be_is_refused(raw: bytes, why: str) -> None:
    with pytest.raises(OutputNotUnderstood, match=why):
        parse_timeline(raw)


@given(st.binary(max_size=200))
def test_noise_is_refused_and_nothing_worse(noise: bytes) -> None:
    with pytest.raises(OutputNotUnderstood):
        parse_timeline(noise)
    try:
        chunks = parse_timeline(b"labctl-timeline 1 1\n" + noise).chunks
    except OutputNotUnderstood:
        chunks = ()
    assert all(chunk.length > 0 for chunk in chunks)
