"""Who may use a board: the lease in its workdir. The greatest epoch wins.

The board's file knows no compare-and-swap, so a lease is only *held* while :meth:`BoardLease.check`
agrees; the agent refuses and ends jobs of an older epoch by itself. Controllers on one host exclude
each other before they come here.
"""

import json
import secrets
import socket
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from labctl.errors import BoardError, LeaseLost
from labctl.transport import Transport, remote_words, require

LEASE_FILE = "lease"


@dataclass(frozen=True)
class Lease:
    """What the board's file says. ``token`` is new for each acquisition."""

    lab: str
    epoch: int
    host: str
    utc: str
    token: str


class BoardLease:
    """The lease of one board. ``workdir`` is made when it is taken."""

    def __init__(self, transport: Transport, workdir: str, *, timeout: float = 15.0):
        self._transport = transport
        self._workdir = workdir
        self._timeout = timeout
        #: The file on the board, for the agent's ``--lease``.
        self.path = f"{workdir}/{LEASE_FILE}"

    def read(self) -> Lease | None:
        """The lease on the board, None when there is no file.

        Raises LinkError, and BoardError when the file cannot be understood.
        """
        path = remote_words(self.path)
        result = self._transport.run(
            f"if [ -e {path} ]; then cat {path}; fi", timeout=self._timeout
        )
        text = require(result, f"cannot read {self.path} on the board").text.strip()
        if not text:
            return None
        try:
            fields = json.loads(text)
            return Lease(
                lab=str(fields["lab"]),
                epoch=int(fields["epoch"]),
                host=str(fields["host"]),
                utc=str(fields["utc"]),
                token=str(fields.get("token", "")),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise BoardError(
                f"the board's lease {self.path} is not one that labctl wrote",
                hint=f"if no other labctl uses this board, remove {self.path} on it",
                details=text[:500],
            ) from error

    def acquire(self, lab: str, *, minimum_epoch: int = 0) -> Lease:
        """Take the board with an epoch above the board's and above ``minimum_epoch``.

        Whoever held it before loses it. Raises LinkError, BoardError, and LeaseLost when another
        controller took the board in the same moment.
        """
        before = self.read()
        lease = Lease(
            lab=lab,
            epoch=max(minimum_epoch, before.epoch if before else 0) + 1,
            host=socket.gethostname(),
            utc=datetime.now(UTC).isoformat(timespec="seconds"),
            token=secrets.token_hex(8),
        )
        temporary, path = f"{self.path}.{lease.token}", self.path
        script = (
            f"umask 022; mkdir -p {remote_words(self._workdir)} &&"
            f" printf '%s\\n' {remote_words(json.dumps(asdict(lease)))}"
            f" >{remote_words(temporary)} && mv -f {remote_words(temporary, path)} ||"
            f" {{ rm -f {remote_words(temporary)}; false; }}"
        )
        require(
            self._transport.run(script, timeout=self._timeout),
            f"cannot write {self.path} on the board",
        )
        self.check(lease)
        return lease

    def check(self, lease: Lease) -> None:
        """Raise LeaseLost unless the board's lease is still this one."""
        now = self.read()
        if now == lease:
            return
        if now is None:
            raise LeaseLost(f"the board's lease {self.path} is gone")
        raise LeaseLost(
            f"{now.lab} on {now.host} took the board at {now.utc} (epoch {now.epoch},"
            f" this run has {lease.epoch})",
            hint="wait until the board is free, then run again",
        )
