"""hdc's own words: ``file send``, ``fport``, ``target boot``, ``tconn`` and so on.

Options and output are hdc's, as recorded from its program; exit statuses and errors are labctl's.
Options that labctl does not support are refused, not ignored: docs/hdc.md has a table for each
word.
"""

import re
import time
from pathlib import Path

import click

from labctl.cli.hdc.files import STALL_SECONDS, bytes_in, is_large, shown_step, tell_left_out
from labctl.cli.hdc.ports import forward_until_interrupted
from labctl.cli.hdc.power import ANSWER_SECONDS, mount
from labctl.cli.hdc.target import Choice
from labctl.cli.output import note
from labctl.cli.root import version_line
from labctl.errors import ConfigError, LinkRefused, ProtocolError, printable
from labctl.hdc.server_client.server import HdcServer
from labctl.progress import BytesDone
from labctl.transport.base import OpenOptions, Reboot, TransferOptions
from labctl.transport.copy import Delivered
from labctl.transport.copy import receive as receive_from
from labctl.transport.copy import send as send_to
from labctl.transport.hdc import HDC_SERVER, HdcTcpConfig, find_server
from labctl.transport.readiness import boot_id

_RAW = {"ignore_unknown_options": True, "allow_interspersed_args": False}
_NOT_TAKEN = {
    "-a": "files get the time of their transfer",
    "-sync": "files are always sent",
    "-b": "application sandboxes cannot be reached",
}
_BOOT_KINDS: dict[str, Reboot] = {
    "": "",
    "-bootloader": "bootloader",
    "bootloader": "bootloader",
    "-recovery": "recovery",
    "recovery": "recovery",
    "-flashd": "flashd",
    "flashd": "flashd",
    "shutdown": "shutdown",
}
_PORTS = range(1, 65_536)


@click.group(epilog="Example: labctl hdc -t dayu200 file send model.gguf /data/local/tmp/")
def file() -> None:
    """Send and receive files, with hdc's options and output."""


def _transfer(words: tuple[str, ...], usage: str, least: int) -> tuple[set[str], tuple[str, ...]]:
    """Split the words after ``file send`` into options and paths. Raises UsageError."""
    options = {word for word in words if word.startswith("-")}
    paths = tuple(word for word in words if not word.startswith("-"))
    for option in sorted(options - {"-z", "-m"}):
        why = _NOT_TAKEN.get(option)
        raise click.UsageError(
            f"labctl does not take hdc's {option}: {why}" if why else f"no such option: {option}"
        )
    if not least <= len(paths) <= 2:
        raise click.UsageError(f"hdc's form is: file {usage}")
    return options, paths


def _transfer_options(options: set[str], progress: BytesDone) -> TransferOptions:
    return TransferOptions(timeout=STALL_SECONDS, progress=progress, compress="-z" in options)


@file.command(
    "send", context_settings=_RAW, epilog="Example: labctl hdc file send -z logs /data/local/tmp/"
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-z] [-m] LOCAL REMOTE")
@click.pass_obj
def file_send(choice: Choice, words: tuple[str, ...]) -> None:
    """Send a file or a directory, as `labctl hdc send` does, and report it as hdc does."""
    options, (local, remote) = _transfer(words, "send [-z] [-m] LOCAL REMOTE", 2)
    began = time.monotonic()
    with (
        choice.connected(agent_hashes=is_large(Path(local))) as transport,
        shown_step(f"sending {local}", bytes_in(Path(local))) as progress,
    ):
        transfer = _transfer_options(options, progress)
        done = send_to(transport, Path(local), remote, transfer, keep_mode="-m" in options)
    _finish(done, time.monotonic() - began)


@file.command(
    "recv", context_settings=_RAW, epilog="Example: labctl hdc file recv /data/log/hilog logs"
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-z] [-m] REMOTE [LOCAL]")
@click.pass_obj
def file_recv(choice: Choice, words: tuple[str, ...]) -> None:
    """Receive a file or a directory, as `labctl hdc recv` does, and report it as hdc does."""
    options, (remote, *local) = _transfer(words, "recv [-z] [-m] REMOTE [LOCAL]", 1)
    began = time.monotonic()
    with choice.connected() as transport, shown_step(f"receiving {remote}") as progress:
        transfer = _transfer_options(options, progress)
        done = receive_from(transport, remote, Path(*local), transfer, keep_mode="-m" in options)
    _finish(done, time.monotonic() - began)


def _finish(done: Delivered, seconds: float) -> None:
    """Print hdc's line for a complete transfer; kB/s are bytes per ms."""
    tell_left_out(done.copied)
    if done.copied.not_proven:
        note(f"not proven: {done.copied.not_proven}")
    copied, ms = done.copied, max(1, round(seconds * 1e3))
    click.echo(
        f"FileTransfer finish, Size:{copied.size_bytes}, File count = {copied.files},"
        f" time:{ms}ms rate:{copied.size_bytes / ms:.2f}kB/s"
    )


@click.command(epilog="Example: labctl hdc -t dayu200 fport tcp:8080 tcp:80")
@click.argument("words", nargs=-1, required=True, metavar="LOCAL REMOTE | ls | rm LOCAL REMOTE")
@click.pass_obj
def fport(choice: Choice, words: tuple[str, ...]) -> None:
    """Forward a port of this host to the board, until interrupted.

    `ls` and `rm` are for the rules of an hdc server: labctl's own rules last as long as it runs.
    """
    match words:
        case ("ls",):
            _list_rules(choice)
        case ("rm", listen, connect):
            _remove_rule(choice, listen, connect)
        case (listen, connect):
            forward_until_interrupted(choice, listen, connect, reverse=False, ready=_ready_line)
        case _:
            raise click.UsageError("hdc's form is: fport LOCAL REMOTE, fport ls or fport rm …")


