"""``labctl init``."""

import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from labctl.adb import ADB_SERVER
from labctl.adb.server_client.server import AdbServer, usual_address
from labctl.adb.server_client.states import DEVICE, state_error
from labctl.cli.complete import TARGET
from labctl.cli.output import note
from labctl.config.init_files import VIRTUAL_BOARD_ADDRESS, devices_yaml, recipe_yaml
from labctl.config.lab import FILE_NAME, WORKDIR, lab_model
from labctl.config.target import DEFAULT_TARGET, PHONE_TARGET, load_target, target_of
from labctl.config.yaml.document import parse
from labctl.errors import ConfigError, InfraError, LinkRefused, printable_line
from labctl.files import host_reads, write_atomic
from labctl.hdc.server_client.server import Target
from labctl.text_types import (
    LAB_ROOT,
    NAME_RULE,
    is_name,
    is_on_loopback,
    plain_name,
    split_endpoint,
    split_hop,
)
from labctl.transport.adb import AdbConfig
from labctl.transport.base import OpenOptions, check_remote_path
from labctl.transport.built_in import TRANSPORTS
from labctl.transport.hdc import HDC_SERVER, HdcServerConfig, HdcTcpConfig
from labctl.transport.hdc_server.shared import attached_boards
from labctl.transport.ssh.config import SshConfig

_FIRST_RECIPE = Path("recipes") / "first.yaml"
_SERVER_SECONDS = 10.0
_BOARD_SECONDS = 5.0
_NOT_WAYS = ("kind", "link", "workdir", "target")
#: A folder on common Linux systems that survives a restart.
SSH_WORKDIR = "/var/tmp/labctl"  # noqa: S108 - the board's


@click.command(epilog="Example: labctl init --address rk1=192.168.1.20:5555")
@click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="[NAME=]HOST:PORT",
    help="A board whose hdc daemon listens on TCP; repeatable.",
)
@click.option(
    "--ssh",
    "logins",
    multiple=True,
    metavar="[NAME=][USER@]HOST[:PORT]",
    help="A board with sshd; shows its host key; repeatable.",
)
@click.option(
    "--target",
    shell_complete=TARGET,
    help="Machine type of the boards; default: what each board is, or rk3568.",
)
@click.option(
    "--virtual",
    is_flag=True,
    help="Add a virtual board. Without other boards, one is always added.",
)
@click.argument(
    "folder", type=click.Path(path_type=Path, file_okay=False), default=Path(), required=False
)
def init(
    *,
    folder: Path,
    addresses: tuple[str, ...],
    logins: tuple[str, ...],
    target: str | None,
    virtual: bool,
) -> None:
    """Write a first devices.yaml and recipe.

    Finds boards on USB cables and boards that an `hdc` or `adb` on this host knows, writes
    devices.yaml and recipes/first.yaml into FOLDER (default: here), and prints the next steps.
    Never overwrites existing files.
    """
    devices, recipe = folder / FILE_NAME, folder / _FIRST_RECIPE
    for path in (devices, recipe):
        with host_reads(path):
            if path.exists() or path.is_symlink():
                raise ConfigError(
                    f"{path} exists already", hint="edit it, or run `labctl init OTHER_FOLDER`"
                )
    usual = target or DEFAULT_TARGET
    load_target(usual, folder)
    found: dict[str, dict[str, str | int]] = {}
    for text in addresses:
        name, address = _named("--address", text, split_endpoint)
        _add(f"--address {text}", name, {"link": "tcp", "address": address}, found)
    for text in logins:
        name, address = _named("--ssh", text, split_hop)
        user, host, port = split_hop(address)
        way = {"kind": "ssh", "host": host, "port": port, "user": user, "workdir": SSH_WORKDIR}
        _add(f"--ssh {text}", name, {k: v for k, v in way.items() if v is not None}, found)
        show_host_key(name, SshConfig(host=host, port=port, user=user))
    for board in _attached():
        _take(board, found)
    _take_phones(found)
    for name, keys in found.items():
        keys["target"] = target_of_board(name, keys, target, folder) or DEFAULT_TARGET
        at = str(keys.get("address") or keys.get("serial", ""))
        if ":" in at and is_on_loopback(at) and (workdir := own_workdir(name, keys)):
            keys["workdir"] = workdir
    for name, keys in found.items():
        if virtual and (name == "virtual" or keys.get("address") == VIRTUAL_BOARD_ADDRESS):
            raise ConfigError(
                f"--virtual: board {name!r} has its name or its address, {VIRTUAL_BOARD_ADDRESS}",
                hint="leave --virtual out",
            )
    virtual = virtual or not found
    _check_virtual_folder(folder, wanted=virtual)
    text = devices_yaml(found, target=usual, virtual=virtual)
    parse(text, lab_model(TRANSPORTS), FILE_NAME, context={LAB_ROOT: folder.resolve()})
    write_atomic(devices, text)
    usual = next((str(keys["target"]) for keys in found.values()), usual)
    write_atomic(recipe, recipe_yaml(usual, _FIRST_RECIPE))
    click.echo(f"wrote {devices} ({', '.join([*found, *['virtual'] * virtual])})")
    click.echo(f"wrote {recipe}")
    if folder.resolve() != Path.cwd():
        click.echo(f"go there:  cd {shlex.quote(str(folder))}")
    if virtual:
        click.echo("start the virtual board in another terminal:  labctl virtual-board")
    next_commands = ("boards", f"build --target {usual}", f"run {_FIRST_RECIPE}")
    click.echo("\n  labctl ".join(["then:", *next_commands]))


