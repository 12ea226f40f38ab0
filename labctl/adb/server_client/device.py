"""A device behind an adb server: commands, ports, files, a restart.

Each request has its own connection to the server, which carries one service of the device.
"""

import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Self

from labctl.adb.server_client.connection import Connection
from labctl.adb.server_client.server import AdbServer, Refused
from labctl.adb.server_client.states import DEVICE, SETTLING, Device, state_error
from labctl.adb.shell_frames import FrameId, FrameReader, encode_frame
from labctl.errors import (
    CommandTimeout,
    ConfigError,
    DeviceLost,
    LinkError,
    LinkRefused,
    printable_line,
)
from labctl.retry import retry_infra
from labctl.text_types import split_endpoint

#: Interval (s) of the empty pieces of a command without output.
LOOK_SECONDS = 0.25
_SETTLING_INTERVAL_SECONDS = 0.1
_QUESTION_SECONDS = 2.0
SHELL_FEATURE = "shell_v2"

Take = Callable[[bytes], object]


class _Settling(LinkRefused):
    """The device is in a state that passes by itself."""


def find_device(server: AdbServer, name: str, *, timeout: float) -> Device:
    """Return the device that is named by its serial, ``usb:PORT`` or ``transport_id:N``.

    A device on TCP that the server does not have is connected first: a restarted server has
    forgotten it. Raises LinkRefused (no such device), ConfigError (several), another LinkError.
    """
    found = [one for one in server.devices(timeout=timeout) if one.is_named(name)]
    why = None
    if not found and _is_endpoint(name):
        why = server.connect_device(name, timeout=timeout)
        found = [one for one in server.devices(timeout=timeout) if one.is_named(name)]
    if not found:
        raise LinkRefused(
            f"{server.label} has no device {name}" + (f": {why}" if why else ""),
            hint="is it on, plugged in, and is USB debugging on? See `adb devices -l`",
        )
    if len(found) > 1:
        choices = [one.port or f"transport_id:{one.transport_id}" for one in found]
        raise ConfigError(
            f"{len(found)} devices of {server.label} have the serial {name}",
            hint=f"write one of these as its serial instead: {', '.join(choices)}",
        )
    return found[0]


def _is_endpoint(name: str) -> bool:
    try:
        split_endpoint(name)
    except ValueError:
        return False
    return not name.startswith(("usb:", "transport_id:"))


