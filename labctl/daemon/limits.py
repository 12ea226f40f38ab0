"""File descriptor limit for many boards in one process."""

import resource

from labctl.errors import HostError

#: Per board: a listener, a host's connection, some commands, files and forwarded connections.
_DESCRIPTORS_A_BOARD = 24
_DESCRIPTORS_BESIDE = 128


def allow_boards(count: int) -> None:
    """Let this process open as many files as ``count`` boards need. Raises HostError.

    Programs started later inherit the limit.
    """
    needed = _DESCRIPTORS_BESIDE + count * _DESCRIPTORS_A_BOARD
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise HostError(
            f"{count} boards need up to {needed} open files, and this system allows {hard}",
            hint="serve fewer boards in one process, or raise the hard limit (ulimit -Hn, "
            "LimitNOFILE= of a systemd unit)",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
