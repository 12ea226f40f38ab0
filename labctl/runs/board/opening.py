"""The beginning of every run: contact first, fetch later.

A loose cable, a board of another target or one that is taken shows in seconds, not after gigabytes
were downloaded, quantized or hashed. While they are, the board is let go: nobody waits for that.

What a deploy would send is worked out before the first byte is sent.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from labctl.board import Lease
from labctl.build import BuildRequest
from labctl.config.lab import Board, LabFile
from labctl.deploy import (
    DeployOptions,
    DeployPlan,
    Stopwatch,
    refuse,
)
from labctl.errors import ConfigError, HostError, LabctlError, speaks_against_board
from labctl.runs.board.deploy_preview import (
    memory_fits,
    missing_on,
    send,
    sending,
    wanted_on,
    warnings,
)
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.session import BoardSession, hold_board
from labctl.runs.inputs.prepare import Prepared, RecipeFiles
from labctl.runs.inputs.programs import missing_agent
from labctl.runs.observer import Observer
from labctl.runs.planning.forecast import as_scheduled
from labctl.state import lab_state
from labctl.transport import Transport


@dataclass(frozen=True)
class Opened:
    """A board that is ours until the context ends, and recipes that nothing of is missing here."""

    held: BoardSession
    prepared: Sequence[Prepared]
    missing: DeployPlan
    observer: Observer
    #: Warnings that were shown already, before models were fetched.
    warned: Sequence[str] = ()

    def take(
        self, before_use: Callable[[BoardSession], None] = lambda _held: None
    ) -> tuple[Lease, dict[str, str]]:
        """Take the board's lease, and send what it lacks; the lease, and the paths by SHA-256.

        ``before_use`` gets the board between the two: it is ours, and nothing was sent. Raises what
        that, :meth:`BoardSession.take_lease` and :meth:`send` raise.
        """
        lease = self.held.take_lease(wanted_on(self.held, self.missing))
        before_use(self.held)
        return lease, self.send(has_asked=True)

    def send(self, *, has_asked: bool = False) -> dict[str, str]:
        """Send what the board lacks, under its lease; the paths there by SHA-256.

        Raises what :func:`labctl.deploy.send.deploy` raises, LeaseLost.
        """
        options = DeployOptions(progress=sending(self.observer), on_loss=self.observer.link_lost)
        with Stopwatch().noted(self.held.rate_file) as watch:
            return send(self.held, self.missing, options, watch, has_asked=has_asked)


@contextmanager
def open_board(
    board: Board,
    files: Sequence[RecipeFiles],
    connect: Callable[[], Transport],
    observer: Observer,
    lab: LabFile,
    *,
    use: BoardUse,
    ours: Callable[[Lease], bool] | None = None,
    check: Callable[[BoardSession], None] = lambda _held: None,
    on_contact: Callable[[BoardSession], None] = lambda _held: None,
    build: Callable[[BuildRequest], object] | None = None,
) -> Iterator[Opened]:
    """Hold a board, see what it can take, fetch the models, and look again before it is used.

    A lease that is ``ours`` is no conflict. ``check`` may refuse the board whenever it is held:
    while models are fetched, it may become another. ``on_contact`` gets the board when it has
    answered and is free, before anything is fetched; ``build`` then makes the agent for its
    machine, unless that is here. Raises BoardBusy and what else
    :func:`labctl.runs.board.session.hold_board` raises, what :func:`labctl.models.resolve`
    raises, and all problems of :func:`labctl.deploy.refuse` as soon as they are known. A board that
    breaks the work off is to be checked before the next job.
    """
    with _blaming_board(board, lab, use, observer), ExitStack() as ending:

        def hold() -> BoardSession:
            transport = ending.enter_context(connect())
            held = ending.enter_context(hold_board(board, transport, lab, use))
            held.survivors.note = observer.note
            held.claim.refuse_if_taken(ours=ours)
            check(held)
            for one in files:
                as_scheduled(one.recipe, held.facts)  # raises for CPUs that it does not have
            return held

        held = hold()
        on_contact(held)
        if build is not None and (
            agent := missing_agent(held.facts.machine, held.target, lab.root, with_stale=True)
        ):
            build(agent)
        warned: list[str] = []
        ready = all(one.models_are_ready for one in files)
        if not ready:
            expected = [one.expected(observer.step) for one in files]
            refuse(missing_on(held, expected)[1], board.name)
            held.bring_agent(sending(observer))  # whose facts count, and which may be missing here
            warned = warnings([*memory_fits(held, expected)])
            for warning in warned:
                observer.note(f"note: before anything is fetched: {warning}")
            ending.close()
        prepared = [one.with_models(observer.step) for one in files]
        if not ready:
            held = hold()
        missing, problems = missing_on(held, prepared)
        refuse(problems, board.name)
        held.bring_agent(sending(observer))
        yield Opened(held, prepared, missing, observer, warned)


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
