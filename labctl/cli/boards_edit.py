"""``labctl boards add`` and ``labctl boards remove``."""

import click

from labctl.cli.complete import BOARD, TARGET
from labctl.cli.init import SSH_WORKDIR, own_workdir, show_host_key, target_of_board
from labctl.cli.lab import lab_of
from labctl.cli.output import note
from labctl.cli.root import Invocation
from labctl.config.lab_edit import add_board, check_new_board, remove_boards
from labctl.errors import ConfigError
from labctl.suggestions import listed
from labctl.text_types import is_on_loopback, split_endpoint, split_hop
from labctl.transport.ssh.config import SshConfig


@click.command(epilog="Example: labctl boards add rk1 192.168.1.20:5555 --target rk3568")
@click.option(
    "--target",
    shell_complete=TARGET,
    help="Machine type; default: what the board is, else that of the lab's boards.",
)
@click.option("--server", metavar="HOST:PORT", help="The hdc or adb server that knows the board.")
@click.argument("name")
@click.argument("place", metavar="HOST:PORT|KEY|adb:SERIAL|ssh:[USER@]HOST[:PORT]")
@click.pass_obj
def add(
    invocation: Invocation, *, name: str, place: str, target: str | None, server: str | None
) -> None:
    """Add a board to devices.yaml.

    HOST:PORT is the address of the board's hdc daemon. For a board behind an hdc server, KEY is its
    key in `labctl hdc list targets`; for a phone, SERIAL is its serial in `adb devices`.
    Everything else in the file stays as it is.
    """
    lab = lab_of(invocation)
    check_new_board(lab, lab.lab, name)  # before any contact
    keys = _keys(name, place, server)
    chosen = target_of_board(name, keys, target, lab.root, usual=lab.lab.only_target)
    if chosen is None:
        raise ConfigError(
            "which machine type is the board?",
            hint="name it: --target rk3568 (or another target)",
        )
    add_board(lab, name, keys, chosen, place=place)
    click.echo(f"{name} is in {lab.path}; check it: labctl boards")


@click.command(epilog="Example: labctl boards remove rk1")
@click.argument("names", nargs=-1, required=True, shell_complete=BOARD, metavar="BOARD...")
@click.pass_obj
def remove(invocation: Invocation, names: tuple[str, ...]) -> None:
    """Remove boards from devices.yaml.

    Files on the boards stay there, and the lab's runs stay too.
    """
    lab = lab_of(invocation)
    names = tuple(dict.fromkeys(names))
    left = remove_boards(lab, names)
    click.echo(f"removed {', '.join(names)} from {lab.path}")
    if not left.boards:
        note("the lab has no boards now: labctl boards add NAME HOST:PORT")
    elif lab.lab.default_board in names:
        known = listed(left.boards)
        use = (
            f"commands use {known}, the only board"
            if len(left.boards) == 1
            else f"name one with --board ({known}), or set it in {lab.path.name}"
        )
        note(f"default_board is no longer set: {use}")


def _keys(name: str, place: str, server: str | None) -> dict[str, str | int]:
    """Return the entry for an address in devices.yaml. Raises ConfigError."""
    if place.startswith("ssh:"):
        try:
            user, host, port = split_hop(place.removeprefix("ssh:"))
        except ValueError as error:
            raise ConfigError(f"{place}: {error}") from None
        show_host_key(name, SshConfig(host=host, port=port, user=user))
        keys = {"kind": "ssh", "host": host, "port": port, "user": user, "workdir": SSH_WORKDIR}
        return {key: value for key, value in keys.items() if value is not None}
    if place.startswith("adb:"):
        found: dict[str, str | int] = {"kind": "adb", "serial": place.removeprefix("adb:")}
        found |= {"server": server} if server else {}
        if ":" in str(found["serial"]) and (workdir := own_workdir(name, found)):
            found["workdir"] = workdir
        return found
    if server is not None or ":" not in place:
        return {"link": "server", "key": place, **({"server": server} if server else {})}
    try:
        split_endpoint(place)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from None
    found = {"link": "tcp", "address": place}
    if is_on_loopback(place) and (workdir := own_workdir(name, found)):
        found["workdir"] = workdir
    return found
