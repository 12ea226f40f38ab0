"""Services of a phone, by the names with which hosts open streams to them."""

import asyncio
import os

from labctl.adb.daemon.files import serve_files
from labctl.adb.daemon.forward import connect, join
from labctl.adb.daemon.phone import Phone
from labctl.adb.daemon.reverse import Listeners
from labctl.adb.daemon.shell import serve_shell
from labctl.adb.daemon.stream import Stream

#: What a user build says.
_TEXTS = {
    "root:": "adbd cannot run as root in production builds\n",
    "unroot:": "adbd not running as root\n",
    "remount:": 'Not running as root. Try "adb root" first.\n',
    "usb:": "restarting in USB mode\n",
}


async def serve(stream: Stream, phone: Phone, listeners: Listeners, service: bytes) -> None:
    """Serve one stream to its end; a service that the phone lacks is not accepted.

    Raises StreamClosed, OSError, ProtocolError, HostError.
    """
    name = os.fsdecode(service)
    kind, _, rest = name.partition(":")
    if name in _TEXTS:
        stream.accept()
        await stream.write(_TEXTS[name].encode())
    elif kind == "tcpip":  # the port stays as it is: this daemon listens where its user said
        stream.accept()
        text = f"restarting in TCP mode port: {rest}" if rest.isdecimal() else "invalid port"
        await stream.write(f"{text}\n".encode())
    elif kind.split(",")[0] in ("shell", "exec"):
        await serve_shell(stream, phone, kind, service.partition(b":")[2])
    elif name == "sync:":
        await serve_files(stream, phone.directory)
    elif kind == "reverse":
        await listeners.serve(stream, rest)
    elif kind == "reboot":
        stream.accept()
        stream.close()
        if phone.on_reboot:
            phone.on_reboot(rest)
    else:
        async with asyncio.timeout(phone.limits.silence_seconds):
            peer = await connect(name, phone.directory)
        stream.accept()
        await join(stream, *peer)