class AdbDevice:
    """A device of a server, in the state ``device``. Use :meth:`connect`; safe in many threads.

    ``failure`` is set once the device or the server was lost.
    """

    def __init__(self, server: AdbServer, device: Device, features: frozenset[str]):
        self.label = f"the device {printable_line(device.serial)} of {server.label}"
        self.device = device
        self.features = features
        self._server = server
        self._failure: LinkError | None = None
        self._connections: set[Connection] = set()
        self._state = threading.Lock()

    @classmethod
    def connect(cls, server: AdbServer, name: str, *, timeout: float) -> Self:
        """Find a device that is ready within ``timeout`` seconds.

        Raises as :func:`find_device` does, NotAuthorised and LinkRefused by its state, and
        ConfigError without ``shell_v2``: the older shell has no exit status.
        """

        def find() -> Device:
            device = find_device(server, name, timeout=timeout)
            if device.state in SETTLING:
                raise _Settling(device.state)
            return device

        try:
            device = retry_infra(
                find, on=(_Settling,), timeout=timeout, interval=_SETTLING_INTERVAL_SECONDS
            )
        except _Settling:
            device = find_device(server, name, timeout=timeout)
        made = cls(server, device, frozenset())
        if device.state != DEVICE:
            raise state_error(device, made.label)
        made.features = made._ask_features(timeout)
        if SHELL_FEATURE not in made.features:
            raise ConfigError(
                f"{made.label} has no {SHELL_FEATURE}: its shell reports no exit status",
                hint="labctl needs Android 7 or newer; `adb features` shows what a device has",
            )
        return made

    def _ask_features(self, timeout: float) -> frozenset[str]:
        request = f"{self._chosen}:features"
        with (
            self._noting_losses(),
            self._server.open(request, label=self.label, timeout=timeout) as connection,
        ):
            answer = connection.read_answer(timeout)
        return frozenset(answer.decode(errors="replace").split(","))

    @property
    def failure(self) -> LinkError | None:
        """The reason why the device takes no more requests; None if no reason is known."""
        return self._failure

    def shell(
        self, script: str, *, timeout: float, write_error: Take | None = None
    ) -> Generator[bytes, None, None]:
        """Run a script with stdin closed; yield its output, as it arrives, until its exit frame.

        Without output, an empty piece comes every ``LOOK_SECONDS``. Without ``write_error``, both
        streams come as one. Raises DeviceLost if the stream ends without an exit frame,
        CommandTimeout, ProtocolError.
        """
        # The device's shell merges the streams itself, which keeps their order.
        merge = "" if write_error else "exec 2>&1\n"
        deadline = time.monotonic() + timeout
        with self.opened(f"shell,v2,raw:{merge}{script}", timeout=timeout) as connection:
            # A command may end before it has read this.
            with suppress(DeviceLost):
                connection.send([encode_frame(FrameId.CLOSE_STDIN)], timeout=timeout)
            frames = FrameReader()
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise CommandTimeout(f"the command did not end within {timeout:g} s")
                try:
                    data = connection.receive(min(left, LOOK_SECONDS))
                except CommandTimeout:
                    yield b""
                    continue
                if not data:
                    raise DeviceLost(f"{self.label}: the shell ended without an exit status")
                for frame in frames.feed(data):
                    if frame.id == FrameId.STDOUT:
                        yield frame.data
                    elif frame.id == FrameId.STDERR and write_error:
                        write_error(frame.data)
                    elif frame.id == FrameId.STDERR:
                        yield frame.data
                    elif frame.id == FrameId.EXIT:
                        return

    @contextmanager
    def connect_port(self, port: int, *, timeout: float) -> Iterator[socket.socket]:
        """Connect to a TCP port of the device, without a forward rule of the server.

        Raises LinkRefused (nothing listens there), another LinkError.
        """
        try:
            with self.opened(f"tcp:{port}", timeout=timeout) as connection:
                yield connection.socket
        except Refused as error:
            raise LinkRefused(
                f"{self.label}: nothing answers at its port {port}: {error.message}",
                hint="is the program there still up?",
            ) from error

    def reboot(self, how: str, *, timeout: float) -> None:
        """Request a restart; return once the device has accepted it or is already gone.

        This does not prove that it restarted: compare its boot id later. Raises LinkError.
        """
        with suppress(DeviceLost), self.opened(f"reboot:{how}", timeout=timeout) as connection:
            while connection.receive(timeout):
                pass

    def power_off(self, *, timeout: float) -> None:
        """Request a shutdown, as :meth:`reboot` requests a restart: adb itself has no request."""
        with suppress(DeviceLost):
            for _piece in self.shell("reboot -p", timeout=timeout):
                pass

    @contextmanager
    def opened(self, service: str, *, timeout: float) -> Iterator[Connection]:
        """Open a service of the device for the context.

        Raises Refused (the device offers no such service), DeviceLost, another LinkError.
        """
        with self._noting_losses(), self._open(service, timeout) as connection:
            with self._state:
                if self._failure is not None:
                    raise self._failure.again()
                self._connections.add(connection)
            try:
                yield connection
            finally:
                with self._state:
                    self._connections.discard(connection)

    def _open(self, service: str, timeout: float) -> Connection:
        """Open a service; have the server connect anew to a device that opens none.

        A cut packet leaves a device in the state ``device``, and every request waits for ever.
        """
        try:
            return self._request(service, timeout)
        except CommandTimeout as error:
            if error.is_of_host or not self._is_hung():
                raise
            lost = DeviceLost(
                f"{self.label} opens no service any more ({error.message}); the server now"
                " connects to it anew",
                hint="try again; if it stays so, plug it in again, or `adb kill-server`",
            )
            self._fail(lost)
            self._server.ask(f"{self._chosen}:reconnect", timeout=_QUESTION_SECONDS)
            raise lost.again() from error

    def _request(self, service: str, timeout: float) -> Connection:
        chosen = f"host:transport-id:{self.device.transport_id}"
        return self._server.open(chosen, service, label=self.label, timeout=timeout)

    def _is_hung(self) -> bool:
        """Return True if not even an empty command begins."""
        try:
            self._request("shell,v2,raw::", _QUESTION_SECONDS).close()
        except CommandTimeout as error:
            return not error.is_of_host
        except LinkError:
            pass  # the next request finds the reason
        return False

    @property
    def _chosen(self) -> str:
        """Prefix of the server's own requests about the device."""
        return f"host-transport-id:{self.device.transport_id}"

    @contextmanager
    def _noting_losses(self) -> Iterator[None]:
        """Find the reason for a loss or a refusal: the server is gone, or the device's state."""
        try:
            yield
        except (DeviceLost, Refused) as error:
            if error.is_of_host:
                self._fail(error)
                raise
            reason = self._failure or self._reason(error)
            if reason is None:
                raise
            self._fail(reason)
            raise reason.again() from error
        except LinkError as error:
            if error.is_of_host:
                self._fail(error)
            raise

    def _reason(self, error: LinkError) -> LinkError | None:
        """Return why the device is no longer there; None if it is."""
        try:
            devices = self._server.devices(timeout=_QUESTION_SECONDS)
        except LinkError as gone:
            return DeviceLost(
                f"{error.message}: {gone.message}",
                hint="start the adb server again: `adb start-server`; see why it ended",
            ).of_host()
        same = [one for one in devices if one.transport_id == self.device.transport_id]
        if not same:
            return DeviceLost(f"{self.label} was disconnected", details=error.message)
        if same[0].state != DEVICE:
            return DeviceLost(
                f"{self.label} was lost: its state is now {printable_line(same[0].state)!r}",
                hint=state_error(same[0], self.label).hint,
                details=error.message,
            )
        return None

    def close(self) -> None:
        """End all conversations with the device. Idempotent."""
        self._fail(DeviceLost(f"the link to {self.label} was closed"))
        with self._state:
            for connection in self._connections:
                with suppress(OSError):  # the peer may have closed it first
                    connection.socket.shutdown(socket.SHUT_RDWR)

    def _fail(self, reason: LinkError) -> None:
        with self._state:
            if self._failure is None:
                self._failure = reason
