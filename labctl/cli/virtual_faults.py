"""Commands for a running virtual board: ``inject``, ``faults`` and ``allow``."""

from pathlib import Path

import click

from labctl.config.yaml.document import Document
from labctl.config.yaml.loader import plain_value
from labctl.errors import ConfigError
from labctl.suggestions import did_you_mean
from labctl.virtual.control import Control
from labctl.virtual.fault_script import FAULTS, Fault, OneFault

_FOLDER = click.argument(
    "directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False)
)


def _kinds() -> str:
    """List the faults and their effects, for --help."""
    width = max(map(len, FAULTS)) + 2
    lines = [f"{name:{width}}{_first_sentence(fault)}" for name, fault in FAULTS.items()]
    return "\b\nFaults:\n" + "\n".join(f"  {line}" for line in lines)


def _first_sentence(fault: type[Fault]) -> str:
    text = " ".join((fault.__doc__ or "").split())
    return text.partition(". ")[0].rstrip(".")


@click.command(
    epilog="Example: labctl virtual-board inject /tmp/board drop on=send after_bytes=100kB",
    help="Inject a fault into a virtual board that is served from DIR.\n\n"
    "The settings are those of a script: on=send, matching=TEXT, nth=2, times=3, "
    "after_bytes=100kB, … By default the next operation; on=now waits for none.\n\n" + _kinds(),
)
@_FOLDER
@click.argument("fault")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
def inject(directory: Path, fault: str, settings: tuple[str, ...]) -> None:
    """Inject a fault into a virtual board."""
    number = Control(directory).add(_wanted(fault, settings))
    click.echo(f"fault {number} added; `labctl virtual-board faults {directory}` shows it")


@click.command(epilog="Example: labctl virtual-board faults /tmp/board")
@_FOLDER
@click.option("--thaw", is_flag=True, help="End a freeze.")
@click.option("--clear", is_flag=True, help="Remove all faults, and end a freeze.")
def faults(directory: Path, *, thaw: bool, clear: bool) -> None:
    """List the faults of a virtual board served from DIR, with their counts."""
    control = Control(directory)
    if clear:
        control.clear()
    elif thaw:
        control.thaw()
    for state in control.states():
        settings = " ".join(f"{key}={value}" for key, value in state.fault.items())
        click.echo(
            f"{state.number:3} {state.name:17} operations {state.matched}, injected {state.fired}"
            f"  {settings}".rstrip()
        )


@click.command(epilog="Example: labctl virtual-board allow /tmp/board")
@_FOLDER
@click.option("--deny", is_flag=True, help="Reject them.")
def allow(directory: Path, *, deny: bool) -> None:
    """Admit the hosts that wait at a virtual board served from DIR with --auth pending."""
    keys = Control(directory).decide(allow=not deny)
    for key in keys:
        click.echo(f"{'denied' if deny else 'allowed'} {key}")
    if not keys:
        click.echo("no host is waiting")


def _wanted(name: str, settings: tuple[str, ...]) -> Fault:
    if name not in FAULTS:
        raise ConfigError(
            f"no fault {name!r}{did_you_mean(name, FAULTS)}",
            hint=f"known: {', '.join(FAULTS)}",
        )
    document = Document.parse(f"fault: {{fault: {name}}}", "inject")
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise ConfigError(f"{setting!r}: must be KEY=VALUE", hint="for example on=send")
        document.override(("fault", key), plain_value(text), setting)
    return document.validated(OneFault).fault
