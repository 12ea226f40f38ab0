"""Network of a lab to be broken: a namespace for each host, and proxies that let nothing through.

Where no namespace may be made, the hosts are on loopback, and a partition is cut proxies alone.
"""

import asyncio
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

#: A port of this host or a Unix socket, as it is now.
Target = Callable[[], Path | int]


class Proxies:
    """The thread that serves all proxies of a lab."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="proxies")
        self._thread.start()
        self._open: list[Proxy] = []

    def lead(self, address: str, target: Target) -> "Proxy":
        """Return a new proxy that listens on an address."""
        self._open.append(Proxy(self.loop, address, target))
        return self._open[-1]

    def close(self) -> None:
        """End all of them."""

        async def end() -> None:
            for proxy in self._open:
                await proxy.end()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self.loop).result(60)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()


class Proxy:
    """A port that leads elsewhere, until it is cut."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str, target: Target):
        self._loop = loop
        self._target = target
        self._cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        opening = asyncio.start_server(self._serve, address, 0)
        self._open = asyncio.run_coroutine_threadsafe(opening, loop).result(60)
        self.port: int = self._open.sockets[0].getsockname()[1]
        self.address = f"{address}:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            target = self._target()
            if isinstance(target, Path):
                there, to_there = await asyncio.open_unix_connection(target)
            else:
                there, to_there = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.close()
            return
        self._writers.add(to_there)
        await asyncio.gather(self._pump(reader, to_there), self._pump(there, writer))
        self._writers -= {writer, to_there}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(1 << 16):
                if not self._cut:  # what is sent meanwhile never arrives
                    writer.write(piece)
                    await writer.drain()
        writer.close()

    def cut(self) -> None:
        """Let nothing through, and tell nobody."""
        self._cut = True

    def heal(self) -> None:
        """Let new connections through; those that lost something break."""
        self._cut = False
        self.drop()

    def drop(self) -> None:
        """Break all connections."""
        asyncio.run_coroutine_threadsafe(self._abort(), self._loop).result(60)

    async def end(self) -> None:
        """End it, on its loop."""
        self._open.close()
        await self._abort()
        await self._open.wait_closed()

    async def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@dataclass
class HostNetwork:
    """What one host reaches the others by."""

    #: Where what serves this host listens.
    address: str = "127.0.0.1"
    #: Words before a command that is to run there.
    within: list[str] = field(default_factory=list)
    link: str | None = None

    def pull(self) -> None:
        """Pull the host's only cable: nothing passes, and nobody is told."""
        self._set("down")

    def plug(self) -> None:
        """Put the cable in again: connections that did not give up meanwhile go on."""
        self._set("up")

    def _set(self, state: str) -> None:
        assert self.link is not None
        subprocess.run(["ip", "link", "set", self.link, state], check=True)


@contextmanager
def host_networks(names: tuple[str, ...]) -> Iterator[dict[str, HostNetwork]]:
    """Namespaces of the hosts, each with a cable to this one; on loopback where none can be."""
    with ExitStack() as ending:
        made = {}
        for number, name in enumerate(names, 1):
            namespace, link = f"labctl-{os.getpid()}-{name}", f"lc{os.getpid()}-{number}"
            if not _ip("netns", "add", namespace):
                yield {name: HostNetwork() for name in names}
                return
            ending.callback(_ip, "netns", "del", namespace)
            # Of the addresses for measurements of networks (RFC 2544), which nobody routes.
            prefix = f"198.{18 + os.getpid() // 256 % 2}.{os.getpid() % 256}"
            here, there = f"{prefix}.{4 * number + 1}", f"{prefix}.{4 * number + 2}"
            commands = (
                f"link add {link} type veth peer name eth0 netns {namespace}",
                f"addr add {here}/30 dev {link}",
                f"link set {link} up",
                f"-n {namespace} addr add {there}/30 dev eth0",
                f"-n {namespace} link set eth0 up",
                f"-n {namespace} link set lo up",
            )
            assert all(_ip(*command.split()) for command in commands), commands
            made[name] = HostNetwork(here, ["ip", "netns", "exec", namespace], link)
        yield made


def _ip(*words: str) -> bool:
    """Run ``ip``; False where it cannot be, or is refused."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    return subprocess.run(["ip", *words], check=False, capture_output=True).returncode == 0
