"""The hdc server of a board: shared or private.

A server is shared with all programs on the host (DevEco Studio, the user's own ``hdc``): two
servers would compete for the boards on cables. So labctl uses a running server; otherwise it runs
``hdc -m`` as a child process, and restarts it when it ends. When labctl ends, the child continues
to run, like a server started by ``hdc`` itself: other programs may use it by then.

The code that starts servers is imported when needed: most commands find a running server.
"""

import atexit
import os
import threading
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from labctl.errors import DeviceLost, LinkError, LinkRefused
from labctl.hdc.server_client.server import HdcServer, Target
from labctl.retry import retry_infra, wait_until

if TYPE_CHECKING:
    from labctl.transport.hdc_server.private import PrivateServer
    from labctl.transport.hdc_server.process import Restarting

_LOOPBACK = ("localhost", "127.0.0.1")
#: Maximum time (s) for another labctl to start its server.
_LOCK_SECONDS = 60.0
#: A new server finds the boards on cables within this time (s) after its start.
_DISCOVERY_SECONDS = 2.0
_INTERVAL_SECONDS = 0.1
#: A stopping server closes its last connections within this time (s).
_ENDING_SECONDS = 1.0

_shared: "dict[int, Restarting]" = {}
_shared_lock = threading.Lock()
#: Without a lock, several threads could make a cache's first value.
_private_lock = threading.Lock()


def running_server(host: str, port: int, *, timeout: float) -> HdcServer:
    """Return the shared server at an address; start it if none listens on this host.

    ``timeout`` (s) limits the check for a running server; a start has its own limit. Raises
    LinkRefused (it does not run, and is on another host or hdc is missing), another LinkError
    (something else listens), HostError (it cannot be started).
    """
    server = HdcServer(host, port)
    try:
        retry_infra(
            lambda: server.version(timeout=timeout),
            on=(DeviceLost,),  # it is about to end
            timeout=_ENDING_SECONDS,
            interval=_INTERVAL_SECONDS,
        )
    except LinkRefused:
        from labctl.transport.hdc_server import process as hdc_program

        if host not in _LOOPBACK or not hdc_program.is_installed():
            raise
        _run_shared(server, timeout)
    return server


def private_server(key: str, *, timeout: float) -> HdcServer:
    """Return the private server for a board; it ends with this process.

    Raises ToolMissing (no hdc), HostError.
    """
    with _private_lock:
        server = _private()
    return server.running(key, timeout=timeout)


def attached_boards(host: str, port: int, *, timeout: float) -> list[Target]:
    """Return the boards known to the hdc server at an address; empty if this host has no hdc.

    Raises LinkError, HostError if the program that listens there does not answer like a server.
    """
    try:
        server = running_server(host, port, timeout=timeout)
    except LinkRefused:
        return []
    return server.list_targets(timeout=timeout)


@cache
def _private() -> "PrivateServer":
    from labctl.transport.hdc_server.private import PrivateServer

    server = PrivateServer()
    atexit.register(server.close)
    return server


def _run_shared(server: HdcServer, timeout: float) -> None:
    from labctl.folders import state_dir
    from labctl.locks import locked
    from labctl.transport.hdc_server.process import Restarting, start_server

    folder = state_dir() / "hdc"
    with locked(folder / f"{server.port}.lock", timeout=_LOCK_SECONDS):
        with suppress(LinkError):
            server.version(timeout=timeout)
            return  # another labctl, or another thread of this one, was faster
        start = partial(
            start_server,
            server.port,
            tmpdir=Path(os.environ.get("TMPDIR") or "/tmp"),  # noqa: S108 - where hdc looks
            log=folder / f"{server.port}.log",
            extra_env={},
        )
        with _shared_lock:
            restarting = _shared.setdefault(server.port, Restarting(start))
        restarting.start()

        def finds_boards() -> bool:
            return bool(server.list_targets(timeout=timeout))

        wait_until(finds_boards, timeout=_DISCOVERY_SECONDS, interval=_INTERVAL_SECONDS)
