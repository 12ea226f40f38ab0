"""``labctl help``."""

import click

from labctl.cli.complete import COMMAND


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
