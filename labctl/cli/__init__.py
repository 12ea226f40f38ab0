"""The ``labctl`` program."""

try:
    from labctl.cli.root import main
except KeyboardInterrupt:  # an interrupt of the start is no traceback
    raise SystemExit(130) from None

__all__ = ["main"]
