"""``labctl virtual-board``."""

import json
import platform
import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import click

from labctl.adb.daemon.authorisation import Authorisation as AdbAuthorisation
from labctl.build.artifact import build_command
from labctl.build.plan import BuildRequest, Plan
from labctl.cli.build import BuildView
from labctl.cli.complete import TARGET
from labctl.cli.init import check_board_folder
from labctl.cli.options import SIZE
from labctl.cli.output import json_option
from labctl.cli.progress import ProgressView
from labctl.cli.root import Invocation
from labctl.cli.virtual_faults import allow, inject
from labctl.cli.virtual_faults import faults as faults_command
from labctl.config.init_files import VIRTUAL_BOARD_ADDRESS, board_entry
from labctl.config.lab import FILE_NAME, Board, LabFile, find_lab
from labctl.config.target import DEFAULT_TARGET, load_target
from labctl.config.yaml.document import read_text
from labctl.daemon.authorisation import Authorisation, Mode
from labctl.daemon.daemon import PortTaken
from labctl.errors import ConfigError, ToolMissing
from labctl.hdc.daemon.authorisation import Authorisation as HdcAuthorisation
from labctl.hdc.daemon.version_profile import Version
from labctl.text_types import NAME_RULE, is_name, split_endpoint
from labctl.transport.built_in import TRANSPORTS
from labctl.virtual.board import PROTOCOLS, Protocol, Served, VirtualBoard, serve
from labctl.virtual.fault_script import load_script

_LAST_PORT = 65535
_PORT = split_endpoint(VIRTUAL_BOARD_ADDRESS)[1]
_MODES: dict[str, Mode] = {
    "accept": "accept-all",
    "known": "accept-known",
    "refuse": "refuse",
    "pending": "pending",
}
SHIM_PRODUCT, SHIM = "sandbox-shim", "exec_shim.so"


@click.group(
    "virtual-board",
    invoke_without_command=True,
    subcommand_metavar="[inject|faults|allow]",
    epilog="Example: labctl virtual-board --target rk3568 --dir /tmp/board",
)
@click.option("--name", default="virtual", show_default=True, help="The board's name.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="The board's storage; default: virtual-board in the lab or here.",
)
@click.option(
    "--port",
    type=click.IntRange(0, _LAST_PORT),
    help="TCP port on loopback; 0 takes a free one. Default: that of the lab's board NAME, else"
    f" {_PORT}.",
)
@click.option(
    "--count",
    type=click.IntRange(1, 1000),
    default=1,
    help="Number of boards to serve: NAME-1, NAME-2, …, each in its own folder, on the next ports.",
)
@click.option(
    "--target",
    shell_complete=TARGET,
    help="Run this target's programs, with its emulator; default: target of the lab's board NAME.",
)
@click.option("--emulator", help="Run ARM64 programs with this emulator (its words in one string).")
@click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    default="hdc",
    show_default=True,
    help="hdc: a board with OpenHarmony; adb: an Android phone.",
)
@click.option(
    "--hdc-version",
    type=click.Choice(get_args(Version)),
    default="3.2.0c",
    show_default=True,
    help="The release of hdcd to imitate.",
)
@click.option(
    "--auth",
    type=click.Choice(list(_MODES)),
    help="Require a key of hosts, and accept any, only known ones (--known-key), none, or those "
    "admitted by `labctl virtual-board allow`; default: require none.",
)
@click.option(
    "--known-key",
    "known_keys",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    help="Public key of an admitted host (hdckey.pub, adbkey.pub); implies --auth known.",
)
@click.option(
    "--faults",
    "script",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A YAML file of faults; `labctl docs virtual-boards` describes it.",
)
@click.option("--seed", type=int, help="Random seed for --faults; default: the file's own.")
@click.option("--memory", type=SIZE, help="Memory size that the board reports, e.g. 2GB.")
@click.option(
    "--no-pid-namespaces",
    is_flag=True,
    help="Have a kernel without them: a job can kill the agent that watches it.",
)
@click.option(
    "--effects",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append every change below the boards' workdirs to this file, with its author.",
)
@click.option(
    "--no-build",
    is_flag=True,
    help="Compile nothing: fail if the board's own agent is not built for this host.",
)
@json_option("Print the served boards as one line of JSON.")
@click.pass_context
def virtual_board(
    ctx: click.Context,
    *,
    name: str,
    directory: Path | None,
    port: int | None,
    count: int,
    target: str | None,
    emulator: str | None,
    protocol: Protocol,
    hdc_version: Version,
    auth: str | None,
    known_keys: tuple[Path, ...],
    script: Path | None,
    seed: int | None,
    memory: int | None,
    no_pid_namespaces: bool,
    effects: Path | None,
    no_build: bool,
    as_json: bool,
) -> None:
    """Serve virtual boards until interrupted.

    A virtual board is a daemon of hdc or adb on loopback, a folder and a shell. It runs every
    command that it receives as the user who started it: use it for trials and tests only. The first
    start compiles its agent for this host, which takes seconds.
    """
    if ctx.invoked_subcommand:
        return
    _require_hdc(protocol, {"--effects": effects})
    plain = name if count == 1 else f"{name}-{count}"
    if not is_name(plain):
        raise click.BadParameter(f"{plain!r}: must be {NAME_RULE}", param_hint="--name")
    invocation = ctx.ensure_object(Invocation)
    faults = load_script(script) if script else None
    if faults and seed is not None:
        faults = faults.model_copy(update={"seed": seed})
    found = _lab(invocation)
    lab = found.root if found else None
    own = found.lab.boards.get(name) if found else None
    port, origin = (port, "--port") if port is not None else _port_of(name, own)
    if port and port + count - 1 > _LAST_PORT:
        raise click.UsageError(f"{count} boards from port {port} on need ports above {_LAST_PORT}")
    if target is None and emulator is None and own is not None:
        target = own.target
    words = _emulator_words(target, emulator, lab)
    shown_target = target or (DEFAULT_TARGET if words else f"host-{platform.machine()}")
    root = (directory or (lab or Path.cwd()) / "virtual-board").resolve()
    check_board_folder(root, hint="name another one: --dir DIR")
    notes, shim = _own_parts(needs_shim=bool(words), no_build=no_build)
    plans = [
        VirtualBoard(
            name=name if count == 1 else f"{name}-{index + 1}",
            directory=root if count == 1 else root / f"{name}-{index + 1}",
            port=port and port + index,
            emulator=words,
            preload=shim,
            faults=faults,
            protocol=protocol,
            version=hdc_version,
            authorisation=_authorisation(protocol, auth, known_keys),
            memory_bytes=memory,
            pid_namespaces=not no_pid_namespaces,
            effects=effects and effects.resolve(),
        )
        for index in range(count)
    ]

    def ready(boards: list[Served]) -> None:
        if as_json:
            click.echo(json.dumps([board.document(words) for board in boards]))
            return
        for board in boards:
            click.echo(f"{board.name} answers at {board.address}, storage {board.directory}")
        for note in filter(None, [boards[0].note, *notes]):
            click.echo(f"note: {note}")
        click.echo("Its commands run as you. Stop it with Ctrl-C. For devices.yaml:\n\nboards:")
        for board in boards:
            click.echo(_snippet(board, shown_target, protocol))

    try:
        serve(plans, ready)
    except PortTaken as error:
        error.hint = f"give another one with --port, or 0 for any; this one is from {origin}"
        raise


