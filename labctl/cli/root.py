"""The root command: names of all commands, loaded only when used."""

import click


@click.group()
def main() -> None:
    """Measure large language models on OpenHarmony edge boards."""
