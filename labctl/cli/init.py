"""``labctl init``."""

import re
from pathlib import Path

import click

from labctl.config.lab import FILE_NAME
from labctl.config.names import NAME_RULE, is_name
from labctl.config.target import load_target
from labctl.config.templates import devices_yaml, recipe_yaml
from labctl.config.types import split_endpoint
from labctl.errors import ConfigError
from labctl.files import host_reads, write_atomic
from labctl.transport.attached import AttachedBoard, attached_boards

_FIRST_RECIPE = Path("recipes") / "first.yaml"


@click.command(epilog="Example: labctl init --address rk1=192.168.1.20:5555")
@click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="[NAME=]HOST:PORT",
    help="A board whose hdc daemon listens on TCP; may be given several times.",
)
@click.option("--target", default="rk3568", show_default=True, help="What the boards are.")
@click.argument(
    "folder", type=click.Path(path_type=Path, file_okay=False), default=Path(), required=False
)
def init(folder: Path, addresses: tuple[str, ...], target: str) -> None:
    """Write a first devices.yaml and recipe.

    Finds boards that an `hdc` program on this host knows, writes devices.yaml and
    recipes/first.yaml into FOLDER (default: here), and says what to do next. Existing files are
    never overwritten.
    """
    devices, recipe = folder / FILE_NAME, folder / _FIRST_RECIPE
    for path in (devices, recipe):
        with host_reads(path):
            if path.exists():
                raise ConfigError(
                    f"{path} exists already", hint="edit it, or run `labctl init OTHER_FOLDER`"
                )
    load_target(target, folder)
    found: dict[str, str] = {}
    for text in addresses:
        name, address = _named(text)
        if name in found:
            raise ConfigError(f"--address {text}: another board is called {name!r} already")
        found[name] = address
    for board in attached_boards():
        _take(board, found)
    text = devices_yaml(found, target=target)
    write_atomic(devices, text)
    write_atomic(recipe, recipe_yaml(target))
    click.echo(f"wrote {devices} ({', '.join(found) or 'a virtual board only'})")
    click.echo(f"wrote {recipe}")
    if not found:
        click.echo("start the virtual board in another terminal:  labctl virtual-board")
    click.echo(f"then:  labctl boards; labctl build --target {target}; labctl run {recipe}")


def _named(text: str) -> tuple[str, str]:
    name, equals, address = text.rpartition("=")
    try:
        split_endpoint(address)
    except ValueError as error:
        raise ConfigError(f"--address {text}: {error}, not {address!r}") from None
    if equals and not is_name(name):
        raise ConfigError(f"--address {text}: a board's name must be {NAME_RULE}, not {name!r}")
    return (name, address) if equals else (_name_of(address), address)


def _name_of(key: str) -> str:
    """A board name made from an address or a serial number."""
    return "board-" + (re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-") or "1")


def _take(board: AttachedBoard, found: dict[str, str]) -> None:
    """Add a TCP board that is connected; say what else is attached and why it is left out."""
    if board.connection == "TCP" and board.state == "Connected":
        if board.key not in found.values():
            found[_name_of(board.key)] = board.key
        return
    click.echo(f"hdc knows {board.key} ({board.connection}, {board.state})", err=True)
    if board.connection != "TCP" and board.state == "Connected":
        click.echo(
            "  this version drives boards over TCP: run "
            f"`hdc -t {board.key} tmode port 5555`, then give its address with --address",
            err=True,
        )
