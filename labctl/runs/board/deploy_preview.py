"""Preview of a deploy: the files it would send to a board, before the first byte is sent."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from labctl.board.lease import Lease
from labctl.board.workdir_check import survey
from labctl.config.lab import Board
from labctl.deploy.plan import DeployPlan, Object, problems, refuse
from labctl.deploy.send import DeployOptions, OnProgress, Stopwatch, deploy, known_rate
from labctl.errors import ConfigError, LabctlError, LinkError
from labctl.records.trial import ModelIdentity
from labctl.runs.board.session import BoardSession
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.observer import Observer
from labctl.runs.planning.forecast import make_forecast
from labctl.runs.planning.memory_fit import MemoryFit

#: Interval (s) of signs of life while sending; after ALIVE_SECONDS of silence a controller is dead.
SIGN_SECONDS = 60.0


@dataclass(frozen=True)
class DeployPreview:
    """Planned deploy to a board.

    ``problems`` are all reasons why it is impossible; ``known_bytes_per_second`` is the speed of an
    earlier delivery to this board, None without an earlier delivery; ``limit_bytes_per_second`` is
    the maximum allowed speed.
    """

    board: Board
    plan: DeployPlan
    fits: tuple[MemoryFit, ...]
    problems: tuple[LabctlError, ...]
    known_bytes_per_second: float | None
    limit_bytes_per_second: float | None = None

    @property
    def bytes_per_second(self) -> float | None:
        """Expected speed: the speed of earlier deliveries or the limit, whichever is lower."""
        rates = (self.known_bytes_per_second, self.limit_bytes_per_second)
        return min((rate for rate in rates if rate is not None), default=None)

    @property
    def is_limited(self) -> bool:
        """True if the expected speed is the limit."""
        limit = self.limit_bytes_per_second
        return limit is not None and self.bytes_per_second == limit

    @property
    def warnings(self) -> list[str]:
        """Return warnings about slow or failing variants because of too little memory."""
        return warnings(self.fits)

    @property
    def seconds(self) -> float | None:
        """Time in s of the transfer at the expected speed; None if that is unknown."""
        if self.bytes_per_second is None:
            return 0.0 if not self.plan.missing else None
        return self.plan.bytes_to_send / self.bytes_per_second


def preview_deploy(
    held: BoardSession, prepared: Sequence[Prepared], limit_bytes_per_second: float | None = None
) -> DeployPreview:
    """Contact a board and return what recipes need on it. Raises as :func:`missing_on` does."""
    wanted, found = missing_on(held, prepared)
    try:
        _ = held.agent_object
    except ConfigError as error:
        found.append(error)
    fits, known = tuple(memory_fits(held, prepared)), known_rate(held.rate_file)
    return DeployPreview(held.board, wanted, fits, tuple(found), known, limit_bytes_per_second)


def memory_fits(held: BoardSession, prepared: Iterable[Prepared]) -> Iterator[MemoryFit]:
    """Yield the memory that each variant needs on a board, if enough of its model is known."""
    for one in prepared:
        if one.tells_memory:
            yield from make_forecast(one, held.facts, held.rates).fits


def warnings(fits: Iterable[MemoryFit]) -> list[str]:
    """Return warnings about slow or failing variants because of too little memory."""
    return [text for fit in fits if (text := fit.warning())]


def missing_on(
    held: BoardSession, prepared: Iterable[Prepared]
) -> tuple[DeployPlan, list[LabctlError]]:
    """Ask which files of recipes a board lacks; also return all reasons why they cannot be sent.

    Raises what :meth:`BoardSession.plan` raises.
    """
    return missing_objects(held, (item for one in prepared for item in objects_of(one)))


def missing_objects(
    held: BoardSession, wanted_objects: Iterable[Object]
) -> tuple[DeployPlan, list[LabctlError]]:
    """Ask which of some files a board lacks; see :func:`missing_on`."""
    objects: dict[str, Object] = {}
    for item in wanted_objects:
        # A file that one recipe executes may be plain data for another recipe.
        if item.sha256 not in objects or item.executable:
            objects[item.sha256] = item
    wanted = held.plan(objects.values())
    if not wanted.missing:
        return wanted, []
    workdir = survey(held.transport, held.board.workdir)
    arrived = sum(workdir.arrived_bytes.get(item.sha256, 0) for item in wanted.missing)
    limit = held.board.limits.storage
    found = problems(wanted, workdir, held.facts, limit_bytes=limit)
    return replace(wanted, arrived_bytes=arrived), found


def take_and_send(
    held: BoardSession,
    plan: DeployPlan,
    observer: Observer,
    before_use: Callable[[BoardSession], None] = lambda _held: None,
) -> tuple[Lease, dict[str, str]]:
    """Take a board's lease, and send missing files; return the lease, and the paths by SHA-256.

    ``before_use`` gets the board between both steps: it is ours, and nothing was sent. A board that
    no longer fits the plan is looked at again. Raises what ``before_use``,
    :meth:`BoardSession.take_for` and :func:`send` raise.
    """
    plan = replace(plan, objects=(*plan.objects, held.agent_object))
    lease, is_as_planned = held.take_for(plan)
    before_use(held)
    if not is_as_planned:
        held.renew(lambda look: look())
    return lease, send_observed(held, plan, observer, has_asked=is_as_planned)


def send_observed(
    held: BoardSession, plan: DeployPlan, observer: Observer, *, has_asked: bool = False
) -> dict[str, str]:
    """Send missing files to the board as :func:`send` does; an observer sees the progress."""
    options = DeployOptions(progress=sending(observer), on_loss=observer.link_lost)
    with Stopwatch().noted(held.rate_file) as watch:
        return send(held, plan, options, watch, has_asked=has_asked)


def send(
    held: BoardSession,
    plan: DeployPlan,
    options: DeployOptions,
    watch: Stopwatch | None = None,
    *,
    has_asked: bool = False,
) -> dict[str, str]:
    """Carry out a plan under the board's lease; return the paths by SHA-256.

    ``watch`` counts the sent bytes. ``has_asked``: the store was asked when the lease was taken.
    Raises what :func:`missing_objects` and :func:`labctl.deploy.send.deploy` raise, LeaseLost, and
    all reasons why the board cannot take the files.
    """
    # The agent marks existing files as wanted, and removes incomplete files to make room.
    if not has_asked:
        plan, found = missing_objects(held, (*plan.objects, held.agent_object))
        refuse(found, held.board.name)
    sign = signs_of_life(held)

    def pace(count: int) -> None:
        sign(count)
        options.pace(count)
        if watch:
            watch(count)

    return deploy(held.store, plan, replace(options, pace=pace))


def signs_of_life(held: BoardSession, every: float = SIGN_SECONDS) -> Callable[[int], None]:
    """Return the hook that is called before bytes are sent; it raises LeaseLost."""
    due = time.monotonic() + every

    def sign(_count: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + every
            with suppress(LinkError):  # the sender notices that, too, and retries
                held.claim.check()

    return sign


def objects_of(prepared: Prepared) -> list[Object]:
    """List the files that a recipe needs on a board, without the agent."""
    models = [
        Object(
            file.identity.sha256,
            _size(file.identity),
            file.path,
            f"{file.path.name} (estimated)" if file.estimated else file.path.name,
        )
        for file in prepared.models.values()
    ]
    own = [] if prepared.program is None else [prepared.program]
    return [*own, *models, *prepared.files.values()]


def program_path(prepared: Prepared, paths: Mapping[str, str]) -> str:
    """Return the program's path on a board; ``paths`` are the sent files' paths, by SHA-256."""
    return prepared.tool.name if prepared.program is None else paths[prepared.program.sha256]


def _size(model: ModelIdentity) -> int:
    """Return the size of a file that is here or expected; only in an imported run it is unknown."""
    assert model.size_bytes is not None
    return model.size_bytes


def sending(observer: Observer) -> OnProgress:
    """Return a function that shows an observer the progress of an object."""

    def sent(item: Object, done: int) -> None:
        observer.sent(f"send {item.name}", done, item.size_bytes)

    return sent
