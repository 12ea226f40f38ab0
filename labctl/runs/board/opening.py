"""The beginning of every run: contact first, fetch later.

A loose cable, a board of another target or one that is taken shows in seconds, not after gigabytes
were downloaded, quantized or hashed. While they are, the board is let go: nobody waits for that.

What a deploy would send is worked out before the first byte is sent.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from labctl.board import Lease
from labctl.config.lab import Board, LabFile
from labctl.deploy import (
    DeployOptions,
    DeployPlan,
    Object,
    OnProgress,
    Stopwatch,
    known_rate,
    problems,
    refuse,
)
from labctl.deploy.plan import plan
from labctl.deploy.send import deploy
from labctl.errors import LabctlError
from labctl.runs.board.held_board import HeldBoard, hold_board
from labctl.runs.inputs.prepare import Prepared, RecipeFiles
from labctl.runs.observer import Observer
from labctl.runs.planning.forecast import as_scheduled, make_forecast
from labctl.runs.planning.memory_fit import Fit
from labctl.transport import Transport


@dataclass(frozen=True)
class DeployPreview:
    """Planned deploy to a board.

    ``problems`` are all reasons why it cannot; ``bytes_per_second`` is the speed of an earlier
    delivery to this board, None where there was none.
    """

    board: Board
    plan: DeployPlan
    fits: tuple[Fit, ...]
    problems: tuple[LabctlError, ...]
    bytes_per_second: float | None

    @property
    def warnings(self) -> list[str]:
        """Say what will be slow, or fail, for want of memory."""
        return [text for fit in self.fits if (text := fit.warning())]

    @property
    def seconds(self) -> float | None:
        """Time in s of the transfer at the rate of earlier ones; None if that is unknown."""
        if self.bytes_per_second is None:
            return 0.0 if not self.plan.missing else None
        return self.plan.bytes / self.bytes_per_second


def preview_deploy(held: HeldBoard, prepared: Sequence[Prepared]) -> DeployPreview:
    """Look at a board and say what recipes need of it. Raises LinkError, BoardError."""
    wanted, found = missing_on(held, prepared)
    fits = [
        fit
        for one in prepared
        if one.tells_memory
        for fit in make_forecast(one, held.facts, held.rates).fits
    ]
    return DeployPreview(held.board, wanted, tuple(fits), tuple(found), known_rate(held.rate_file))


def missing_on(
    held: HeldBoard, prepared: Iterable[Prepared]
) -> tuple[DeployPlan, list[LabctlError]]:
    """Ask a board what it has of what recipes need; all reasons why the rest cannot be sent.

    Raises LinkError, BoardError.
    """
    objects: dict[str, Object] = {}
    for item in (item for one in prepared for item in objects_of(one)):
        # What one recipe executes may be a mere file to another.
        if item.sha256 not in objects or item.executable:
            objects[item.sha256] = item
    wanted = plan(held.store, objects.values())
    limit = held.board.limits.storage
    return wanted, problems(wanted, held.survey(), held.facts, limit_bytes=limit)


def send(
    held: HeldBoard, wanted: DeployPlan, options: DeployOptions, watch: Stopwatch | None = None
) -> dict[str, str]:
    """Carry out a plan under the board's lease; the paths by SHA-256.

    ``watch`` counts what is sent. Raises what :func:`labctl.deploy.send.deploy` raises, LeaseLost.
    """
    sign = held.signs_of_life()

    def pace(count: int) -> None:
        sign(count)
        options.pace(count)
        if watch:
            watch(count)

    return deploy(held.store, wanted, replace(options, pace=pace))


def objects_of(prepared: Prepared) -> list[Object]:
    """List what a recipe needs on a board, the agent apart."""
    models = [
        Object(
            file.identity.sha256,
            file.identity.size_bytes,
            file.path,
            f"{file.path.name} (estimated)" if file.estimated else file.path.name,
        )
        for file in prepared.models.values()
    ]
    own = [] if prepared.program is None else [prepared.program]
    others = [
        item for item in (*models, *prepared.files.values()) if item.sha256 not in _hashes(own)
    ]
    return [*own, *others]


def program_path(prepared: Prepared, paths: Mapping[str, str]) -> str:
    """Path of the program on a board; ``paths`` are those of the sent files, by SHA-256."""
    return prepared.tool.name if prepared.program is None else paths[prepared.program.sha256]


def _hashes(items: Sequence[Object]) -> set[str]:
    return {item.sha256 for item in items}


def sending(observer: Observer) -> OnProgress:
    """Make what shows an observer how far an object is."""

    def sent(item: Object, done: int) -> None:
        observer.sent(f"send {item.name}", done, item.size_bytes)

    return sent


@dataclass(frozen=True)
class Opened:
    """A board that is ours until the context ends, and recipes that nothing of is missing here."""

    held: HeldBoard
    prepared: Sequence[Prepared]
    missing: DeployPlan
    observer: Observer
    #: What was said already, before models were fetched.
    warned: Sequence[str] = ()

    def send(self) -> dict[str, str]:
        """Send what the board lacks, under its lease; the paths there by SHA-256.

        Raises what :func:`labctl.deploy.send.deploy` raises, LeaseLost.
        """
        options = DeployOptions(progress=sending(self.observer), on_loss=self.observer.link_lost)
        paths = send(self.held, self.missing, options, watch := Stopwatch())
        watch.note(self.held.rate_file)
        return paths


@contextmanager
def open_board(
    board: Board,
    files: Sequence[RecipeFiles],
    connect: Callable[[], Transport],
    observer: Observer,
    lab: LabFile,
    *,
    ours: Callable[[Lease], bool] | None = None,
    on_contact: Callable[[HeldBoard], None] = lambda _held: None,
) -> Iterator[Opened]:
    """Hold a board, see what it can take, fetch the models, and look again before it is used.

    A lease that is ``ours`` is no conflict. ``on_contact`` gets the board when it has answered and
    is free, before anything is fetched. Raises BoardBusy and what else
    :func:`labctl.runs.board.held_board.hold_board` raises, what :func:`labctl.models.resolve`
    raises, and all problems of :func:`labctl.deploy.refuse` as soon as they are known.
    """
    with ExitStack() as ending:

        def hold() -> HeldBoard:
            transport = ending.enter_context(connect())
            held = ending.enter_context(hold_board(board, transport, lab))
            held.refuse_if_taken(ours=ours)
            for one in files:
                as_scheduled(one.recipe, held.facts)  # raises for CPUs that it does not have
            return held

        held = hold()
        on_contact(held)
        warned: list[str] = []
        ready = all(one.models_are_ready for one in files)
        if not ready:
            expected = preview_deploy(held, [one.expected(observer.step) for one in files])
            refuse(expected.problems, board.name)
            warned = expected.warnings
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
