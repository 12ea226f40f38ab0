"""The name under which pip installs labctl, its extras and its version."""

from functools import cache

#: The distribution; package and command are called ``labctl``, which is another program on PyPI.
NAME = "labctl-boards"


@cache
def labctl_version() -> str:
    """Return the version of labctl that is installed."""
    from importlib.metadata import version  # slow to import, seldom needed

    return version(NAME)


def install_extra(extra: str) -> str:
    """Return the command that installs the packages of an extra, as for a hint."""
    return f"pip install '{NAME}[{extra}]'"
