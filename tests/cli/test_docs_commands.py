"""Commands in the documents: each exists, with the options that a page gives it."""

import re
from pathlib import Path

import click
import pytest
from doc_commands import Written, block_commands

from labctl.cli.root import cli
from labctl.package_data import DOCS

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]

#: Options that a page names as ones that labctl refuses: (page, option).
REFUSED: set[tuple[str, str]] = set()


def named_commands(page: Path) -> list[Written]:
    """Return the commands that a page names in its text: `labctl run RECIPE [--set key=value]`."""
    text = re.sub(
        r"```.*?```", lambda block: "\n" * block[0].count("\n"), page.read_text(), flags=re.S
    )
    found = []
    for match in re.finditer(r"`labctl ([^`]*)`", text):
        words = re.sub(r"[\[\]…]|\\\|", " ", match[1]).split()
        found.append(Written(page.name, text.count("\n", 0, match.start()) + 1, tuple(words)))
    return found


def command_of(words: tuple[str, ...]) -> tuple[click.Command, list[str], list[str]]:
    """Return the command that words name, its path, and the words after it."""
    command: click.Command = cli
    context = click.Context(cli, info_name="labctl")
    rest, path = list(words), []
    while isinstance(command, click.Group):
        valued = {
            name
            for one in command.get_params(context)
            if isinstance(one, click.Option) and not one.is_flag
            for name in one.opts
        }
        while rest and rest[0].startswith("-"):  # options of the group itself
            rest = rest[2:] if rest[0] in valued else rest[1:]
        found = command.get_command(context, rest[0].split("|")[0]) if rest else None
        if found is None:
            break
        path.append(rest.pop(0))
        command, context = found, click.Context(found, info_name=path[-1], parent=context)
    return command, path, rest


def options_of(command: click.Command) -> set[str]:
    """Return all options of a command, with those that every command takes."""
    context = click.Context(command)
    own = {name for one in command.get_params(context) for name in (*one.opts, *one.secondary_opts)}
    root = {name for one in cli.get_params(click.Context(cli)) for name in one.opts}
    return own | root | {"--help"}


def options_in(words: list[str]) -> list[str]:
    """Return the options among words; nothing after --, which is another program's."""
    before = words[: words.index("--")] if "--" in words else words
    split = [piece for word in before for piece in re.split(r"[|,]", word)]
    return [
        word.partition("=")[0].rstrip(".:;)") for word in split if re.match(r"--?[a-zA-Z]", word)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page_are_there(page: Path) -> None:
    wrong = []
    for written in (*block_commands(page), *named_commands(page)):
        command, path, rest = command_of(written.words)
        if not path:
            if written.words and not written.words[0].startswith("-"):
                wrong.append(f"{written}: no such command")
            continue
        if isinstance(command, click.Group) and not command.invoke_without_command:
            first = rest[0] if rest else ""
            if re.fullmatch(r"[a-z-]+", first):
                wrong.append(f"{written}: no such command")
        known = options_of(command)
        if command.context_settings.get("ignore_unknown_options"):
            continue
        wrong += [
            f"{written}: no option {name}"
            for name in options_in(rest)
            if name not in known
            and not (len(name) > 2 and name[1] != "-" and name[:2] in known)
            and (written.page, name) not in REFUSED
        ]
    assert not wrong, "\n".join(wrong)


def test_blocks_are_found() -> None:
    """A reader that finds nothing would find nothing wrong."""
    commands = [one for page in PAGES for one in block_commands(page)]
    assert len(commands) > 100
    assert any(one.words[:2] == ("run", "recipes/first.yaml") for one in commands)
