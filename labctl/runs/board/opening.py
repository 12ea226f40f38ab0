"""The way of a run to its board: look, prepare, claim once.

A loose cable, a board of another target or one that is taken shows in seconds, not after gigabytes
were downloaded, quantized or hashed. While they are, the board is let go: nobody waits for that.
Where all is here already, the look and the claim are one contact.

What a deploy would send is worked out before the first byte is sent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from labctl.build import BuildRequest
from labctl.config.lab import Board, LabFile
from labctl.deploy import DeployPlan, refuse
from labctl.errors import ConfigError, HostError, LabctlError, speaks_against_board
from labctl.runs.board.deploy_preview import memory_fits, missing_on, sending, warnings
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.session import BoardSession, hold_board
from labctl.runs.inputs.prepare import Prepared, RecipeFiles
from labctl.runs.inputs.programs import missing_agent
from labctl.runs.observer import Observer
from labctl.runs.planning.forecast import as_scheduled
from labctl.state import lab_state
from labctl.transport import Transport


@dataclass(frozen=True)
class ReadyBoard:
    """A board that can be claimed for recipes of which nothing is missing on this host.

    ``missing`` is what it lacks. ``warned``: warnings that were shown before models were fetched.
    """

    held: BoardSession
    prepared: Sequence[Prepared]
    missing: DeployPlan
    warned: Sequence[str]


@dataclass(frozen=True)
class WayToBoard:
    """The way to one board for some recipes. Each step raises what :func:`way_to_board` says.

    ``ours`` is the last lease of a run that goes on, by its journal: it keeps nobody out. ``build``
    makes the agent for the board's machine if that is missing here; None: nothing is built.
    """

    board: Board
    files: Sequence[RecipeFiles]
    connect: Callable[[], Transport]
    observer: Observer
    lab: LabFile
    use: BoardUse
    ours: Mapping[str, object] | None
    build: Callable[[BuildRequest], object] | None
    _hold: ExitStack

    def look(self) -> BoardSession:
        """Contact the board if nobody has it; this host's lock is kept until it is let go."""
        self._hold.close()
        transport = self._hold.enter_context(self.connect())
        held = self._hold.enter_context(hold_board(self.board, transport, self.lab, self.use))
        held.survivors.note = self.observer.note
        held.claim.refuse_if_taken(ours=self.ours)
        for one in self.files:
            as_scheduled(one.recipe, held.facts)  # raises for CPUs that it does not have
        return held

    def prepare(self, held: BoardSession) -> ReadyBoard:
        """Fetch and build what is missing on this host, with no board held, and look again."""
        if self.build is not None and (agent := self._missing_agent(held)):
            self._hold.close()
            self.build(agent)
            held = self.look()
        warned: list[str] = []
        is_ready = all(one.models_are_ready for one in self.files)
        if not is_ready:
            expected = [one.expected(self.observer.step) for one in self.files]
            refuse(missing_on(held, expected)[1], self.board.name)
            held.bring_agent(sending(self.observer))  # whose facts count; it may be missing here
            warned = warnings(memory_fits(held, expected))
            for warning in warned:
                self.observer.note(f"note: before anything is fetched: {warning}")
            self._hold.close()
        prepared = [one.with_models(self.observer.step) for one in self.files]
        if not is_ready:
            held = self.look()
        missing, problems = missing_on(held, prepared)
        refuse(problems, self.board.name)
        held.bring_agent(sending(self.observer))
        return ReadyBoard(held, prepared, missing, warned)

    def _missing_agent(self, held: BoardSession) -> BuildRequest | None:
        return missing_agent(held.facts.machine, held.target, self.lab.root, with_stale=True)


@contextmanager
def way_to_board(
    board: Board,
    files: Sequence[RecipeFiles],
    connect: Callable[[], Transport],
    observer: Observer,
    lab: LabFile,
    *,
    use: BoardUse,
    ours: Mapping[str, object] | None = None,
    build: Callable[[BuildRequest], object] | None = None,
) -> Iterator[WayToBoard]:
    """Let a board be looked at, and what it is to get be prepared; it is let go at the end.

    Raises BoardBusy and what else :func:`labctl.runs.board.session.hold_board` raises, what
    :func:`labctl.models.resolve` raises, and all problems of :func:`labctl.deploy.refuse` as soon
    as they are known. A board that breaks the work off is to be checked before the next job.
    """
    with _blaming_board(board, lab, use, observer), ExitStack() as hold:
        yield WayToBoard(board, files, connect, observer, lab, use, ours, build, hold)


@contextmanager
def _blaming_board(board: Board, lab: LabFile, use: BoardUse, observer: Observer) -> Iterator[None]:
    """Ask for a health check of a board of the lab when it, or the way to it, breaks work off."""
    try:
        yield
    except LabctlError as error:
        if speaks_against_board(error) and lab.path.is_file() and board.name in lab.lab.boards:
            reason = f"{use.purpose} broke off there: {error.message}"
            try:
                lab_state(lab).health.want_check(board.name, reason)
            except (ConfigError, HostError) as away:
                observer.note(
                    f"note: cannot record that board {board.name} needs a check: {away.message}"
                )
        raise
