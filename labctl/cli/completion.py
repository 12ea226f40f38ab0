"""``labctl completion``."""

import click
from click.shell_completion import get_completion_class


@click.command(epilog='Example: eval "$(labctl completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script."""
    completer = get_completion_class(shell)
    assert completer is not None
    root = ctx.find_root().command
    click.echo(completer(root, {}, "labctl", "_LABCTL_COMPLETE").source())
