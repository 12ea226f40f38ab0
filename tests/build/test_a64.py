"""The table of encodings against what a disassembler calls each word."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from labctl.build import a64

WORDS = Path(__file__).parents[1] / "fixtures" / "a64_words.txt"


def known() -> list[tuple[int, str, str]]:
    lines = [line.split() for line in WORDS.read_text().splitlines() if line[0] != "#"]
    return [(int(word, 16), extension, mnemonic) for word, extension, mnemonic in lines]


def extensions(word: int) -> set[str]:
    return {name for name, _ in a64.find(np.array([word], dtype=np.uint32))}


def test_every_word_is_of_the_extension_that_a_disassembler_says() -> None:
    wrong = [
        (f"{word:08x}", mnemonic, extension, found)
        for word, extension, mnemonic in known()
        if (found := extensions(word)) != ({extension} - {"-"})
    ]
    assert wrong == []


def test_every_extension_of_the_table_has_a_witness() -> None:
    assert {extension for _, extension, _ in known()} - {"-"} == set(a64.EXTENSIONS)


def test_positions_are_those_of_the_words() -> None:
    sdot, cntd, nop = 0x4E829420, 0x04E0E3E0, 0xD503201F
    words = np.array([nop, sdot, nop, cntd, sdot], dtype=np.uint32)
    found = {name: positions.tolist() for name, positions in a64.find(words)}
    assert found == {"asimddp": [1, 4], "sve": [3]}


@given(st.integers(0, 2**32 - 1))
def test_no_word_is_of_two_extensions(word: int) -> None:
    assert len(extensions(word)) <= 1
