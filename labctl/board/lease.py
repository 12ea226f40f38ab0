"""The lease in a board's workdir decides who may use the board. The greatest epoch wins.

The board's agent makes every lasting change, and checks the epoch in the same process
(:class:`Fence`): it locks the lease, checks its epoch, and becomes the shell that makes the change
(``agent guard``). A new lease is written under the same lock (``agent take``), once the jobs of
older epochs have ended. So when its epoch is on the board, no change of an older epoch is running,
and none can start. A lease is held while :meth:`BoardLease.check` agrees. Controllers on one host
exclude each other before they come here.

The holder of a lease gives signs of life in the file ``lease.alive``: the boot id, and the seconds
since boot, which setting the clock does not change. So a dead controller does not block others for
long, and a living controller is not replaced by mistake.

Without an agent, changes are made only below ``incoming/<epoch>``: raw transfers go there, and no
other controller reads it. The first agent publishes itself from there.

The lease does not cover users' commands (``labctl shell``, ``labctl hdc``), nor temporary files
that a command creates and removes in the board's temporary folder.
"""

import json
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from labctl.board.facts import SECTION, sections
from labctl.board.job import Survivor, refusal
from labctl.errors import BoardError, LeaseLost, printable_line
from labctl.text_types import LONGEST_LINE
from labctl.transport.base import CommandResult, Transport, last_object, remote_words, require
from labctl.virtual.marks import BOOT_ID

LEASE_FILE = "lease"
INCOMING = "incoming"

_TIMEOUT_SECONDS = 60.0
#: Statuses of an agent that did not execute the program; see its ``failure.h``.
_REFUSALS = (2, 71, 75, 76)


@dataclass
class Fence:
    """The agent that makes changes below a board's workdir, and the epoch for them.

    The epoch is the held lease's; before that, the epoch seen on the board, or 0. ``agent`` is the
    agent's path on the board; None before an agent is there.
    """

    transport: Transport
    workdir: str
    agent: str | None = None
    epoch: int = 0

    @property
    def lease(self) -> str:
        """The lease's file on the board."""
        return f"{self.workdir}/{LEASE_FILE}"

    @property
    def incoming(self) -> str:
        """The folder on the board for raw transfers."""
        return f"{self.workdir}/{INCOMING}/{self.epoch}"

    @property
    def options(self) -> tuple[str, ...]:
        """Options with which the agent's commands check the epoch."""
        return ("--lease", self.lease, "--epoch", str(self.epoch))

    def guarded(self, script: str, *, agent: str | None = None, epoch: int | None = None) -> str:
        """Return the command that runs a script unless the board has a newer epoch."""
        number = self.epoch if epoch is None else epoch
        program = agent or self.agent
        assert program is not None, "nothing is changed on a board before it has an agent"
        fence = ("--lease", self.lease, "--epoch", str(number))
        return remote_words(program, "guard", *fence, "--", "sh", "-c", script)

    def run(
        self,
        script: str,
        what: str,
        *,
        timeout: float = _TIMEOUT_SECONDS,
        agent: str | None = None,
        epoch: int | None = None,
    ) -> str:
        """Run a script that changes the board; return its output.

        ``agent`` replaces the board's agent. Raises LeaseLost if the board has a newer epoch, and
        then changes nothing; LinkError, BoardError.
        """
        command = self.guarded(script, agent=agent, epoch=epoch)
        result = self.transport.run(command, timeout=timeout)
        refuse_stale(result, what)
        return require(result, what).text


def refuse_stale(result: CommandResult, what: str) -> None:
    """Raise the agent's reason for refusing: LeaseLost, BoardError.

    The caller judges all other results of the command.
    """
    if result.exit_status not in _REFUSALS:
        return
    answer = last_object(result.text)
    if answer is not None and "error" in answer:
        raise refusal(str(answer["error"]), str(answer.get("message")), what)


