"""Every ``--help`` ends with an example that labctl itself understands."""

import re
import shlex
from pathlib import Path

import click
import pytest
from commands import all_commands, parse

ROOT = Path(__file__).parents[2]


def examples(command: click.Command) -> list[str]:
    """Command lines after ``Example:`` or ``Examples:``, between semicolons."""
    found = re.match(r"Examples?: (.*)", command.epilog or "", re.DOTALL)
    return [line.strip() for line in found[1].split("; ")] if found else []


@pytest.mark.parametrize(("words", "command"), all_commands(), ids=lambda x: str(x)[:40])
def test_the_example_of_each_help_parses(
    words: tuple[str, ...], command: click.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    lines = examples(command)
    assert lines, f"labctl {' '.join(words)} --help has no example"
    for line in lines:
        shell = re.search(r"\$\((.*)\)", line)
        program, *rest = shlex.split((shell[1] if shell else line).partition(" > ")[0])
        assert program == "labctl"
        named, meant = parse(rest)
        # A command with two names, as `send` and `push`, has one example.
        assert named[: len(words)] == words or meant.callback is command.callback, line


def test_an_example_that_is_wrong_is_noticed() -> None:
    with pytest.raises(click.UsageError):
        parse(["report", "latest", "--from", "experiment"])
