"""Open the board of a run: look, prepare, claim once.

A loose cable, a wrong target or a board in use shows in seconds, not after gigabytes were
downloaded, quantized or hashed. During that work the board is released, so nobody waits for it. If
all files are here already, the look and the claim are one contact.

The plan of a deploy is complete before the first byte is sent.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self

from labctl.build.plan import BuildRequest
from labctl.config.lab import Board, LabFile
from labctl.deploy.plan import DeployPlan, refuse
from labctl.errors import ConfigError, HostError, LabctlError, speaks_against_board
from labctl.records.board import BoardFacts
from labctl.runs.board.deploy_preview import memory_fits, missing_on, sending, warnings
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.session import BoardSession, hold_board
from labctl.runs.inputs.prepare import Prepared, RecipeFiles
from labctl.runs.inputs.programs import missing_agent
from labctl.runs.observer import Observer
from labctl.runs.planning.forecast import as_scheduled
from labctl.state.state import lab_state
from labctl.transport.base import Transport


@dataclass(frozen=True)
class ReadyBoard:
    """A board that can be claimed for recipes whose files are all on this host.

    ``missing``: the files that the board lacks. ``warned``: warnings that were shown before models
    were fetched.
    """

    held: BoardSession
    prepared: Sequence[Prepared]
    missing: DeployPlan
    warned: Sequence[str]


@dataclass
class WayToBoard:
    """Opens one board for some recipes; the board is released at the end of the context.

    ``check`` may refuse the board by its facts at each look: while models are fetched, the board
    may change. ``ours`` is the last lease in the journal of a run to resume: it does not make the
    board busy. ``build`` makes the agent for the board's machine if it is missing here; None:
    nothing is built. Others may use the board in ``aside``, while models are fetched.

    Each step raises the errors of :func:`labctl.runs.board.session.hold_board` (such as BoardBusy)
    and of :func:`labctl.models.resolve.resolve`, and all problems of
    :func:`labctl.deploy.plan.refuse` as soon as they are known. A board that interrupts the work is
    marked for a check before the next job.
    """

    board: Board
    files: Sequence[RecipeFiles]
    connect: Callable[[], Transport]
    observer: Observer
    lab: LabFile
    use: BoardUse
    check: Callable[[BoardFacts], None] = lambda _facts: None
    ours: Mapping[str, object] | None = None
    build: Callable[[BuildRequest], object] | None = None
    aside: Callable[[], AbstractContextManager[None]] = nullcontext
    _hold: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._hold.__exit__(*raised)
        _, error, _ = raised
        if isinstance(error, LabctlError) and speaks_against_board(error):
            self._want_check(f"{self.use.purpose} broke off there: {error.message}")

    def look(self) -> BoardSession:
        """Contact the board if nobody has it; keep this host's lock until the board is released."""
        self._hold.close()
        transport = self._hold.enter_context(self.connect())
        held = self._hold.enter_context(hold_board(self.board, transport, self.lab, self.use))
        held.survivors.note = self.observer.note
        held.claim.refuse_if_taken(ours=self.ours)
        self.check(held.facts)
        for one in self.files:
            as_scheduled(one.recipe, held.facts)  # raises for CPUs that the board lacks
        return held

    def prepare(self, held: BoardSession) -> ReadyBoard:
        """Fetch and build missing files on this host, without holding a board, and look again."""
        if self.build is not None:
            machine, root = held.facts.machine, self.lab.root
            if agent := missing_agent(machine, held.target, root, with_stale=True):
                self._hold.close()
                self.build(agent)
                held = self.look()
        warned: list[str] = []
        is_ready = all(one.models_are_ready for one in self.files)
        if not is_ready:
            expected = [one.expected(self.observer.step) for one in self.files]
            refuse(missing_on(held, expected)[1], self.board.name)
            held.bring_agent(sending(self.observer))  # its facts count; it may be missing here
            warned = warnings(memory_fits(held, expected))
            for warning in warned:
                self.observer.note(f"note: before anything is fetched: {warning}")
            self._hold.close()
        with nullcontext() if is_ready else self.aside():
            prepared = [one.with_models(self.observer.step) for one in self.files]
        if not is_ready:
            held = self.look()
        missing, problems = missing_on(held, prepared)
        refuse(problems, self.board.name)
        held.bring_agent(sending(self.observer))
        return ReadyBoard(held, prepared, missing, warned)

    def _want_check(self, reason: str) -> None:
        """Ask for a health check of a board of the lab."""
        name = self.board.name
        if self.lab.path.is_file() and name in self.lab.lab.boards:
            try:
                lab_state(self.lab).health.want_check(name, reason)
            except (ConfigError, HostError) as away:
                self.observer.note(
                    f"note: cannot record that board {name} needs a check: {away.message}"
                )