#: A controller gives signs of life while it waits for a board to become ready, and before and after
#: each trial. It is silent while it retries a lost link, and may be silent while its job runs.
ALIVE_SECONDS = 10 * 60.0
#: The lab's state can store greater epochs: a board with this epoch can still be taken.
_MOST_EPOCH = 1 << 52
#: Before writing a new lease, the agent waits for running changes, and ends jobs.
_TAKE_SECONDS = 90.0
#: Seconds since boot, and the boot id; put ``_UPTIME`` before it. The shell does as much as
#: possible itself: starting a program costs more than the rest of these scripts.
_UPTIME = "{ read -r uptime _ </proc/uptime; } 2>/dev/null\n"
_NOW = f'"${{uptime%%.*}} {BOOT_ID}"'
#: Line between the lease that was read and the output of a script under it.
_CHECKED = "@labctl checked"


@dataclass(frozen=True)
class Lease:
    """Content of the board's lease file. ``token`` is new for each acquisition."""

    lab: str
    epoch: int
    host: str
    utc: str
    token: str
    #: Name of the lab's state that assigned the board; empty without a state.
    state: str = ""


@dataclass(frozen=True)
class LeaseStatus:
    """A lease and the time (s) since its holder's last sign of life; None: none since boot."""

    lease: Lease
    silent_seconds: float | None
    alive_seconds: float = ALIVE_SECONDS

    @property
    def alive(self) -> bool:
        """True if its holder's last sign of life is recent; a running job does not need one."""
        return self.silent_seconds is not None and self.silent_seconds <= self.alive_seconds


def lease_question(workdir: str) -> str:
    """Return the script that reads the lease's status, for :func:`labctl.board.facts.ask`."""
    path = remote_words(f"{workdir}/{LEASE_FILE}")
    return (
        f"section lease; [ ! -e {path} ] || cat {path}\n"
        f"{_UPTIME}section now; echo {_NOW}\n"
        # `echo` in mksh changes backslashes; a valid sign of life has none.
        f"{{ read -r heard <{path}.alive; }} 2>/dev/null\n"
        'section alive; case $heard in *\\\\*) ;; *) echo "$heard";; esac\n'
    )


