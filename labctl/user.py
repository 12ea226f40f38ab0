"""The user that labctl runs as."""

import getpass
import os


def user_name() -> str:
    """Return the name of the user that labctl runs as; the number, where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container, say
        return str(os.getuid())
