"""The control socket of a virtual board: faults from outside, while it runs.

``.labctl-control`` in the board's folder, mode 0600. A client sends one line with a JSON object and
gets one back:

    {"do": "add", "fault": {"fault": "drop", "on": "send"}}  -> {"number": 3}
    {"do": "list"} -> {"faults": [{"number": 3, "name": "drop", "fault": {…}, "matched": 1, …}]}
    {"do": "clear"}, {"do": "thaw"}                          -> {}
    {"do": "restart", "how": ""}                             -> {}
    {"do": "decide", "allow": true} -> {"keys": [fingerprints of the hosts that waited for it]}

The answer to an invalid request is ``{"error": TEXT}``.
"""

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from labctl.daemon.authorisation import Authorisation
from labctl.errors import ConfigError, HostError
from labctl.files import host_writes
from labctl.tcp import close_server
from labctl.virtual.fault_injector import FaultInjector
from labctl.virtual.fault_script import ANY_FAULT, Fault, FaultState

NAME = ".labctl-control"
_MOST_BYTES = 1 << 16
_ANSWER_SECONDS = 10.0


class ControlSocket:
    """The board's end of the control socket."""

    def __init__(
        self,
        directory: Path,
        faults: FaultInjector,
        authorisation: Authorisation | None,
        restart: Callable[[str], None],
    ):
        self._directory = directory
        self._restart = restart
        self._faults = faults
        self._authorisation = authorisation
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._is_over = False

    async def start(self) -> None:
        """Listen. Raises HostError."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with host_writes(self._directory / NAME), _short(self._directory) as path:
                with suppress(FileNotFoundError):
                    (self._directory / NAME).unlink()
                sock.bind(path)
                (self._directory / NAME).chmod(0o600)  # before anybody can connect
            self._server = await asyncio.start_unix_server(
                self._answer, sock=sock, limit=_MOST_BYTES
            )
        except BaseException:
            sock.close()
            raise

    async def stop(self) -> None:
        """Stop listening, and end current requests. Idempotent."""
        self._is_over = True
        if self._server is not None:
            close_server(self._server)
            for client in self._clients:
                client.transport.abort()
            await self._server.wait_closed()
            self._server = None
            with suppress(FileNotFoundError):
                (self._directory / NAME).unlink()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_over:
            writer.transport.abort()
            return
        self._clients.add(writer)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                line = await reader.readuntil(b"\n")
                writer.write(json.dumps(self._reply(line)).encode() + b"\n")
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client has gone
        finally:
            self._clients.discard(writer)
            writer.close()

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            match request:
                case {"do": "add", "fault": dict(fault)}:
                    wanted = ANY_FAULT.validate_json(json.dumps(fault), strict=True)
                    return {"number": self._faults.add(wanted).number}
                case {"do": "list"}:
                    return {"faults": [asdict(state) for state in self._faults.states()]}
                case {"do": "clear"}:
                    self._faults.clear()
                case {"do": "thaw"}:
                    self._faults.thaw()
                case {"do": "restart", "how": str(how)}:
                    self._restart(how)
                case {"do": "decide", "allow": bool(allow)}:
                    lock = self._authorisation
                    waiting = lock.pending if lock else ()
                    return {"keys": [k for k in waiting if lock and lock.decide(k, allow=allow)]}
                case _:
                    return {"error": "no such request"}
        except (ValueError, RecursionError, ValidationError) as error:
            return {"error": str(error)}
        return {}


class Control:
    """The client's end: faults of a board that another process serves from ``directory``.

    Every method raises ConfigError if no virtual board runs there, HostError if it does not answer.
    """

    def __init__(self, directory: Path):
        self._directory = directory

    def add(self, fault: Fault) -> int:
        """Inject a fault, on its operations or at once. Return its number."""
        wanted = {**fault.model_dump(mode="json"), "fault": fault.name}
        number: int = self._ask({"do": "add", "fault": wanted})["number"]
        return number

    def states(self) -> list[FaultState]:
        """Return every fault so far, with its counts."""
        return [FaultState(**state) for state in self._ask({"do": "list"})["faults"]]

    def clear(self) -> None:
        """Remove every waiting fault; end a freeze."""
        self._ask({"do": "clear"})

    def thaw(self) -> None:
        """End a freeze."""
        self._ask({"do": "thaw"})

    def decide(self, *, allow: bool) -> list[str]:
        """Admit or refuse the waiting hosts; return the fingerprints of their keys."""
        return list(self._ask({"do": "decide", "allow": allow})["keys"])

    def _ask(self, request: dict[str, object]) -> dict[str, Any]:
        try:
            with _short(self._directory) as path, socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(_ANSWER_SECONDS)
                sock.connect(path)
                sock.sendall(json.dumps(request).encode() + b"\n")
                with sock.makefile("rb") as answers:
                    reply: dict[str, Any] = json.loads(answers.readline())
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
            raise ConfigError(
                f"no virtual board is served from {self._directory}",
                hint="name the folder that `labctl virtual-board` printed as its storage",
            ) from error
        except (OSError, ValueError) as error:
            raise HostError(
                f"the virtual board of {self._directory} does not answer: {error}"
            ) from error
        if "error" in reply:
            raise HostError(f"the virtual board of {self._directory} answers: {reply['error']}")
        return reply


@contextmanager
def _short(directory: Path) -> Iterator[str]:
    """Make a path for the socket that fits into a socket address (108 bytes)."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{NAME}"
    finally:
        os.close(folder)
