import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labctl.errors import OutputNotUnderstood
from labctl.evaluation.endpoints.events import EventReader
from labctl.evaluation.endpoints.tokens import ends_of_pieces

STREAM = b": a comment\r\ndata: {1}\r\n\r\nevent: x\ndata: two\ndata:  lines\n\n\n"
STREAM += b"error: {3}\n\ndata: cut"


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_are_the_same_wherever_the_pieces_end(cuts: list[int]) -> None:
    found: list[tuple[int, bytes]] = []
    reader = EventReader(lambda stamp, data: found.append((stamp, data)))
    edges = [0, *sorted(cuts), len(STREAM)]
    for stamp, (begin, end) in enumerate(itertools.pairwise(edges)):
        reader.feed(STREAM[begin:end], stamp)
    assert [data for _, data in found] == [b"{1}", b"two\n lines", b'{"error": {3}}']
    assert sorted(stamp for stamp, _ in found) == [stamp for stamp, _ in found]


def test_a_stream_without_end_is_ended_by_its_size() -> None:
    reader = EventReader(lambda _stamp, _data: None, most_bytes=100_000)
    for _ in range(10):
        reader.feed(b"data: {}\n\n" * 1000, 0)
    with pytest.raises(OutputNotUnderstood, match="has no end: 100001 bytes"):
        reader.feed(b"\n", 0)


@given(st.text(min_size=1), st.data())
def test_ends_of_any_pieces_are_those_of_a_stream(text: str, data: st.DataObject) -> None:
    content = text.encode()
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=8))
    edges = [0, *sorted(cuts), len(content)]
    pieces = [content[begin:end] for begin, end in itertools.pairwise(edges)]
    ends = ends_of_pieces(pieces, text)
    assert ends is not None
    assert [text[:end] for end in ends] == [
        content[:end].decode(errors="ignore") for end in edges[1:]
    ]


def test_pieces_of_another_text_have_no_ends() -> None:
    assert ends_of_pieces(["a", "b"], "ac") is None
    assert ends_of_pieces(["\ufffd", "\ufffd"], "é") is None
    assert ends_of_pieces(["ab", "<stop", ">"], "ab") == (2, 2, 2)
