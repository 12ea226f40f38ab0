"""``labctl help``."""

import click

from labctl.cli.complete import COMMAND
from labctl.suggestions import did_you_mean


@click.command("help", epilog="Example: labctl help models add")
@click.argument("words", nargs=-1, metavar="[COMMAND]...", shell_complete=COMMAND)
@click.pass_context
def help_(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of labctl or of a command."""
    shown = ctx.find_root()
    for place, word in enumerate(words):
        if not isinstance(shown.command, click.Group):
            raise click.UsageError(f"{' '.join(words[:place])} has no commands", shown)
        name, command, _ = shown.command.resolve_command(shown, [word])
        assert command is not None  # resolve_command raises otherwise
        shown = click.Context(command, info_name=name, parent=shown)
    click.echo(shown.get_help())


#: Word of shells and other programs -> labctl's word.
_HABITS = {"rm": "remove", "delete": "remove", "del": "remove", "ls": "list"}
#: Words for which labctl has another command.
_INSTEAD = {
    "eval": "run",
    "evaluate": "run",
    "measure": "run",
    "benchmark": "bench",
    "agreement": "compare",
    "diff": "compare",
    "reserve": "hold --from",
    "lock": "hold",
    "unlock": "release",
    "index": "runs",
    "targets": "build --list",
    "audit": "state audit",
    "workers": "worker --list",
    "devices": "boards",
    "status": "boards",
    "jobs": "queue",
    "list": "runs",
}


def with_nearest(error: click.exceptions.NoSuchCommand) -> click.UsageError:
    """Suggest a command of the group; for ``list``, the group itself if it lists."""
    ctx = error.ctx
    if ctx is None or not isinstance(group := ctx.command, click.Group):
        return error
    known = group.list_commands(ctx)
    word = _HABITS.get(error.command_name, error.command_name)
    near = f" (did you mean {word!r}?)" if word in known else did_you_mean(word, known)
    if ctx.parent is None and error.command_name in _INSTEAD:
        near = f" (did you mean 'labctl {_INSTEAD[error.command_name]}'?)"
    if word == "list" and word not in known and group.invoke_without_command:
        near = f" (did you mean {ctx.command_path!r}?)"
    return click.UsageError(f"{error.message.rstrip('.')}{near}", ctx)
