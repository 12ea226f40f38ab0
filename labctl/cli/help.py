"""``labctl help``."""

import shlex
from collections.abc import Sequence

import click

from labctl.cli.complete import COMMAND
from labctl.suggestions import did_you_mean, nearest


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


#: Option of other programs -> labctl's options for it; a command has at most one of them.
_OPTIONS = {
    "time": ("--for", "--max-time", "--timeout"),
    "duration": ("--for", "--max-time"),
    "at": ("--from", "--since"),
    "start": ("--from",),
    "message": ("--reason", "--note"),
    "comment": ("--reason", "--note"),
    "device": ("--board", "--on"),
    "out": ("--output",),
    "file": ("--output",),
}


def with_nearest(error: click.UsageError, words: Sequence[str]) -> click.UsageError:
    """Suggest a command or an option for one that does not exist; return other errors unchanged.

    ``words``: the command line.
    """
    if error.ctx is None:
        return error
    if isinstance(error, click.exceptions.NoSuchOption):
        near = _option_instead(error.option_name, words, error.ctx)
    elif isinstance(error, click.exceptions.NoSuchCommand):
        near = _command_instead(error.command_name, error.ctx)
    else:
        return error
    return click.UsageError(f"{error.message.rstrip('.')}{near}", error.ctx)


def _command_instead(name: str, ctx: click.Context) -> str:
    """Suggest a command of the group; for ``list``, the group itself if it lists."""
    group = ctx.command
    assert isinstance(group, click.Group)  # only a group looks for a command
    known = group.list_commands(ctx)
    word = _HABITS.get(name, name)
    if ctx.parent is None and name in _INSTEAD:
        return f" (did you mean 'labctl {_INSTEAD[name]}'?)"
    if word == "list" and word not in known and group.invoke_without_command:
        return f" (did you mean {ctx.command_path!r}?)"
    return f" (did you mean {word!r}?)" if word in known else did_you_mean(word, known)


def _option_instead(name: str, words: Sequence[str], ctx: click.Context) -> str:
    """Suggest an option of the command; else the place before the command, or ``--set``."""
    options = {option for one in ctx.command.get_params(ctx) for option in one.opts}
    plain = name.lstrip("-")
    key = plain.replace("-", "_")
    near = next((one for one in _OPTIONS.get(plain, ()) if one in options), None)
    near = near or nearest(plain, (one.lstrip("-") for one in options if one.startswith("--")))
    if near:
        return f" (did you mean '--{near.lstrip('-')}'?)"
    if any(name in one.opts for one in ctx.find_root().command.params):
        command = ctx.command_path.partition(" ")[2]
        return f"; it stands before the command: labctl {name} … {command}"
    if "--set" not in options or not name.startswith("--"):
        return ""
    at = next((n for n, word in enumerate(words) if word.partition("=")[0] == name), len(words))
    _, equals, value = " ".join(words[at : at + 1]).partition("=")
    follows = words[at + 1 :][:1]
    value = value if equals else follows[0] if follows and follows[0][:1] != "-" else ""
    setting = shlex.quote(f"{key}={value}") if value.isprintable() and value else f"{key}=…"
    return f"; a key of the recipe is set so: --set {setting}"
