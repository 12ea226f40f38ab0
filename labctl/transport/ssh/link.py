"""An open ssh connection to a host, monitored by keepalive requests."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import paramiko
from paramiko.ssh_exception import ChannelException, SSHException

from labctl import interrupts
from labctl.errors import DeviceLost, LinkError, LinkRefused

LOOPBACK = "127.0.0.1"
#: Time-out to open a channel.
OPEN_SECONDS = 15.0
#: Maximum time (s) between the end of a channel and the end of its lost connection.
TEARDOWN_SECONDS = 1.0


@dataclass(frozen=True)
class Watch:
    """Keepalive of a host: interval of the requests, and limit for each reply, in s."""

    every: float = 15.0
    timeout: float = 30.0


class SshLink:
    """An open connection to a host, and the check that the host still answers.

    ``name`` is the host's name in messages; ``closing`` closes jump hosts and a ProxyCommand.
    """

    def __init__(self, name: str, transport: paramiko.Transport, closing: ExitStack, watch: Watch):
        self.name = name
        self._watch = watch
        self._transport = transport
        self._through = closing
        self._silent = False
        self._closing = threading.Event()
        self._on_pulse: Callable[[], None] | None = None
        self._pulse = threading.Thread(target=self._keep_asking, name="ssh-pulse", daemon=True)
        self._pulse.start()

    @property
    def fingerprint(self) -> str:
        """Type and SHA-256 fingerprint of the host's key, as ssh-keygen shows them."""
        key = self._transport.get_remote_server_key()
        return f"{key.get_name()} {key.fingerprint}"

    @property
    def failure(self) -> LinkError | None:
        """The reason why the host accepts no more requests; None if no reason is known."""
        if self._silent:
            return DeviceLost(
                f"{self.name} is gone: no answer for {self._watch.timeout:.0f} s",
                hint="see whether it is up and its network works, then try again",
            )
        if not self._transport.is_active():
            return DeviceLost(
                f"{self.name} is gone: it closed the connection",
                hint="see whether it is up, then try again",
            )
        return None

    def session(self) -> paramiko.Channel:
        """Open a channel for a program. Raises LinkError."""
        self.check()
        try:
            with interrupts.waiting():
                return self._transport.open_session(timeout=OPEN_SECONDS)
        except (OSError, EOFError, SSHException) as error:
            raise DeviceLost(
                f"{self.name} opens no channel: {error}",
                hint="does it allow several sessions on one connection (MaxSessions)?",
            ) from error

    def connect_port(
        self, port: int, *, timeout: float, address: str = LOOPBACK
    ) -> paramiko.Channel:
        """Open a channel to an address as seen from the host; the caller closes it.

        Raises LinkRefused (nothing listens there), another LinkError.
        """
        self.check()
        try:
            with interrupts.waiting():
                return self._transport.open_channel(
                    "direct-tcpip", (address, port), (LOOPBACK, 0), timeout=timeout
                )
        except ChannelException as error:
            where = f"its port {port}" if address == LOOPBACK else f"{address}:{port}"
            raise LinkRefused(
                f"{self.name} cannot connect to {where}: {error.text}",
                hint="is the program there still up, and does sshd allow it (AllowTcpForwarding)?",
            ) from error
        except (OSError, EOFError, SSHException) as error:
            self.check()
            raise DeviceLost(f"{self.name} opens no channel: {error}") from error

    def check(self) -> None:
        """Raise DeviceLost if the host is gone, or has not answered for too long."""
        if (failure := self.failure) is not None:
            raise failure

    def check_after_break(self) -> None:
        """Check as :meth:`check` after a channel broke: the connection may be ending too."""
        self._transport.join(TEARDOWN_SECONDS)
        self.check()

    @contextmanager
    def pulsing(self, on_pulse: Callable[[], None]) -> Iterator[None]:
        """Within the context, call ``on_pulse`` in another thread each time the host answers."""
        self._on_pulse = on_pulse
        try:
            yield
        finally:
            self._on_pulse = None

    def close(self) -> None:
        """Close the connection, its jump hosts and its ProxyCommand. Idempotent."""
        self._closing.set()
        self._transport.close()
        self._pulse.join()
        self._through.close()

    def _keep_asking(self) -> None:
        # Transport.set_keepalive requests no reply, so it would not notice a frozen host. Some
        # waits of paramiko have no time-out: closing the connection ends them.
        while not self._closing.wait(self._watch.every):
            giving_up = threading.Timer(self._watch.timeout, self._give_up)
            giving_up.start()
            try:
                self._transport.global_request("keepalive@openssh.com", wait=True)
            except (OSError, EOFError, SSHException):
                return
            finally:
                giving_up.cancel()
            if not self._transport.is_active():
                return
            if on_pulse := self._on_pulse:
                on_pulse()

    def _give_up(self) -> None:
        self._silent = True
        self._transport.close()