virtual_board.add_command(inject)
virtual_board.add_command(faults_command)
virtual_board.add_command(allow)


def _lab(invocation: Invocation) -> LabFile | None:
    try:
        return find_lab(invocation.lab or Path.cwd(), TRANSPORTS)
    except ConfigError:
        if invocation.lab is not None:
            raise
        return None  # a virtual board needs no lab


def _port_of(name: str, own: Board | None) -> tuple[int, str]:
    """Return the port of the lab's board of that name, and the place of this setting."""
    port = own.transport.port_on_this_host if own else None
    return (_PORT, "the default") if port is None else (port, f"boards.{name} in {FILE_NAME}")


def _require_hdc(protocol: Protocol, given: Mapping[str, object]) -> None:
    """Refuse options that only boards with hdc have."""
    wrong = [option for option, value in given.items() if value and protocol != "hdc"]
    if wrong:
        raise click.UsageError(f"{', '.join(wrong)}: only with --protocol hdc")


def _authorisation(
    protocol: Protocol, auth: str | None, known_keys: tuple[Path, ...]
) -> Authorisation | None:
    if auth is None and not known_keys:
        return None
    keys = [read_text(path) for path in known_keys]
    try:
        kind = AdbAuthorisation if protocol == "adb" else HdcAuthorisation
        return kind(_MODES[auth or "known"], keys)
    except ValueError as error:
        raise ConfigError(
            f"not a public key of {protocol}: {', '.join(map(str, known_keys))}",
            hint="a host keeps its own in ~/.harmony/hdckey.pub (PEM) or ~/.android/adbkey.pub",
        ) from error


def _own_parts(*, needs_shim: bool, no_build: bool) -> tuple[list[str], Path | None]:
    """Build the programs of a virtual board itself, for this host's instruction set.

    The agent runs natively; the shim puts the emulator before programs typed in the board's shell.
    Without a compiler the board still works, and notes name its limits.
    """
    host = f"host-{platform.machine()}"
    notes: list[str] = []
    shim: Path | None = None
    with ProgressView() as view:

        def compile_it(plan: Plan) -> None:
            what, product = plan.order.what, plan.spec.product
            if no_build:
                raise ConfigError(
                    f"not built: {what}, which a virtual board needs",
                    hint=f"leave --no-build out, or `{build_command(host, product)}`",
                )
            view.say(f"compiling {what}, once: a virtual board needs it")

        shown = BuildView(view)
        try:
            shown.build(BuildRequest(target=host, product="agent"), compile_it)
            if needs_shim:
                request = BuildRequest(target=host, product=SHIM_PRODUCT)
                shim = shown.build(request, compile_it).tool(SHIM)
        except ToolMissing as error:
            notes.append(
                f"{error.message}: no agent for {host}, and ARM64 programs run as jobs only"
            )
    return notes, shim


def _emulator_words(target: str | None, emulator: str | None, lab: Path | None) -> tuple[str, ...]:
    words: tuple[str, ...] = tuple(emulator.split()) if emulator else ()
    if target is not None:
        if words:
            raise ConfigError("give --target or --emulator, not both")
        known = load_target(target, lab)
        if known.emulator is not None and not known.runs_here:
            words = known.emulator.argv
    if not words:
        return ()
    program = shutil.which(words[0])
    if program is None:
        raise ToolMissing(
            f"the emulator is not installed: {words[0]}",
            hint="on Debian and Ubuntu: apt install qemu-user-static",
        )
    return (str(Path(program).resolve()), *words[1:])


def _snippet(board: Served, target: str, protocol: Protocol) -> str:
    way, first = {"link": "tcp", "address": board.address}, ""
    if protocol == "adb":
        way = {"kind": "adb", "serial": board.address}
        first = f"  # first: adb connect {board.address}\n"
    keys = {**way, "workdir": str(board.workdir)}
    return first + textwrap.indent(board_entry(board.name, keys, target).rstrip(), "  ")
