"""``labctl docs``."""

import sys

import click

from labctl.cli.complete import PAGE
from labctl.errors import ConfigError
from labctl.package_data import DOCS, GUIDES, pages
from labctl.suggestions import unknown

#: Options of `less`: keep colours, quit if the page fits, leave it on the screen.
_LESS = "-RFX"


@click.command(epilog="Example: labctl docs getting-started")
@click.argument("page", required=False, shell_complete=PAGE)
def docs(page: str | None) -> None:
    """Print a page of the documentation.

    Without PAGE, lists the pages. On a terminal, shows the page in the pager ($PAGER).
    """
    if page is None:
        _list()
        return
    path = DOCS / f"{page.removesuffix('.md')}.md"
    if path not in set(DOCS.glob("*.md")):
        raise ConfigError(unknown("page", page, pages()), hint="`labctl docs` lists the pages")
    text = path.read_text(encoding="utf-8")
    if sys.stdout.isatty():
        _page(text)
    else:
        click.echo(text, nl=False)


def _list() -> None:
    known = pages()
    width = max(map(len, known))
    for heading, names in (("Guides:", GUIDES), ("References:", known[len(GUIDES) :])):
        click.echo(heading)
        for name in names:
            title = (
                (DOCS / f"{name}.md")
                .read_text(encoding="utf-8")
                .partition("\n")[0]
                .removeprefix("# ")
            )
            click.echo(f"  {name:{width}}  {title}")


def _page(text: str) -> None:
    """Render a page for the terminal and show it in the pager."""
    import os

    from rich.console import Console
    from rich.markdown import Markdown

    from labctl.process import elsewhere

    console = Console()
    with console.capture() as capture:
        console.print(Markdown(text, hyperlinks=False))
    os.environ.setdefault("LESS", _LESS)
    with elsewhere():
        click.echo_via_pager(capture.get(), color=True)
