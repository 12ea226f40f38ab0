"""``labctl hdc reboot``, ``hilog`` and ``mount``."""

from pathlib import Path

import click

from labctl.cli.hdc.shell import NO_LIMIT_SECONDS
from labctl.cli.hdc.target import Choice
from labctl.cli.output import output_option, write_output
from labctl.errors import printable
from labctl.files import host_writes
from labctl.transport.base import Reboot
from labctl.transport.readiness import reboot

_REBOOT_SECONDS = 180.0
ANSWER_SECONDS = 30.0


@click.command("reboot", epilog="Example: labctl hdc -t dayu200 reboot --wait")
@click.option("--wait", is_flag=True, help="Wait until the board has restarted, or is gone.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=_REBOOT_SECONDS,
    show_default=True,
    help="Seconds for --wait.",
)
@click.argument("how", required=False, type=click.Choice(["bootloader", "shutdown"]))
@click.pass_obj
def reboot_(choice: Choice, how: str | None, wait: bool, timeout: float) -> None:
    """Restart a board, start its boot loader, or switch it off."""
    kind: Reboot = "bootloader" if how == "bootloader" else "shutdown" if how else ""
    with choice.connected() as transport:
        if not wait:
            transport.request_reboot(kind, timeout=ANSWER_SECONDS)
            click.echo(f"{transport.label} restart requested; use --wait to wait for it")
            return
        boot = reboot(transport, kind, timeout=timeout)
    click.echo(f"{transport.label} " + (f"has started again, boot {boot}" if boot else "has gone"))


@click.command(
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": ["--help"],  # -h is hilog's
    },
    epilog="Example: labctl hdc -t dayu200 hilog --output boot.log -- -T Ace",
)
@output_option
@click.option("--timeout", type=click.FloatRange(min=0.1), help="Stop after this many seconds.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def hilog(
    choice: Choice, words: tuple[str, ...], output: Path | None, timeout: float | None
) -> None:
    """Print the board's log, until interrupted. WORDS are passed to hilog on the board."""
    seconds = timeout or NO_LIMIT_SECONDS
    with choice.connected() as transport:
        log = transport.over_hdc("give a log: it has no hilog")
        if output is None:
            log.hilog(*words, timeout=seconds, write=write_output)
            return
        with host_writes(output), output.open("wb", buffering=0) as file:
            log.hilog(*words, timeout=seconds, write=file.write)


@click.command(epilog="Example: labctl hdc -t dayu200 mount")
@click.pass_obj
def mount(choice: Choice) -> None:
    """Make system partitions writable."""
    with choice.connected() as transport:
        message = transport.over_hdc("have system partitions remounted").remount(
            timeout=ANSWER_SECONDS
        )
    click.echo(printable(message))
