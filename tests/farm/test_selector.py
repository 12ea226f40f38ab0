"""Selectors of boards."""

import pytest

from labctl.errors import ConfigError
from labctl.farm.selector import BoardSelector, SelectableBoard

GIB = 2**30
BOARDS = [
    SelectableBoard("rk1", "rk3568", ("fast", "desk"), "hdc", 4 * GIB, "good"),
    SelectableBoard("rk2", "rk3568", ("slow",), "hdc", 8 * GIB, "bad"),
    SelectableBoard("pi", "host-aarch64", (), "ssh"),
]


def chosen(text: str) -> list[str]:
    return BoardSelector.parse(text).select(BOARDS)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("target=rk3568", ["rk1", "rk2"]),
        ("target=rk3568, tag=fast", ["rk1"]),
        ("tag=fast,tag=desk", ["rk1"]),
        ("tag!=fast", ["rk2", "pi"]),
        ("board=rk*", ["rk1", "rk2"]),
        ("memory>=4GB", ["rk1", "rk2"]),
        ("memory>4GiB", ["rk2"]),
        ("memory < 8GiB", ["rk1"]),
        ("memory=8GiB", ["rk2"]),
        ("health=good", ["rk1"]),
        ("health!=bad", ["rk1", "pi"]),
        ("transport=ssh", ["pi"]),
    ],
)
def test_boards_are_selected_by_what_they_are(text: str, names: list[str]) -> None:
    assert chosen(text) == names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "an empty condition"),
        ("target=rk3568,", "an empty condition"),
        ("fast", "'fast' in 'fast' is not a condition such as tag=fast"),
        ("taget=x", r"'taget' in 'taget=x' is unknown \(did you mean 'target'\?\)"),
        ("tag>fast", "tag allows only = and !="),
        ("memory>=lots", "'memory>=lots' in 'memory>=lots'"),
        ("target=rk9", "no board fits 'target=rk9': none is target=rk9"),
        ("tag=slow,tag=fast", "none meets all of these conditions at once"),
    ],
)
def test_a_wrong_selector_is_one_clear_error(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        chosen(text)


def test_a_board_counts_with_the_memory_that_it_is_sold_with() -> None:
    from labctl.config.lab import Board
    from labctl.farm.selector import selectable
    from labctl.transport.hdc import HdcTcpConfig

    board = Board(target="rk3568", transport=HdcTcpConfig(address="127.0.0.1:1"))
    assert selectable(board, memory=3_870_000_000).memory == 4 * GIB
    assert selectable(board).memory is None


def test_boards_for_untrusted_recipes_are_meant_by_that_word_alone() -> None:
    boards = [
        SelectableBoard("rk1", "rk3568"),
        SelectableBoard("spare", "rk3568", untrusted=True),
    ]
    for text, names in (
        ("target=rk3568", ["rk1"]),
        ("board=*", ["rk1"]),
        ("untrusted=yes", ["spare"]),
        ("target=rk3568,untrusted=no", ["rk1"]),
    ):
        assert BoardSelector.parse(text).select(boards) == names
    with pytest.raises(ConfigError, match="no board fits"):
        BoardSelector.parse("board=spare").select(boards)
