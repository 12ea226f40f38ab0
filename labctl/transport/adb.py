"""A phone over adb, through an adb server: on a USB cable, or on the network."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from labctl.adb import ADB_SERVER
from labctl.config.transport import TransportConfig
from labctl.errors import ConfigError
from labctl.text_types import AdbSerial, Endpoint, is_on_loopback, split_endpoint
from labctl.transport.base import OpenOptions, Reboot, TransferOptions, address_of, rules
from labctl.transport.linked import LinkedTransport, Stream

if TYPE_CHECKING:  # most boards are no phones
    from labctl.adb.server_client.device import AdbDevice
    from labctl.transport.adb_files import AdbFileTransfer

_USUAL = OpenOptions()
_LOOPBACK = "127.0.0.1"


class AdbTransport(LinkedTransport["AdbDevice"]):
    """A phone behind an adb server."""

    def shell(
        self, link: "AdbDevice", script: str, *, timeout: float
    ) -> Generator[bytes, None, None]:
        """Run a script; see :class:`LinkedTransport`.

        The exit frame proves that the output is complete, the sentinel that the command ended: a
        killed shell has an exit frame too.
        """
        return link.shell(script, timeout=timeout)

    def file_transfer(self, options: TransferOptions) -> "AdbFileTransfer":
        """Return the transfer; see :class:`Transport`."""
        from labctl.transport.adb_files import AdbFileTransfer

        return AdbFileTransfer(self, options)

    @contextmanager
    def connect(self, port: int, *, timeout: float) -> Iterator[Stream]:
        """Connect to a port of the phone; see :class:`Transport`."""
        with self.connected().connect_port(port, timeout=timeout) as connected:
            yield Stream(self.label, connected, timeout=timeout)

    def request_reboot(self, how: Reboot = "", *, timeout: float) -> None:
        """Request a restart; see :class:`Transport`."""
        if how == "flashd":
            raise ConfigError(
                f"{self.label} cannot be restarted into flashd: phones have none",
                hint="phones are flashed from their bootloader",
            )
        link = self.connected()
        if how == "shutdown":
            link.power_off(timeout=timeout)
        else:
            link.reboot(how, timeout=timeout)
        self.close()


@dataclass(frozen=True, kw_only=True)
class AdbConfig(TransportConfig):
    """A phone reached over Android's adb, through an adb server."""

    __pydantic_config__: ClassVar[dict[str, Any]] = rules()
    needs_workdir: ClassVar[bool] = False

    kind: Literal["adb"] = "adb"
    """Way to reach the board."""
    serial: AdbSerial
    """The phone as `adb devices -l` shows it: its serial, HOST:PORT on the network, or its place
    `usb:…` where a serial stands twice."""
    server: Endpoint | None = None
    """Address of the adb server, HOST:PORT; by default 127.0.0.1:5037. labctl never starts or ends
    it."""
    trust_network: bool = False
    """True if `server` may be on another host: an adb server has no password and no encryption."""

    @property
    def location(self) -> str:
        """Address of the board, for people."""
        return self.serial

    @property
    def is_on_this_host(self) -> bool:
        """True if the phone may be virtual; its folders are then on this host."""
        return _same_place(self.serial).startswith(f"{_LOOPBACK}:")

    @property
    def port_on_this_host(self) -> int | None:
        """Port of the phone's daemon if it may be virtual."""
        return split_endpoint(self.serial)[1] if self.is_on_this_host else None

    def problem(self) -> tuple[str, str] | None:
        """Refuse a server that others could use or overhear."""
        if self.server is None or is_on_loopback(self.server) or self.trust_network:
            return None
        host, port = split_endpoint(self.server)
        return "server", (
            "is on another host, and an adb server has neither password nor encryption: make a"
            f" tunnel (`ssh -L {port}:{_LOOPBACK}:{port} {host}`) and drop this, or say that"
            " everybody on the way is trusted (`trust_network: true`)"
        )

    def clash(self, other: object, name: str) -> tuple[str, str] | None:
        """Refuse an equal serial on the same server."""
        if not isinstance(other, AdbConfig):
            return None
        mine, theirs = ((one.server or ADB_SERVER, one.serial) for one in (self, other))
        if [*map(_same_place, mine)] != [*map(_same_place, theirs)]:
            return None
        return "serial", f"board '{name}' has this serial too"

    def open(self, options: OpenOptions = _USUAL) -> AdbTransport:
        """Return the transport; the first operation opens the link, and reopens it after a loss.

        Raises ConfigError.
        """
        from labctl.adb.server_client.device import AdbDevice
        from labctl.adb.server_client.server import AdbServer

        server = AdbServer(*address_of(self.server or ADB_SERVER, "an adb server"))
        return AdbTransport(
            f"adb {self.serial}",
            lambda: AdbDevice.connect(server, self.serial, timeout=options.timeout),
        )


def _same_place(name: str) -> str:
    """Return a serial or an address with one name for this host's loopback."""
    try:
        host, port = split_endpoint(name)
    except ValueError:
        return name
    return f"{_LOOPBACK if is_on_loopback(name) else host.lower()}:{port}"
