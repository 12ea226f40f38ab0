"""Bringing what recipes need to a board."""

from collections.abc import Callable, Sequence
from pathlib import Path

from labctl.config.lab import Board
from labctl.deploy import DeployPlan, Object, deploy, plan
from labctl.runs.observer import Observer
from labctl.runs.prepare import Prepared
from labctl.runs.session import OnSent, hold_board
from labctl.transport import Transport


def deploy_recipes(
    prepared: Sequence[Prepared],
    board: Board,
    transport: Transport,
    *,
    lab_root: Path,
    agree: Callable[[DeployPlan], None],
    observer: Observer,
) -> DeployPlan:
    """Send what a board lacks of what recipes need; the plan that was carried out.

    ``agree`` sees the plan before the first byte moves, and may raise. Raises what
    :func:`labctl.runs.session.hold_board`, :func:`labctl.deploy.plan` and
    :func:`labctl.deploy.deploy` raise.
    """
    objects = {item.sha256: item for one in prepared for item in wanted_objects(one)}
    with hold_board(board, transport, lab_root=lab_root, on_sent=sending(observer)) as session:
        wanted = plan(
            session.store, objects.values(), session.facts, limit_bytes=board.limits.storage
        )
        agree(wanted)
        deploy(session.store, wanted, sending(observer))
    return wanted


def wanted_objects(prepared: Prepared) -> list[Object]:
    """What a recipe needs on a board, the agent apart."""
    models = [
        Object(file.identity.sha256, file.identity.size_bytes, file.path, file.path.name)
        for file in prepared.models.values()
    ]
    return [program_object(prepared), *models, *prepared.files.values()]


def program_object(prepared: Prepared) -> Object:
    """The program that a recipe runs."""
    tool = prepared.artifact.manifest.tools[prepared.tool.name]
    return Object(
        tool.sha256, tool.size_bytes, prepared.program, prepared.tool.name, executable=True
    )


def sending(observer: Observer) -> OnSent:
    """What shows an observer how far an object is."""

    def sent(item: Object, done: int) -> None:
        observer.step(f"send {item.name}", done, item.size_bytes)

    return sent
