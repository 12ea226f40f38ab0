"""``adb reverse``: ports of the phone whose connections the host takes."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from labctl.adb.daemon.forward import join, port_of, socket_path
from labctl.adb.daemon.stream import Carrier, Stream
from labctl.tcp import close_server

_LOOPBACK = "127.0.0.1"
_MOST = 64


class Listeners:
    """The rules of one host; they end with its connection."""

    def __init__(self, carrier: Carrier, directory: Path):
        self._carrier = carrier
        self._directory = directory
        self._servers: dict[str, tuple[str, asyncio.Server]] = {}
        self._is_over = False

    async def serve(self, stream: Stream, request: str) -> None:
        """Answer one request of ``reverse:``. Raises StreamClosed."""
        stream.accept()
        if request == "list-forward":
            rules = "".join(f"host {here} {there}\n" for here, (there, _) in self._servers.items())
            await stream.write(_counted(rules))
            return
        try:
            await stream.write(b"OKAY" + await self._changed(request))
        except (OSError, ValueError) as error:
            await stream.write(b"FAIL" + _counted(str(error)))

    def close(self) -> None:
        """End all rules."""
        self._is_over = True
        for here in list(self._servers):
            self._end(here)

    async def _changed(self, request: str) -> bytes:
        verb, _, rest = request.partition(":")
        if verb == "killforward-all":
            for here in list(self._servers):
                self._end(here)
            return b""
        if verb == "killforward":
            if rest not in self._servers:
                raise ValueError(f"listener '{rest}' not found")
            self._end(rest)
            return b""
        if verb != "forward":
            raise ValueError(f"unknown reverse request '{verb}'")
        fresh = rest.removeprefix("norebind:")
        here, _, there = fresh.partition(";")
        if not there:
            raise ValueError("bad forward: no ';'")
        if here in self._servers:
            if fresh != rest:
                raise ValueError("cannot rebind existing socket")
            self._servers[here] = (there, self._servers[here][1])
            return b""
        if len(self._servers) >= _MOST:
            raise ValueError("too many listeners")
        return await self._listen(here, there)

    async def _listen(self, here: str, there: str) -> bytes:
        port = port_of(here)
        path = socket_path(here, self._directory)
        name = here
        accepted = partial(self._accepted, lambda: name)
        if port is not None:
            server = await asyncio.start_server(accepted, _LOOPBACK, port)
            chosen: int = server.sockets[0].getsockname()[1]
            name = f"tcp:{chosen}"
        elif path is not None:
            server = await asyncio.start_unix_server(accepted, path)
        else:
            raise ValueError(f"unknown socket specification: {here}")
        if self._is_over:
            close_server(server)
        else:
            self._servers[name] = (there, server)
        return _counted(str(chosen)) if port == 0 else b""

    def _end(self, here: str) -> None:
        _, server = self._servers.pop(here)
        close_server(server)
        path = socket_path(here, self._directory)
        if path and not path.startswith("\0"):
            with suppress(OSError):
                Path(path).unlink()

    def _accepted(
        self, name: Callable[[], str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, _ = self._servers.get(name(), ("", None))
        stream = self._carrier.open(there) if there else None
        if stream is None:
            writer.transport.abort()
            return
        self._carrier.spawn(_carry(stream, reader, writer))


async def _carry(
    stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        if await stream.is_accepted():
            with suppress(OSError):
                await join(stream, reader, writer)
    finally:
        stream.close()
        writer.close()


def _counted(text: str) -> bytes:
    """Return a text after its length in four hexadecimal digits, as adb's answers have it."""
    raw = text.encode(errors="surrogateescape")[:0xFFFF]
    return f"{len(raw):04x}".encode() + raw