def _check_virtual_folder(folder: Path, *, wanted: bool) -> None:
    if wanted:
        hint = "make the lab in another folder, or give it another board with --address or --ssh"
        check_board_folder(folder.resolve(), hint=hint)


def check_board_folder(folder: Path, *, hint: str) -> None:
    """Raise ConfigError if the folder cannot hold a virtual board: its paths are the board's."""
    try:
        check_remote_path(str(folder))
    except ConfigError as error:
        raise ConfigError(
            f"no virtual board can be in {folder}: {error.message}", hint=hint
        ) from error


def _named(option: str, text: str, check: Callable[[str], object]) -> tuple[str, str]:
    name, equals, address = text.rpartition("=")
    try:
        check(address)
    except ValueError as error:
        raise ConfigError(f"{option} {text}: {error}, not {address!r}") from None
    if equals and not is_name(name):
        raise ConfigError(f"{option} {text}: a board's name must be {NAME_RULE}, not {name!r}")
    return (name, address) if equals else (_name_of(address), address)


def _add(
    what: str, name: str, keys: dict[str, str | int], found: dict[str, dict[str, str | int]]
) -> None:
    if name in found:
        raise ConfigError(f"{what}: another board is called {name!r} already")
    found[name] = keys


def show_host_key(name: str, config: SshConfig) -> None:
    """Print a board's host key, and how to accept a key that is not in known_hosts."""
    try:
        with config.open(OpenOptions(timeout=_BOARD_SECONDS)) as board:
            click.echo(f"{name}: known_hosts has its host key, {board.connected().fingerprint}")
    except InfraError as error:
        note(f"{name}: {error.message}; {error.hint}")


def _name_of(key: str) -> str:
    """Make a board name from an address or a serial number."""
    return plain_name(f"board-{plain_name(key) or 1}")


def _attached() -> list[Target]:
    host, port = split_endpoint(HDC_SERVER)
    try:
        return attached_boards(host, port, timeout=_SERVER_SECONDS)
    except InfraError as error:  # devices.yaml can still be written
        note(f"boards were not searched through hdc: {error.message}")
        return []


