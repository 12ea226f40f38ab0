"""Ends of forwarded connections on a phone, named as adb does."""

import asyncio
from contextlib import suppress
from pathlib import Path

from labctl.adb.daemon.stream import Stream, StreamClosed

_LOOPBACK = "127.0.0.1"
_LAST_PORT = 65535
_PIECE_BYTES = 64 << 10

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def port_of(name: str) -> int | None:
    """Return the port of ``tcp:PORT``, 0 included; None for anything else."""
    kind, _, port = name.partition(":")
    is_port = kind == "tcp" and port.isascii() and port.isdecimal() and len(port) <= 5
    return int(port) if is_port and int(port) <= _LAST_PORT else None


def socket_path(name: str, directory: Path) -> str | None:
    """Return the path of a Unix socket; None if the name is not one's."""
    kind, _, address = name.partition(":")
    folders = {"local": "", "localfilesystem": "", "localreserved": "dev/socket"}
    if not address:
        return None
    if kind == "localabstract":
        return f"\0{address}"
    return str(directory / folders[kind] / address) if kind in folders else None


async def connect(name: str, directory: Path) -> Streams:
    """Connect to a port or a socket of the phone. Raises OSError."""
    try:
        if port := port_of(name):
            return await asyncio.open_connection(_LOOPBACK, port)
        if path := socket_path(name, directory):
            return await asyncio.open_unix_connection(path)
    except ValueError as error:  # a name that no system call accepts
        raise OSError(str(error)) from error
    raise OSError(f"no such service: {name}")


async def join(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes both ways, until either side ends."""

    async def outward() -> None:
        with suppress(OSError, StreamClosed):
            while data := await reader.read(_PIECE_BYTES):
                await stream.write(data)
        stream.close()

    task = stream.carrier.spawn(outward())
    try:
        while data := await stream.read():
            writer.write(data)
            await writer.drain()
    finally:
        task.cancel()
        writer.close()
        stream.close()
