"""Bringing what recipes need to boards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from labctl.config.lab import Board
from labctl.deploy import (
    DeployOptions,
    DeployPlan,
    Object,
    OnProgress,
    Stopwatch,
    known_rate,
    problems,
)
from labctl.deploy.deploy import deploy
from labctl.deploy.plan import plan
from labctl.errors import LabctlError
from labctl.performance.rates import known_rates
from labctl.runs.board.held_board import BoardMeeting, BoardSession
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.observer import Observer
from labctl.runs.plan.memory_fit import Fit, fits_of


@dataclass(frozen=True)
class Offer:
    """What a deploy would do to a board, known before the first byte moves.

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
        """What will be slow, or fail, for want of memory."""
        return [text for fit in self.fits if (text := fit.warning())]

    @property
    def seconds(self) -> float | None:
        """How long sending takes at the speed of before; None where that is not known."""
        if self.bytes_per_second is None:
            return 0.0 if not self.plan.missing else None
        return self.plan.bytes / self.bytes_per_second


def make_offer(met: BoardMeeting, prepared: Sequence[Prepared], lab_root: Path) -> Offer:
    """Look at a board and say what recipes need of it. Raises LinkError, BoardError."""
    objects: dict[str, Object] = {}
    for item in (item for one in prepared for item in wanted_objects(one)):
        # What one recipe executes may be a mere file to another.
        if item.sha256 not in objects or item.executable:
            objects[item.sha256] = item
    wanted = plan(met.store, objects.values())
    found = problems(wanted, met.survey(), met.facts, limit_bytes=met.board.limits.storage)
    rates = known_rates(lab_root, met.board.name, met.target)
    fits = [fit for one in prepared if one.tells_memory for fit in fits_of(one, met.facts, rates)]
    return Offer(met.board, wanted, tuple(fits), tuple(found), known_rate(met.rate_file))


def send(
    session: BoardSession,
    wanted: DeployPlan,
    options: DeployOptions,
    watch: Stopwatch,
    lab_name: str,
) -> dict[str, str]:
    """Carry out a plan while other controllers are kept out; the paths by SHA-256.

    ``watch`` is told of what is sent. Raises what :func:`labctl.deploy.deploy` and
    :meth:`BoardSession.hold_to_send` raise.
    """
    if not wanted.missing:
        return deploy(session.store, wanted)
    sign = session.hold_to_send(lab_name)

    def pace(count: int) -> None:
        sign(count)
        options.pace(count)
        watch(count)

    return deploy(session.store, wanted, replace(options, pace=pace))


def wanted_objects(prepared: Prepared) -> list[Object]:
    """What a recipe needs on a board, the agent apart."""
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
    """Where the program is on a board; ``paths`` are those of what was sent, by SHA-256."""
    return prepared.tool.name if prepared.program is None else paths[prepared.program.sha256]


def _hashes(items: Sequence[Object]) -> set[str]:
    return {item.sha256 for item in items}


def sending(observer: Observer) -> OnProgress:
    """What shows an observer how far an object is."""

    def sent(item: Object, done: int) -> None:
        observer.sent(f"send {item.name}", done, item.size_bytes)

    return sent
