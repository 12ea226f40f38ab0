"""Restart of a board and its power switches: the only way to use them, for the board's holder.

A switch does not know epochs. So both leases are checked right before it acts: the board's own (if
the board answers) and the lab's. The lab's lease is renewed for the duration of the switch, so no
other user gets the board meanwhile.

If a process is suspended between the check and the switch, for longer than the renewed lease, it
still acts when it continues. A trial of the next holder then ends as if its board restarted: that
counts as an infrastructure fault and never as a result.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from labctl.board.lease import BoardLease
from labctl.errors import BoardBusy, BoardError, LeaseLost, LinkError
from labctl.state.lease import StateLease, steady_seconds
from labctl.state.leases import BoardLeases
from labctl.transport.base import Transport
from labctl.transport.readiness import reboot

#: Time (s) by which the lab's lease exceeds the switch's own time.
_MARGIN_SECONDS = 30.0

T = TypeVar("T")


@dataclass(frozen=True)
class BoardPower:
    """The switches of a board held under ``lease``; ``on_board`` is the board's own lease.

    Methods raise LeaseLost, or BoardBusy while a controller with another lab's lease is alive; then
    nothing has happened to the board.
    """

    leases: BoardLeases
    lease: StateLease
    on_board: BoardLease
    #: Name of the lab's state; its epochs cannot be compared with another state's.
    identity: str | None

    def reboot(self, epoch: int, transport: Transport, *, timeout: float) -> str | None:
        """Restart the board; wait up to ``timeout`` s until it runs; return its new boot id.

        Raises as :func:`labctl.transport.readiness.reboot` does.
        """
        return self.act(epoch, lambda: reboot(transport, timeout=timeout), seconds=timeout)

    def act(self, epoch: int, switch: Callable[[], T], *, seconds: float) -> T:
        """Use a switch (power, a USB port, flashing), for at most ``seconds``.

        ``epoch`` is the caller's. If the board does not answer, the lab's lease is sufficient.
        Raises the errors of ``switch``.
        """
        now = None
        with suppress(LinkError, BoardError):  # this may be the reason to use the switch
            now = self.on_board.status()
        if now is not None and now.alive and now.lease.state != (self.identity or ""):
            raise BoardBusy(
                f"board {self.lease.board} is in use by lab {now.lease.lab} on {now.lease.host}"
                f" since {now.lease.utc}: it is not switched",
                hint="wait for its end",
            )
        if now is not None:
            self.leases.refuse_other_name(self.lease.board, now.lease.token)
        if now is not None and now.lease.epoch > epoch:
            raise LeaseLost(
                f"{now.lease.lab} on {now.lease.host} took board {self.lease.board} at"
                f" {now.lease.utc} (epoch {now.lease.epoch}, this one is {epoch}): it is not"
                " switched"
            )
        kept = self.leases.renew(self.lease, seconds + _MARGIN_SECONDS)
        if kept.epoch != epoch or steady_seconds() >= kept.stop_before:
            raise LeaseLost(
                f"board {self.lease.board} is held with epoch {kept.epoch}, not {epoch}:"
                " it is not switched"
            )
        return switch()
