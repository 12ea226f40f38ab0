"""Errors on standard error: text for people, or with ``--json`` one object on one line."""

from collections.abc import Sequence

import click

from labctl.cli.output import coloured
from labctl.errors import Blame, ConfigError, ExitStatus, LabctlError, printable

BUG_HINT = "this is a bug in labctl: please report it with the output of `labctl --debug ...`"


def _has_folder() -> bool:
    from labctl.folders import present_folder  # slow to import

    return present_folder() is not None


def print_error(error: Exception, words: Sequence[str], *, as_json: bool) -> int:
    """Print an error for people, or as one JSON object; return its exit status.

    ``words``: the command line.
    """
    # Without a file name, the error can come from asking for the present folder.
    if isinstance(error, FileNotFoundError) and not error.filename and not _has_folder():
        error = ConfigError(
            "the present folder was removed", hint="change to a folder that is there"
        )
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.ClickException():
            if isinstance(error, click.UsageError):
                from labctl.cli.help import with_nearest

                error = with_nearest(error, words)
            if as_json:
                _print_json(Blame.CONFIG, error.format_message())
            else:
                error.show()
            return ExitStatus.CONFIG
        case LabctlError():
            if as_json:
                where = {"file": error.file, "line": error.line, "details": error.details}
                _print_json(error.blame, error.message, error.hint, **where)
            else:
                show_error(error)
            return error.exit_status
    import traceback
    from pathlib import Path

    at = traceback.extract_tb(error.__traceback__)[-1]
    message = f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"
    if as_json:
        _print_json("bug", message, BUG_HINT)
    else:
        click.echo(f"bug: {_below(printable(message))}\nhint: {BUG_HINT}", err=True)
    return ExitStatus.INFRA


def _print_json(blame: str, message: str, hint: str | None = None, **where: object) -> None:
    """Print an error as one object on a line of standard error."""
    import json

    keys = {"file": None, "line": None, "details": None, **where}
    click.echo(json.dumps({"blame": blame, "message": message, "hint": hint, **keys}), err=True)


def show_error(error: LabctlError) -> None:
    """Print an error: blame, message, evidence, hint."""
    told = f"({error.blame}): {_below(error.message)}"
    click.echo(f"{coloured('error', 'red')} {told}", err=True)
    if error.details:
        for line in error.details.rstrip().splitlines():
            click.echo(f"  | {printable(line)}", err=True)
    if error.hint:
        click.echo(f"{coloured('hint', 'cyan')}: {_below(error.hint)}", err=True)


def _below(text: str) -> str:
    """Mark the further lines of a text like evidence.

    A CI server would take a line that begins with ``::`` for a command.
    """
    return text.replace("\n", "\n  | ")
