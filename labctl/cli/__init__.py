"""The ``labctl`` program."""


def main(arguments: list[str] | None = None) -> None:
    """Run ``labctl`` and exit with its status. Also an interrupt of its start is no traceback."""
    try:
        from labctl.cli.root import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run(arguments)
