"""An open ssh connection to a build host, watched."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import paramiko
from paramiko.ssh_exception import SSHException

from labctl.errors import HostError

#: For opening a channel.
OPEN_SECONDS = 15.0
#: A host is asked whether it is still there this often ...
KEEPALIVE_SECONDS = 15.0
#: ... and is given up when it does not answer for this long.
PATIENCE_SECONDS = 30.0
#: Between the end of a channel and that of the connection that it was lost with.
TEARDOWN_SECONDS = 1.0


class Link:
    """An open connection to a build host, and the proof that the host is still there."""

    def __init__(self, name: str, transport: paramiko.Transport):
        self.name = name
        self._transport = transport
        self._silent = False
        self._closing = threading.Event()
        self._on_pulse: Callable[[], None] | None = None
        self._pulse = threading.Thread(target=self._keep_asking, name="ssh-pulse", daemon=True)
        self._pulse.start()

    def channel(self) -> paramiko.Channel:
        """A new channel. Raises HostError."""
        self.check()
        try:
            return self._transport.open_session(timeout=OPEN_SECONDS)
        except (OSError, EOFError, SSHException) as error:
            raise HostError(
                f"build host {self.name!r} opens no channel: {error}",
                hint="does it allow several sessions on one connection (MaxSessions)?",
            ) from error

    def check(self) -> None:
        """Raise HostError when the host has gone, or has not answered for too long."""
        if self._silent:
            raise HostError(
                f"build host {self.name!r} is gone: no answer for {PATIENCE_SECONDS:.0f} s",
                hint="see whether it is up and its network works, then build again",
            )
        if not self._transport.is_active():
            raise HostError(
                f"build host {self.name!r} is gone: it closed the connection",
                hint="see whether it is up, then build again",
            )

    def check_after_break(self) -> None:
        """As :meth:`check`, for a channel that broke: the connection may be about to end too."""
        self._transport.join(TEARDOWN_SECONDS)
        self.check()

    @contextmanager
    def pulsing(self, on_pulse: Callable[[], None]) -> Iterator[None]:
        """Have something done, in another thread, each time that the host has answered."""
        self._on_pulse = on_pulse
        try:
            yield
        finally:
            self._on_pulse = None

    def close(self) -> None:
        """End the connection."""
        self._closing.set()
        self._transport.close()
        self._pulse.join()

    def _keep_asking(self) -> None:
        # Transport.set_keepalive asks for no answer: it would not notice a frozen host. Nor do all
        # waits of paramiko have a time-out: closing the connection ends them.
        while not self._closing.wait(KEEPALIVE_SECONDS):
            giving_up = threading.Timer(PATIENCE_SECONDS, self._give_up)
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
