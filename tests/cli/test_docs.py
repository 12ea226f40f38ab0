"""``labctl docs``, and pages that a person reads to the end."""

import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from labctl.cli.commands import GROUPS
from labctl.cli.root import run_cli
from labctl.errors import ExitStatus
from labctl.package_data import DOCS

ROOT = Path(__file__).parents[2]

#: Pages to read from beginning to end; the others are looked things up in.
GUIDES = ["getting-started", "first-recipe", "measuring", "hosts", "reproducing"]

PAGES = sorted(path.stem for path in DOCS.glob("*.md"))


def test_every_page_is_listed_with_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["docs"]) == ExitStatus.OK
    lines = capsys.readouterr().out.splitlines()
    for page in PAGES:
        (line,) = [line for line in lines if line.split()[:1] == [page]]
        title = (DOCS / f"{page}.md").read_text().splitlines()[0].removeprefix("# ")
        assert line.split(None, 1)[1] == title
    assert lines.index(next(x for x in lines if "getting-started" in x)) < 3, "guides come first"
    references = lines.index("References:")
    for guide in ("serving", "farm"):
        assert references > next(k for k, x in enumerate(lines) if x.split()[:1] == [guide])


def test_a_page_in_a_pipe_is_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["docs", "glossary"]) == ExitStatus.OK
    assert capsys.readouterr().out == (DOCS / "glossary.md").read_text()


def test_a_page_that_is_not_there_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["docs", "recipe"]) == ExitStatus.CONFIG
    assert "recipes" in capsys.readouterr().err


def test_on_a_terminal_a_page_goes_through_the_pager(tmp_path: Path) -> None:
    mine, theirs = pty.openpty()
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\nsed "s/^/paged /"\n')
    pager.chmod(0o700)
    environment = {**os.environ, "PAGER": str(pager), "COLUMNS": "80", "TERM": "xterm"}
    words = [sys.executable, "-m", "labctl", "docs", "glossary"]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, env=environment) as running:
        os.close(theirs)
        shown = b""
        while piece := _read(mine):
            shown += piece
        assert running.wait(timeout=60) == 0
    os.close(mine)
    lines = [click.unstyle(line) for line in shown.decode().splitlines()]
    assert all(line.startswith("paged ") for line in lines)
    assert any("epoch" in line and "A number that grows" in line for line in lines)
    assert max(map(len, lines)) <= 80 + len("paged ")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other end is closed
        return b""


def test_the_wheel_carries_the_pages() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert data["targets"]["wheel"]["force-include"]["docs"] == "labctl/_shipped/docs"


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_is_at_most_a_thousand_words(guide: str) -> None:
    words = len((DOCS / f"{guide}.md").read_text().split())
    assert words <= 1000


def test_the_documents_stay_readable() -> None:
    assert len(PAGES) <= 28
    assert sum(len((DOCS / f"{page}.md").read_text().split()) for page in PAGES) <= 45_000


@pytest.mark.parametrize("page", [*PAGES, "../README"])
def test_links_lead_somewhere(page: str) -> None:
    path = DOCS / f"{page}.md"
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not link.startswith("http"):
            assert (path.parent / link).exists(), f"{page}: {link}"


@pytest.mark.parametrize(
    "page",
    [
        "getting-started", "recipes", "devices", "architecture", "measuring", "farm", "security",
        "glossary", "hdc", "building", "models", "accuracy", "comparing", "ci",
    ],
)  # fmt: skip
def test_pages_that_people_look_for_are_there(page: str) -> None:
    assert page in PAGES
    assert f"docs/{page}.md" in (ROOT / "README.md").read_text()


def test_the_readme_has_the_groups_of_the_help() -> None:
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| (`[^|]+) \|", text, re.MULTILINE)
    named = {group: re.findall(r"`([a-z-]+)`", commands) for group, commands in rows}
    assert named == {group: list(commands) for group, commands in GROUPS.items()}
