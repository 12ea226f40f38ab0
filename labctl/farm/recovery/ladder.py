"""The recovery ladder of a failing board: its steps and switches, one after the other.

A rung is taken only if devices.yaml names it, and under both leases. After each rung the board is
contacted and checked, until one helps. Every rung is in the board's history. A switch acts through
a program of this host, or a request to a device in its network.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from labctl import interrupts, process
from labctl.board.console_shell import COMMAND_SECONDS, run_on_console
from labctl.board.lease import BoardLease
from labctl.board.power import BoardPower
from labctl.board.workdir_check import survey
from labctl.config.lab import Board, LabFile
from labctl.config.switches import Action, CommandAction, HttpAction, Switch
from labctl.errors import (
    BoardBusy,
    BoardError,
    ConfigError,
    HostError,
    InfraError,
    LeaseLost,
    LinkError,
)
from labctl.http import Unreachable, read_body, request
from labctl.retry import retry_infra
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.session import hold_board
from labctl.runs.observer import Observer
from labctl.state.lease import StateLease
from labctl.state.state import lab_state
from labctl.transport.base import Transport
from labctl.transport.readiness import reboot

#: Maximum length of an answer. Its content does not matter.
_MOST_BYTES = 64 << 10


def act(action: Action, folder: Path) -> None:
    """Do an action; programs run in ``folder``. Raises HostError if it does not succeed."""
    if isinstance(action, CommandAction):
        _run(action, folder)
    else:
        _ask(action)


def _check_secrets(actions: list[Action]) -> None:
    """Raise ConfigError for a secret that is not in the environment."""
    for action in actions:
        if isinstance(action, HttpAction):
            _headers(action)


def _run(action: CommandAction, folder: Path) -> None:
    done = process.run(action.command, timeout=action.timeout, cwd=folder)
    if done.exit_status != 0:
        raise HostError(
            f"{Path(action.command[0]).name} ended with status {done.exit_status}",
            details=done.tail() or None,
        )


def _ask(action: HttpAction) -> None:
    place = urlsplit(action.address).netloc
    content = None if action.body is None else action.body.encode()
    try:
        with request(
            action.method,
            action.address,
            headers=_headers(action),
            content=content,
            connect_s=action.timeout,
            silence_s=action.timeout,
            follow=False,
            direct=True,  # a switch is in this network: no proxy, no ~/.netrc
        ) as answer:
            read_body(answer, within_s=action.timeout, most_bytes=_MOST_BYTES)
            status = answer.status_code
    except Unreachable as error:
        why = f"not within {action.timeout:g} s" if error.timed_out else error.message
        raise HostError(f"the switch at {place} does not answer: {why}") from error
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise HostError(f"the switch at {place} answers with status {status}")


def _headers(action: HttpAction) -> dict[str, str]:
    headers = {} if action.body is None else {"Content-Type": "application/json"}
    if (name := action.authorization_env) is not None:
        if not (value := os.environ.get(name)):
            raise ConfigError(
                f"the environment variable {name}, which a switch needs, is not set",
                hint="set it for the user who runs labctl; devices.yaml has only its name",
            )
        headers["Authorization"] = value
    return headers


#: Time (s) of the lab's lease beyond the longest time of a rung.
_MARGIN_SECONDS = 60.0
_KILL_SECONDS = 30.0
_RETRY_SECONDS = 1.0
_NO_CONTACT = (LinkError, BoardError)
#: Time (s) to contact the board before anything is switched; less if its switches wait less.
_RECONNECT_SECONDS = 10.0

RECOVERY = BoardUse("recovery", kind="recovery")
Connect = Callable[[Board], Transport]


@dataclass(frozen=True)
class Step:
    """A rung that was tried."""

    rung: str
    helped: bool
    #: Why it did not help; None if it did.
    reason: str | None
    seconds: float


@dataclass(frozen=True)
class Climb:
    """The rungs that were tried, in order."""

    steps: tuple[Step, ...]

    @property
    def helped(self) -> str | None:
        """The rung that recovered the board; None if none did."""
        return next((step.rung for step in self.steps if step.helped), None)

    def document(self) -> list[dict[str, Any]]:
        """Return the steps as JSON."""
        return [
            {"rung": s.rung, "helped": s.helped, "reason": s.reason, "seconds": round(s.seconds, 1)}
            for s in self.steps
        ]

    def outcome_document(self) -> dict[str, Any]:
        """Return the rung that helped and all steps as JSON."""
        return {"helped": self.helped, "steps": self.document()}

    def __str__(self) -> str:
        tried = ", ".join(step.rung for step in self.steps)
        return f"{self.helped} helped" if self.helped else f"nothing helped (tried: {tried})"


@dataclass(frozen=True)
class _Rung:
    name: str
    #: Longest time (s) of its action.
    seconds: float
    act: Callable[[], None]
    #: Time (s) for the board to answer after it.
    wait: float
    #: True if the next rung restarts the hdc server: a server without an answer is not final then.
    before_server: bool = False


def recover(
    lab: LabFile,
    board: Board,
    connect: Connect,
    observer: Observer,
    *,
    why: str,
    by: str,
    look: Callable[[], str | None] | None = None,
    reconnect_seconds: float = _RECONNECT_SECONDS,
    use: BoardUse = RECOVERY,
) -> Climb:
    """Recover a failing board under the lab's lease; return the steps tried.

    ``use`` names the job of which the recovery is a part.

    ``look`` returns what is wrong with a board that answers; it is called without the lease.
    Without ``look``, a board that answers has recovered. Raises BoardBusy (somebody uses it),
    LeaseLost, ConfigError (a secret is missing), HostError (this host cannot contact any board, or
    the lab's database), LinkError (a host on the way to the board is at fault, and no restart of
    its hdc server helped), and what ``look`` raises.
    """
    require_secrets(board)
    state = lab_state(lab)
    steps: list[Step] = []
    lease: StateLease | None = None

    def note(rung: str, reason: str, **details: Any) -> None:
        state.events.add(board.name, "recovery", rung, by=by, reason=reason, details=details)

    try:
        for rung in _rungs(lab, board, connect, reconnect_seconds):
            observer.measuring(f"recovery: {rung.name}")
            began = time.monotonic()
            lease = lease or state.leases.acquire(
                board.name,
                purpose=f"recovery: {why}",
                kind="recovery",
                job=use.job,
                attempt=use.attempt,
                seconds=rung.wait + _MARGIN_SECONDS,
            )
            lease, reason = _take(rung, lab, board, connect, lease)
            seconds = time.monotonic() - began
            if reason is None and look is not None:
                note(rung.name, "the board answers", seconds=round(seconds, 1))
                done, lease = lease, None
                state.leases.release(done)
                if wrong := look():
                    reason = f"it answers; {wrong}"
            step = Step(rung.name, reason is None, reason, seconds)
            steps.append(step)
            told = "it helped" if step.helped else f"it did not help: {reason}"
            note(rung.name, told, helped=step.helped, seconds=round(seconds, 1))
            if step.helped:
                break
    finally:
        if lease is not None:
            state.leases.release(lease)
    return Climb(tuple(steps))


def require_secrets(board: Board) -> None:
    """Raise ConfigError for a secret of a board's switches that is not in the environment."""
    _check_secrets(_actions(board))