@click.command(epilog="Example: labctl hdc -t dayu200 rport tcp:8080 tcp:80")
@click.argument("remote")
@click.argument("local")
@click.pass_obj
def rport(choice: Choice, remote: str, local: str) -> None:
    """Forward a port of the board to this host, until interrupted."""
    forward_until_interrupted(choice, remote, local, reverse=True, ready=_ready_line)


def _ready_line(_listen: str) -> str:
    return "Forwardport result:OK"


def _server(choice: Choice) -> HdcServer:
    return find_server(choice.server or HDC_SERVER)


def _list_rules(choice: Choice) -> None:
    try:
        rules = _server(choice).rules(timeout=ANSWER_SECONDS)
    except LinkRefused:
        if choice.server is not None:
            raise
        rules = []  # no server on this host, so no rules
    for rule in rules:
        kind = "Reverse" if rule.is_reverse else "Forward"
        click.echo(printable(f"{rule.key}    {rule.listen} {rule.connect}    [{kind}]"))
    if not rules:
        click.echo("[Empty]")


def _remove_rule(choice: Choice, listen: str, connect: str) -> None:
    server, wanted = _server(choice), (listen, connect)

    def kept() -> bool:
        rules = server.rules(timeout=ANSWER_SECONDS)
        return any((rule.listen, rule.connect) == wanted for rule in rules)

    try:
        rules = server.rules(timeout=ANSWER_SECONDS)
    except LinkRefused:
        if choice.server is not None:
            raise
        rules = []  # no server on this host, so no rules
    rule = next((rule for rule in rules if (rule.listen, rule.connect) == wanted), None)
    if rule is None:
        raise ConfigError(
            f"{server.label} keeps no rule {listen} {connect}", hint="labctl hdc fport ls"
        )
    answer = server.remove_rule(rule, timeout=ANSWER_SECONDS)
    if kept():
        raise ProtocolError(f"{server.label} did not remove the rule: {answer}")
    click.echo(f"Remove forward ruler success, ruler:{listen} {connect}")


@click.group(epilog="Example: labctl hdc -t dayu200 target boot")
def target() -> None:
    """Restart a board, or make its system partitions writable, as hdc does."""


@target.command(
    "boot",
    context_settings={**_RAW, "help_option_names": ["--help"]},  # click finds -h in -flashd
    epilog="Example: labctl hdc -t dayu200 target boot -bootloader",
)
@click.argument(
    "how",
    required=False,
    default="",
    type=click.UNPROCESSED,
    metavar="[-bootloader|-recovery|-flashd|shutdown]",
)
@click.pass_obj
def target_boot(choice: Choice, how: str) -> None:
    """Ask the board to restart; print nothing, as hdc. To wait: labctl hdc reboot --wait."""
    if how not in _BOOT_KINDS:
        raise click.UsageError(
            f"labctl does not take hdc's target boot {how}: a board may not come back from a mode"
            " that it does not know; labctl knows -bootloader, -recovery, -flashd and shutdown"
        )
    kind = _BOOT_KINDS[how]
    with choice.connected() as transport:
        transport.request_reboot(kind, timeout=ANSWER_SECONDS)


target.add_command(mount)


@click.command(context_settings=_RAW, epilog="Example: labctl hdc tconn 192.168.1.20:5555")
@click.argument("address", metavar="HOST:PORT")
@click.argument("remove", required=False, type=click.Choice(["-remove"]), metavar="[-remove]")
@click.pass_obj
def tconn(choice: Choice, address: str, remove: str | None) -> None:
    """Check that a board answers at HOST:PORT. Nothing is stored: name the board with -t.

    -remove does nothing, as nothing is stored.
    """
    if choice.server is not None:
        raise click.UsageError("tconn asks the board itself; leave --server out")
    options = OpenOptions(timeout=ANSWER_SECONDS, key_file=choice.key_file)
    way = HdcTcpConfig(address=address)
    with way.open(options) as transport:
        if remove is not None:
            return
        boot_id(transport, timeout=ANSWER_SECONDS)
    click.echo("Connect OK")


@click.command(epilog="Example: labctl hdc -t dayu200 tmode port 5555")
@click.argument("mode", nargs=-1, required=True, metavar="usb | port [PORT] | port close")
@click.pass_obj
def tmode(choice: Choice, mode: tuple[str, ...]) -> None:
    """Let the board's hdcd listen on USB or on a TCP port."""
    # hdcd also accepts wrong words, and may then listen on no network.
    match mode:
        case ("usb",) | ("port",) | ("port", "close"):
            pass
        case ("port", port) if re.fullmatch(r"[0-9]{1,5}", port) and int(port) in _PORTS:
            pass
        case _:
            raise click.UsageError(
                "hdc's form is: tmode usb, tmode port, tmode port PORT or tmode port close;"
                f" PORT is 1 to {_PORTS[-1]}"
            )
    with choice.connected() as transport:
        device = transport.over_hdc("change how it listens")
        click.echo(printable(device.set_mode(" ".join(mode), timeout=ANSWER_SECONDS)))


@click.command(epilog="Example: labctl hdc version")
def version() -> None:
    """Show the version of labctl, whose hdc it is."""
    click.echo(version_line())