def _take_phones(found: dict[str, dict[str, str | int]]) -> None:
    """Add the phones of this host's adb server, if one runs; labctl never starts it."""
    address = usual_address()
    server = AdbServer(*split_endpoint(address))
    try:
        phones = server.devices(timeout=_SERVER_SECONDS)
    except LinkRefused:  # no server: most labs have no phones
        return
    except InfraError as error:
        note(f"phones were not searched through adb: {error.message}")
        return
    twice = Counter(phone.serial for phone in phones)
    for phone in phones:
        name = _name_of(phone.serial)
        if phone.state != DEVICE:
            problem = state_error(phone, printable_line(phone.serial))
            note(f"{problem.message}; {problem.hint}")
        if phone.state not in (DEVICE, "unauthorized") or name in found or twice[phone.serial] > 1:
            note(f"left out: {printable_line(phone.serial)}: add it by `labctl boards add`")
            continue
        found[name] = {"kind": "adb", "serial": phone.serial}
        if address != ADB_SERVER:
            found[name]["server"] = address


def target_of_board(
    name: str,
    keys: Mapping[str, str | int],
    asked: str | None,
    folder: Path,
    *,
    usual: str | None = DEFAULT_TARGET,
) -> str | None:
    """Return the target of a board: the ``asked`` one, or the one for its machine, or ``usual``."""
    from labctl.board.facts import probe

    written = asked or (PHONE_TARGET if keys.get("kind") == "adb" else usual)
    try:
        with _config(keys).open(OpenOptions(timeout=_BOARD_SECONDS)) as board:
            facts = probe(board, workdir=WORKDIR, timeout=_BOARD_SECONDS)
    except InfraError as error:
        check = f"; check its target, {written}" if written else ""
        note(f"{name}: its machine is unknown: {error.message}{check}")
        return written
    default, android = written or DEFAULT_TARGET, facts.phone is not None
    fitting = target_of(facts.machine, facts.compatible, default, folder, android=android)
    if fitting is None:
        wrong = f"; {written} is wrong" if written else ""
        note(f"{name}: its machine is {facts.machine}: no target is for it{wrong}")
    elif asked and load_target(asked, folder).machine != facts.machine:
        note(f"{name}: its machine is {facts.machine}: {asked} is wrong, {fitting} is for it")
    return asked or fitting or written


def _config(
    keys: Mapping[str, str | int],
) -> HdcTcpConfig | HdcServerConfig | SshConfig | AdbConfig:
    """Return the transport of a board from its keys in devices.yaml."""
    ways: dict[str, Any] = {k: v for k, v in keys.items() if k not in _NOT_WAYS}
    if keys.get("kind") == "ssh":
        return SshConfig(**ways)
    if keys.get("kind") == "adb":
        return AdbConfig(**ways)
    return HdcServerConfig(**ways) if keys["link"] == "server" else HdcTcpConfig(**ways)


def own_workdir(name: str, keys: Mapping[str, str | int]) -> str | None:
    """Return a virtual board's workdir; None for a tunnel to a real board, or without an answer."""
    from labctl.board.facts import virtual_workdir

    try:
        options = OpenOptions(timeout=_BOARD_SECONDS)
        with _config(keys).open(options) as board:
            return virtual_workdir(board, timeout=_BOARD_SECONDS)
    except InfraError as error:
        note(
            f"{name} cannot be checked for a virtual board: {error.message}; if it is one,"
            f" add the workdir that `labctl virtual-board` prints to {FILE_NAME}"
        )
        return None


def _take(board: Target, found: dict[str, dict[str, str | int]]) -> None:
    """Add a board that answers or awaits permission; report skipped boards with the reason."""
    if board.state not in ("Connected", "Unauthorized"):
        note(f"left out: {board.key} ({board.connection}) is {board.state.lower()}")
        return
    if board.state == "Unauthorized":
        note(f"{board.key}: allow this host in the dialog on the board's screen")
    if board.connection == "TCP":  # labctl connects without hdc's server
        way: dict[str, str | int] = {"link": "tcp", "address": board.key}
    else:
        way = {"link": "server", "key": board.key}
    if way in found.values():
        return
    name = _name_of(board.key)
    if name in found:
        note(f"left out: {board.key}: another board is called {name} already")
        return
    found[name] = way