class BoardLease:
    """The lease of one board. ``workdir`` is created when the lease is taken.

    Reading needs no agent; the agent in ``fence`` takes, checks and releases the lease. A holder
    that is silent for ``alive_seconds`` is dead.
    """

    def __init__(
        self,
        transport: Transport,
        workdir: str,
        *,
        fence: Fence | None = None,
        timeout: float = 15.0,
        alive_seconds: float = ALIVE_SECONDS,
    ):
        self._transport = transport
        self._workdir = workdir
        self._timeout = timeout
        self._alive_seconds = alive_seconds
        self._fence = fence or Fence(transport, workdir)
        self.survivors: tuple[Survivor, ...] = ()
        self.answers: Mapping[str, str] = {}
        self.path = self._fence.lease

    def read(self) -> Lease | None:
        """Return the lease on the board; None if there is no lease file.

        Raises LinkError, and BoardError if the file cannot be parsed.
        """
        path = remote_words(self.path)
        return self._lease_in(self._run(f"[ ! -e {path} ] || cat {path}"))

    def status(self) -> LeaseStatus | None:
        """Return the lease with its holder's last sign of life; None if there is no lease.

        Raises as :meth:`read` does.
        """
        return self.status_in(sections(self._run(f"{SECTION}{lease_question(self._workdir)}")))

    def status_in(self, answers: Mapping[str, str]) -> LeaseStatus | None:
        """Parse the answers to :func:`lease_question`. Raises BoardError."""
        lease = self._lease_in(answers.get("lease", ""))
        now, boot = _moment(answers.get("now", ""))
        heard, heard_boot = _moment(answers.get("alive", ""))
        if lease is None:
            return None
        # A sign may be newer than the time that the board printed, because it came later.
        if now is None or heard is None or boot != heard_boot or heard > now + self._timeout:
            return LeaseStatus(lease, None, self._alive_seconds)
        return LeaseStatus(lease, float(max(0, now - heard)), self._alive_seconds)

    def _lease_in(self, text: str) -> Lease | None:
        from labctl.config.printed import read_json  # slow: imports pydantic

        text = text.strip()
        if not text:
            return None
        try:
            fields = read_json(text)
            return Lease(
                lab=_shown(fields["lab"]),
                epoch=_epoch(fields["epoch"]),
                host=_shown(fields["host"]),
                utc=_shown(fields["utc"]),
                token=str(fields.get("token", "")),
                state=str(fields.get("state", "")),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise BoardError(
                f"the board's lease {self.path} is not one that labctl wrote",
                hint=f"if no other labctl uses this board, remove {self.path} on it",
                details=text[:500],
            ) from error

    def acquire(
        self,
        lab: str,
        *,
        minimum_epoch: int = 0,
        token: str | None = None,
        state: str | None = None,
        seen: LeaseStatus | None = None,
        on_conflict: Callable[[LeaseStatus], None] = lambda _before: None,
        also: str = "",
    ) -> Lease:
        """Take the board with an epoch above the board's and above ``minimum_epoch``.

        The earlier holder loses it, unless ``on_conflict``, which gets its status, raises.
        ``token`` is new for each acquisition; with it the caller recognises the lease even if the
        reply is lost. ``state`` names the lab's state that assigned the board to the caller. A
        recently ``seen`` status is read again only if the lease has changed. First, all jobs on the
        board and processes that survived their supervisors are ended: ``survivors``. ``also`` is a
        script that prints sections in the same command, under the new lease: ``answers``. Raises
        LinkError, BoardError, and LeaseLost if another controller was faster.
        """
        wanted = Lease(
            lab=lab,
            epoch=minimum_epoch + 1,
            host=socket.gethostname(),
            utc=datetime.now(UTC).isoformat(timespec="seconds"),
            token=token or secrets.token_hex(8),
            state=state or "",
        )
        if seen is not None:
            on_conflict(seen)
            with suppress(LeaseLost):
                return self._take(wanted, seen, also)
        before = self.status()
        if before is not None:
            on_conflict(before)
        return self._take(wanted, before, also)

    def _take(self, wanted: Lease, before: LeaseStatus | None, also: str) -> Lease:
        """Replace a lease by one with a greater epoch; raise LeaseLost if it has changed."""
        agent, seen = self._fence.agent, before.lease.epoch if before else 0
        lease = replace(wanted, epoch=max(wanted.epoch, seen + 1))
        assert agent is not None, "a board is taken by its agent"
        options = ("--lease", self.path, "--epoch", str(lease.epoch), "--before", str(seen))
        jobs = ("--jobs", f"{self._workdir}/jobs", "--", json.dumps(asdict(lease)))
        take = remote_words(agent, "take", *options, *jobs)
        # Remove leftovers of older epochs' raw transfers; the agent's jobs need a folder.
        workdir = remote_words(self._workdir)
        first = (
            f"cd {workdir} && umask 022 && {{ [ -d jobs ] || mkdir -p jobs; }} || exit 1\n"
            f'for old in {INCOMING}/*; do [ ! -d "$old" ] ||'
            f' [ "${{old##*/}}" -ge {lease.epoch} ] 2>/dev/null || rm -rf "$old"; done\n'
            f"{_UPTIME}echo {_NOW} 2>/dev/null 1<>{self._alive}\n{SECTION}{also}\n:"
        )
        make = f"umask 022; {{ [ -d {workdir} ] || mkdir -p {workdir}; }}"
        script = f"{make} && {take} && {self._fence.guarded(first, epoch=lease.epoch)}"
        what = f"cannot write {self.path} on the board"
        result = self._transport.run(script, timeout=_TAKE_SECONDS)
        self._refuse_stale(result, what, lease)
        text = require(result, what).text
        taken = last_object(text.partition("\n")[0]) or {}
        ended = taken.get("survivors", ())
        self.survivors = tuple(Survivor.model_validate(one, extra="ignore") for one in ended)
        self.answers = sections(text)
        return lease

    def check(self, lease: Lease) -> None:
        """Give a sign of life if the board still has this lease; else raise LeaseLost."""
        self.check_and_run(lease, ":", timeout=self._timeout)

    def check_and_run(self, lease: Lease, script: str, *, timeout: float) -> CommandResult:
        """Check as :meth:`check`, then run a script in the same command; return its result."""
        path = remote_words(self.path)
        checked = (
            f"[ ! -e {path} ] || cat {path}\n{_UPTIME}"
            # Not truncated: so the file is never empty, and a full disk has room for it.
            f"{self._if_held(lease, f'echo {_NOW} 2>/dev/null 1<>{self._alive}')}\n"
            f"echo; echo {remote_words(_CHECKED)}"
        )
        command = f"{self._fence.guarded(checked, epoch=lease.epoch)} || exit\n{script}"
        result = self._transport.run(command, timeout=timeout)
        seen, has_checked, output = result.output.partition(f"\n{_CHECKED}\n".encode())
        if not has_checked:
            self._refuse_stale(result, self._unreadable, lease)
            require(result, self._unreadable)
        self._refuse_other(self._lease_in(seen.decode(errors="replace")), lease)
        return replace(result, output=output)

    def _refuse_stale(self, result: CommandResult, what: str, lease: Lease) -> None:
        """Raise as :func:`refuse_stale` does; the error names the current holder."""
        try:
            refuse_stale(result, what)
        except LeaseLost:
            self._refuse_other(self.read(), lease)
            raise

    def _refuse_other(self, now: Lease | None, lease: Lease) -> None:
        """Raise LeaseLost unless the board has this lease."""
        if now == lease:
            return
        if now is None:
            raise LeaseLost(f"the board's lease {self.path} is gone")
        other = f"{now.lab} on {now.host} took the board at {now.utc} (epoch {now.epoch},"
        hint = "wait until the board is free, then run again"
        raise LeaseLost(f"{other} this run has {lease.epoch})", hint=hint)

    def release(self, lease: Lease, *, also: str = "") -> None:
        """Release the board and run ``also`` in the same command; the lease keeps its epoch.

        Raises LinkError, BoardError, LeaseLost (a newer epoch is there; then nothing is done).
        """
        script = f"{self._if_held(lease, f'rm -f {self._alive}')}\n{also or ':'}"
        what = f"cannot release {self.path} on the board" + (", and clear up" if also else "")
        timeout = _TIMEOUT_SECONDS if also else self._timeout
        self._fence.run(script, what, timeout=timeout, epoch=lease.epoch)

    @property
    def _alive(self) -> str:
        return remote_words(f"{self.path}.alive")

    @property
    def _unreadable(self) -> str:
        return f"cannot read {self.path} on the board"

    def _if_held(self, lease: Lease, command: str) -> str:
        """Return a shell command that runs only if the one-line file has this lease."""
        token = remote_words(f'"token": "{lease.token}"')
        read = f"{{ read -r lease <{remote_words(self.path)}; }} 2>/dev/null"
        return f"{read}; case $lease in *{token}*) {command};; esac"

    def _run(self, script: str) -> str:
        return require(self._transport.run(script, timeout=self._timeout), self._unreadable).text


def _shown(value: object) -> str:
    """Return a board's text for messages: shortened, safe for a terminal."""
    return printable_line(str(value))[:LONGEST_LINE]


def _epoch(value: object) -> int:
    """Return an epoch within the agent's range. Raises ValueError."""
    if type(value) is not int or not 0 <= value <= _MOST_EPOCH:
        raise ValueError("no epoch")
    return value


def _moment(text: str) -> tuple[int | None, str]:
    """Return seconds since boot, and the boot id. Text after them is left from a longer sign."""
    seconds, _, boot = text.strip().partition("\n")[0].rstrip().partition(" ")
    return (int(seconds), boot) if seconds.isdecimal() and boot else (None, "")
