"""A health check of one board: contact, probe, recipe, verdict, and the ladder if it fails.

Worker, queue and batch use the same checks between the jobs of users.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from labctl.board.console_shell import console_answer
from labctl.board.probe_files import all_probes, probe_path
from labctl.config.lab import Board, LabFile
from labctl.config.target import load_target
from labctl.errors import (
    BoardBusy,
    BoardError,
    BoardNoSpace,
    BoardNotReady,
    BoardPermission,
    ConfigError,
    InfraError,
    IntegrityError,
    LabctlError,
    LeaseLost,
    LinkError,
)
from labctl.farm.health.checks_due import due
from labctl.farm.health.recipe import run_health_recipe
from labctl.farm.health.verdict import Finding, Verdict, firmware, judge, next_health
from labctl.farm.job import FarmJob
from labctl.farm.recovery.host_fault import find_host_fault
from labctl.farm.recovery.ladder import Climb, recover, require_secrets
from labctl.records.events import AnyEvent, Note
from labctl.records.probe import BoardProbe
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.observer import Observer
from labctl.runs.probe import probe_board
from labctl.state.events import this_user
from labctl.state.health import ANSWERED, BY_PEOPLE, UNTRUSTED, BoardHealth, Health
from labctl.state.state import lab_state
from labctl.transport.base import Transport

#: Author of a check's findings.
CHECKER = "health check"
CHECK = BoardUse(CHECKER, kind="check")
#: Number of earlier checks and changes of health to read.
_EVENTS = 40

Connect = Callable[[Board], Transport]


@dataclass(frozen=True)
class CheckResult:
    """End of a health check."""

    board: str
    verdict: Verdict
    #: Health of the board after the check.
    health: BoardHealth
    #: Files of the check's probes, in the lab's boards/BOARD/.
    probes: tuple[str, ...] = ()
    #: The steps of the recovery, successful or not.
    climb: Climb | None = None
    #: True if its system or kernel has changed since the last check.
    has_new_firmware: bool = False

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "board": self.board,
            "finding": self.verdict.finding,
            "reason": self.verdict.reason,
            "evidence": dict(self.verdict.evidence),
            "health": asdict(self.health),
            "probes": self.probes,
            "recovery": None if self.climb is None else self.climb.document(),
        }


def check(
    lab: LabFile,
    board: Board,
    connect: Connect,
    observer: Observer,
    *,
    hosted: Sequence[Board] | None = None,
    looked_through: bool = False,
    use: BoardUse = CHECK,
) -> CheckResult:
    """Check a board under its lease, and keep the findings; ``use`` names the job it belongs to.

    A check cannot find what an untrusted recipe changed. It sets the health of such a board only if
    the board was ``looked_through``.

    A failing board is recovered by its switches, step by step, unless half of the boards of this
    host (``hosted``; default: all of the lab) fail too. If its hdc server fails, the only step is a
    restart of that server, if the switches allow it. Decisions of people (maintenance, retired)
    stay. Raises BoardBusy, LeaseLost, ConfigError and HostError, which say nothing about the board.
    """
    looking = _Looking(lab, board, connect, observer, use)
    state = looking.state
    verdict, climb = looking.look(), None
    if verdict.finding is Finding.FAILING or looking.server_may_be_restarted:
        if fault := find_host_fault(lab, board, connect, state, hosted):
            verdict = Verdict(Finding.HOST, fault, verdict.evidence)
        else:
            verdict, climb = _brought_back(looking, verdict)
    if board.console and not looking.lost:  # a newline would stop the boot of a lost board
        evidence = {**verdict.evidence, "console": console_answer(board.console)}
        verdict = replace(verdict, evidence=evidence)
    return _keep(looking, verdict, climb, looked_through=looked_through)


def _brought_back(looking: "_Looking", verdict: Verdict) -> tuple[Verdict, Climb | None]:
    """Try to recover a failing board. Return the verdict after that, and the steps taken."""
    if not looking.switches_may_help:
        return verdict, None
    try:
        require_secrets(looking.board)
    except ConfigError as error:  # the board stays bad
        reason = f"{verdict.reason}; nothing was tried: {error.message}"
        return replace(verdict, reason=reason), None

    def look() -> str | None:
        nonlocal verdict
        verdict = looking.look()
        is_over = verdict.finding is not Finding.FAILING or not looking.switches_may_help
        return None if is_over else verdict.reason

    try:
        climb = looking.recover(verdict.reason, look)
    except LinkError as error:
        return _fault_of_host(error), None
    if climb.helped is None and verdict.finding is Finding.HOST:  # its server works again
        looking.lost = True
        verdict = Verdict(Finding.FAILING, climb.steps[-1].reason or "it does not answer")
    if verdict.finding is Finding.FAILING:
        reason = f"{verdict.reason}; {climb}"
        evidence = {**verdict.evidence, "tried": climb.document()}
        verdict = replace(verdict, reason=reason, evidence=evidence)
    return verdict, climb


def check_if_due(
    lab: LabFile,
    board: Board,
    connect: Connect,
    observer: Observer,
    *,
    hosted: Sequence[Board] | None = None,
    use: BoardUse = CHECK,
) -> CheckResult | None:
    """Check a board, as :func:`check`, if a check is due.

    Return None if no check is due, or if somebody uses the board. Raises ConfigError, HostError.
    """
    reason = next((one.reason for one in due(lab) if one.board == board.name), None)
    if reason is None:
        return None
    observer.note(f"health check of {board.name}: {reason}")
    try:
        return check(lab, board, connect, observer, hosted=hosted, use=use)
    except (BoardBusy, LeaseLost) as error:
        observer.note(f"note: {board.name} is not checked: {error.message}")
        return None


def _fault_of_host(error: InfraError) -> Verdict:
    return Verdict(Finding.HOST, error.message, {"error": error.kind})


class _Looking:
    """The part of a check that asks the board."""

    def __init__(
        self,
        lab: LabFile,
        board: Board,
        connect: Connect,
        observer: Observer,
        use: BoardUse,
    ):
        self._use = use
        self.lab, self.board, self.state = lab, board, lab_state(lab)
        self._connect, self._observer = connect, observer
        self.probes: list[BoardProbe] = []
        #: True if the board did not answer at the last look.
        self.lost = False
        #: True if a host is at fault, and the board's switches may restart its hdc server.
        self.server_may_be_restarted = False
        #: False if a restart cannot help: a folder is full or not writable.
        self.switches_may_help = True

    def look(self) -> Verdict:
        self.probes, self.lost, self.switches_may_help = [], False, True
        self.server_may_be_restarted = False
        settings = self.lab.lab.health
        recipe = load_target(self.board.target, self.lab.root).health_check or settings.recipe
        try:
            while (verdict := self._measured()) is None:
                self._observer.note("note: slower than before: measured once more")
            if recipe is not None and (
                fault := run_health_recipe(
                    self.lab, self.board, self._connect, self._observer, recipe, use=self._use
                )
            ):
                return Verdict(Finding.FAILING, fault, {"recipe": recipe})
        except (BoardBusy, LeaseLost):
            raise
        except BoardNotReady as error:  # too hot, or busy: the recipe's conditions say so
            return Verdict(Finding.DISTURBED, error.message, {"error": error.kind})
        except (LinkError, BoardError, IntegrityError) as error:
            if error.is_of_host:
                self.server_may_be_restarted = self.board.switches.restart_hdc
                return _fault_of_host(error)
            self.lost = isinstance(error, LinkError)
            self.switches_may_help = not isinstance(error, BoardNoSpace | BoardPermission)
            return Verdict(Finding.FAILING, error.message, {"error": error.kind})
        return verdict

    def recover(self, why: str, look: Callable[[], str | None]) -> Climb:
        return recover(
            self.lab,
            self.board,
            self._connect,
            self._observer,
            why=why,
            by=CHECKER,
            look=look,
            use=self._use,
        )

    def _measured(self) -> Verdict | None:
        settings = self.lab.lab.health
        probe, _ = probe_board(
            self.lab,
            self.board,
            lambda: self._connect(self.board),
            self._observer,
            models=[Path(model) for model in settings.models],
            use=self._use,
        )
        self.probes.append(probe)
        return judge(self.probes, self._earlier(probe), settings)

    def _earlier(self, now: BoardProbe) -> list[BoardProbe]:
        """Return the earlier probes whose findings let them count in the history."""
        left_out = {self.file(probe) for probe in self.probes}
        left_out_findings = {finding for finding in Finding if not finding.in_history}
        for event in self.state.events.list(self.board.name, kinds=["check"]):
            if event.value in left_out_findings:
                files = event.details.get("files")
                left_out.update(map(str, files if isinstance(files, list) else ()))
        found = all_probes(self.lab.root, self.board.name, now.execution)
        return [probe for probe in found if self.file(probe) not in left_out]

    def file(self, probe: BoardProbe) -> str:
        return probe_path(self.lab.root, probe).name


def _keep(
    looking: _Looking, verdict: Verdict, climb: Climb | None, *, looked_through: bool
) -> CheckResult:
    """Save the result of a check in the board's history and health."""
    state, board, settings = looking.state, looking.board.name, looking.lab.lab.health
    files = [looking.file(probe) for probe in looking.probes]
    evidence = {**verdict.evidence, "files": files}
    changed = bool(looking.probes) and state.health.set_firmware(
        board, firmware(looking.probes[-1].facts), by=CHECKER
    )
    state.events.add(
        board, "check", verdict.finding, by=CHECKER, reason=verdict.reason, details=evidence
    )
    state.health.checked(board, files[-1] if files else None)
    if verdict.finding is Finding.FAILING and looking.lost:
        state.health.contacted({board: "offline"}, by=CHECKER, reason=verdict.reason)
    elif verdict.finding is not Finding.HOST:
        state.health.contacted({board: ANSWERED}, by=CHECKER)
    before = state.health.get(board)
    if looked_through and before.awaits_look:
        before = replace(before, health=Health.UNKNOWN, reason=None, evidence={})
    events = state.events.list(board, kinds=["check", "health"], limit=_EVENTS)
    health, reason = next_health(verdict, before, events)
    if UNTRUSTED in before.evidence:
        after = before  # speed does not show what an untrusted recipe changed
    else:
        after = state.health.set(
            board, health, reason=reason, by=CHECKER, evidence=evidence, unless=BY_PEOPLE
        )
    again = {
        Finding.HOT: settings.cooling,
        Finding.DISTURBED: settings.cooling,
        Finding.HOST: settings.host_window,
    }.get(verdict.finding)
    if again is not None:
        state.health.want_check(board, f"{verdict.finding}: {verdict.reason}", after_s=again)
    return CheckResult(board, verdict, after, tuple(files), climb, changed)


