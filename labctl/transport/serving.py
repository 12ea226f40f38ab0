"""The hdc server that a board is behind: one that runs, else started by the ``hdc`` on PATH."""

import os
import shutil
import subprocess
from contextlib import suppress

from labctl import process
from labctl.errors import HostError, LinkError, LinkRefused
from labctl.hdc import HdcServer, Target
from labctl.retry import wait_until

_LOOPBACK = ("localhost", "127.0.0.1")
#: ``hdc start`` returns within a second or two; the server listens a moment later.
_START_SECONDS = 15.0
_INTERVAL_SECONDS = 0.1


def running_server(host: str, port: int, *, timeout: float) -> HdcServer:
    """The server at an address; one of this host is started when none listens and ``hdc`` is there.

    It is left running for all users of this host's boards, as ``hdc`` itself leaves it.
    Raises LinkRefused, another LinkError (something else listens), HostError (it does not start).
    """
    server = HdcServer(host, port)
    try:
        server.version(timeout=timeout)
    except LinkRefused:
        if host not in _LOOPBACK or shutil.which("hdc") is None:
            raise
        _start(server)
    return server


def attached_boards(host: str, port: int, *, timeout: float) -> list[Target]:
    """The boards that the hdc server of an address knows; none when there is no hdc on this host.

    Raises LinkError, HostError when there is something that does not answer as a server does.
    """
    try:
        server = running_server(host, port, timeout=timeout)
    except LinkRefused:
        return []
    return server.list_targets(timeout=timeout)


def _start(server: HdcServer) -> None:
    # Its exit status says nothing, and the server it leaves behind would keep a pipe open.
    starting = process.start(
        ["hdc", "start"],
        env={**os.environ, "OHOS_HDC_SERVER_PORT": str(server.port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        starting.wait(timeout=_START_SECONDS)
    except subprocess.TimeoutExpired:
        process.stop(starting)
        raise HostError(
            f"`hdc start` did not end within {_START_SECONDS:g} s", hint="try it in a terminal"
        ) from None

    def answers() -> bool:
        with suppress(LinkError):
            return bool(server.version(timeout=_START_SECONDS))
        return False

    if not wait_until(answers, timeout=_START_SECONDS, interval=_INTERVAL_SECONDS):
        raise HostError(
            f"`hdc start` has left no server that answers at {server.host}:{server.port}",
            hint="another user's server or a stale $TMPDIR/.HDCServer.pid may hold it up: try"
            " `hdc kill`, then `hdc list targets`",
        )
