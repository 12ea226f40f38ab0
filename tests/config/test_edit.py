"""Changes of YAML files as text."""

import pytest
import yaml

from labctl.config.yaml.edit import add_entry, remove_entry, remove_key
from labctl.errors import ConfigError

TEXT = """\
# the lab of the third floor
default_board: rk1   # the one on the desk

boards:
  # the good one
  rk1:
    target: rk3568
    tags: [a,
           b]

  # it needs a fan

  rk2:
      target: "rk3588"
      description: |
        two
        lines
  # nothing below
build_hosts:
  big: {address: "10.0.0.1"}
"""
ENTRY = "rk3:\n  target: rk3568\n"


def test_an_entry_is_added_where_the_others_end() -> None:
    changed = add_entry(TEXT, "boards", ENTRY)
    added = "  rk3:\n    target: rk3568\n"
    assert changed == TEXT.replace("  # nothing below\n", f"  # nothing below\n{added}")
    document = yaml.safe_load(TEXT)
    document["boards"]["rk3"] = {"target": "rk3568"}
    assert yaml.safe_load(changed) == document


@pytest.mark.parametrize("name", ["rk1", "rk2"])
def test_an_entry_leaves_with_what_was_said_of_it(name: str) -> None:
    changed = remove_entry(TEXT, "boards", name)
    document = yaml.safe_load(TEXT)
    del document["boards"][name]
    assert yaml.safe_load(changed) == document
    assert ("the good one" in changed) == (name != "rk1")
    assert all(text in changed for text in ("third floor", "needs a fan", "nothing below"))


@pytest.mark.parametrize(
    "empty", ["boards:", "boards: {}", "boards: null", "x: 1\nboards: {} # none"]
)
def test_the_first_entry_and_the_last(empty: str) -> None:
    added = add_entry(empty, "boards", ENTRY)
    assert yaml.safe_load(added)["boards"] == {"rk3": {"target": "rk3568"}}
    assert ("# none" in added) == ("# none" in empty)
    assert yaml.safe_load(remove_entry(added, "boards", "rk3"))["boards"] == {}


def test_a_file_without_the_section_gets_it() -> None:
    assert add_entry("", "models", "m: {file: x}\n") == "models:\n  m: {file: x}\n"
    assert add_entry("# mine", "models", "m: {file: x}\n").startswith("# mine\nmodels:\n")


def test_a_section_in_braces_is_left_alone() -> None:
    text = "boards: {rk1: {target: rk3568}}\n"
    for change in (
        lambda: add_entry(text, "boards", ENTRY),
        lambda: remove_entry(text, "boards", "rk1"),
    ):
        with pytest.raises(ConfigError, match="not written as a block"):
            change()
    with pytest.raises(ConfigError, match="no 'rk9' in boards"):
        remove_entry(TEXT, "boards", "rk9")


def test_a_key_is_removed() -> None:
    assert "default_board" not in remove_key(TEXT, "default_board")
    assert remove_key(TEXT, "lab") == TEXT


COMMENTED = """\
# The boards of this lab.
# All keys: docs/devices.md
default_board: a # CI
                 # and the nightly runs

boards:
  # --- rack A -------------
  # the fast one
  a:
    target: rk3568
    # limits: {max_time: 8h}

    # tags: [old]

  # old:
  #   target: rk3568
  b:
    target: rk3568
    # limits: {max_time: 9h}

  # c:
  #   target: rk3568
# The hosts.
build_hosts: {}
"""


def test_comments_inside_an_entry_belong_to_it() -> None:
    changed = add_entry(COMMENTED, "boards", ENTRY)
    added = "  # c:\n  #   target: rk3568\n  rk3:\n    target: rk3568\n# The hosts.\n"
    assert changed == COMMENTED.replace("  # c:\n  #   target: rk3568\n# The hosts.\n", added)
    assert remove_entry(changed, "boards", "rk3") == COMMENTED
    without = remove_entry(COMMENTED, "boards", "b")
    b = "  b:\n    target: rk3568\n    # limits: {max_time: 9h}\n"
    assert without == COMMENTED.replace(b, "")


def test_of_the_comments_above_only_what_is_about_the_entry_leaves() -> None:
    without = remove_entry(COMMENTED, "boards", "a")
    start, end = COMMENTED.index("  # the fast one"), COMMENTED.index("\n  # old")
    assert without == COMMENTED[:start] + COMMENTED[end:]
    plain = "x:\n  a: 1\n\n  # first\n\n  # second\n  # and on\n  b: 2\n"
    assert remove_entry(plain, "x", "b") == "x:\n  a: 1\n\n  # first\n\n"


def test_a_key_leaves_with_its_comments_and_the_head_of_the_file_stays() -> None:
    gone = "default_board: a # CI\n                 # and the nightly runs\n"
    assert remove_key(COMMENTED, "default_board") == COMMENTED.replace(gone, "")
    text = "boards: {}\n# CI uses it\ndefault_board: a\n"
    assert remove_key(text, "default_board") == "boards: {}\n"


def test_line_ends_stay() -> None:
    text = COMMENTED.replace("\n", "\r\n")
    changed = add_entry(text, "boards", ENTRY)
    assert changed.count("\n") == changed.count("\r\n") == text.count("\n") + 2
    assert remove_entry(changed, "boards", "rk3") == text
    assert add_entry("a: 1\r\nb: 2", "boards", ENTRY).count("\r\n") == 5


def test_a_text_that_is_wrong_halfway_is_refused() -> None:
    text = "boards:\n  a: &a {target: rk3568}\n  b: *a\n"
    with pytest.raises(ConfigError, match="undefined alias"):
        remove_entry(remove_entry(text, "boards", "a"), "boards", "b")