def checks_before_jobs(
    lab: LabFile,
    connect: Connect,
    note: Callable[[str], None],
    *,
    hosted: Sequence[Board] | None = None,
) -> Callable[[FarmJob, str], None]:
    """Return a function that checks a board's health before a job, if a check is due.

    The function does nothing in a lab without health checks. ``hosted`` are the boards of this
    host; None: all of the lab.
    """

    def show(event: AnyEvent) -> None:
        if isinstance(event, Note):
            note(event.text)

    def look(job: FarmJob, board: str) -> None:
        queued = job.id if job.submitter else None
        use = replace(CHECK, job=queued, attempt=job.attempt)
        try:
            check_if_due(lab, lab.board(board), connect, Observer(show), hosted=hosted, use=use)
        except LabctlError as error:  # this says nothing about the board: its jobs continue
            note(f"the health of {board} cannot be checked: {error.message}")

    return look if "health" in lab.lab.model_fields_set else lambda _job, _board: None


def require_health(
    lab: LabFile,
    connect: Connect,
    note: Callable[[str], None],
    *,
    hosted: Sequence[Board] | None = None,
) -> Callable[[FarmJob, str], None]:
    """Return a function that checks a board for a job if a check is due.

    ``hosted`` are the boards of this host; None: all of the lab. The function raises
    BoardOutOfService if the board is sick, unless the job's user holds it, and BoardBusy while an
    untrusted recipe has it.
    """
    look, state = checks_before_jobs(lab, connect, note, hosted=hosted), lab_state(lab)

    def ready(job: FarmJob, board: str) -> None:
        look(job, board)
        state.health.require_work(board, job.submitter or this_user())

    return ready