def _take(
    rung: _Rung, lab: LabFile, board: Board, connect: Connect, lease: StateLease
) -> tuple[StateLease, str | None]:
    """Try a rung. Return the lease after it, and the reason if it did not help."""
    state = lab_state(lab)
    leases = state.leases
    lease = leases.renew(lease, rung.seconds + rung.wait + _MARGIN_SECONDS)
    reason = None
    try:
        if rung.seconds:
            with connect(board) as link:
                power = BoardPower(leases, lease, BoardLease(link, board.workdir), state.identity)
                power.act(lease.epoch, rung.act, seconds=rung.seconds)
    except (BoardBusy, LeaseLost):
        raise
    except InfraError as error:  # the board may still answer
        reason = error.message
    try:
        epoch = retry_infra(
            lambda: contact(lab, board, connect),
            on=_NO_CONTACT,
            timeout=rung.wait,
            interval=_RETRY_SECONDS,
        )
    except BoardBusy:
        raise
    except _NO_CONTACT as error:
        if error.is_of_host and not rung.before_server:
            raise
        return lease, error.message if reason is None else f"{reason}; {error.message}"
    if epoch >= lease.epoch:
        lease = leases.raise_epoch(lease, epoch + 1)
    return lease, None


def contact(lab: LabFile, board: Board, connect: Connect) -> int:
    """Read a board's facts and check its workdir. Return the epoch of its lease, 0 if none.

    The caller has the lab's lease.

    Raises BoardBusy while somebody else uses it, LinkError, BoardError, ConfigError.
    """
    with connect(board) as link, hold_board(board, link, lab, None) as held:
        held.claim.refuse_if_taken()
        survey(link, board.workdir)
        now = held.claim.leases.read()
        return 0 if now is None else now.epoch


def _rungs(
    lab: LabFile, board: Board, connect: Connect, reconnect_seconds: float
) -> Iterator[_Rung]:
    switches, wait = board.switches, board.switches.wait
    restarts = switches.restart_hdc
    patience = min(reconnect_seconds, wait)
    yield _Rung("reconnect", 0.0, lambda: None, patience, before_server=restarts)
    if switches.restart_hdc:

        def end_server() -> None:
            board.transport.end_server(_KILL_SECONDS)

        yield _Rung("restart hdc", _KILL_SECONDS, end_server, wait)
    if (console := board.console) is not None and switches.console:

        def command() -> None:
            run_on_console(console, switches.console)

        yield _Rung("console", COMMAND_SECONDS * (1 + len(switches.console)), command, wait)
    if switches.usb is not None:
        yield _switched("usb", switches.usb, lab, wait)
    if switches.reboot == "board":

        def restart() -> None:
            with connect(board) as link:
                reboot(link, timeout=wait)

        yield _Rung("reboot", wait, restart, wait)
    elif switches.reboot is not None:
        yield _done("reboot", switches.reboot, lab, wait)
    if switches.power is not None:
        yield _switched("power", switches.power, lab, wait)
    if switches.reflash is not None:
        yield _done("reflash", switches.reflash, lab, wait)


def _done(name: str, action: Action, lab: LabFile, wait: float) -> _Rung:
    return _Rung(name, action.timeout, lambda: act(action, lab.root), wait)


def _switched(name: str, switch: Switch, lab: LabFile, wait: float) -> _Rung:
    def cycle() -> None:
        try:
            act(switch.off, lab.root)
            # The board must lose its charge; there is no signal for that.
            interrupts.sleep(switch.pause)
        finally:
            act(switch.on, lab.root)

    seconds = switch.off.timeout + switch.pause + switch.on.timeout
    return _Rung(name, seconds, cycle, wait)


def _actions(board: Board) -> list[Action]:
    switches = board.switches
    both = [switch for switch in (switches.usb, switches.power) if switch is not None]
    single = [
        one
        for one in (switches.reboot, switches.reflash)
        if isinstance(one, CommandAction | HttpAction)
    ]
    return [*(action for switch in both for action in (switch.off, switch.on)), *single]
