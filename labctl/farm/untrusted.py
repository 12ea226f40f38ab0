"""A run of a recipe that nobody vouches for, and the look through its board afterwards.

Its programs may have all rights on the board. So nothing that was there is believed: an agent is
brought anew, everything in the store is hashed again, and a health check compares the board's
speed with its history. A board that was changed is quarantined: its health is bad, with the
evidence. Until the look has ended its health is bad too, also when this process dies: the next
untrusted run begins with the look.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from labctl.board.running_jobs import running_jobs
from labctl.config.lab import Board
from labctl.config.names import listed
from labctl.errors import ConfigError, JobError, LabctlError
from labctl.farm.health.checking import check
from labctl.records import Execution
from labctl.runs import (
    BoardUse,
    HeldBoard,
    Observer,
    Outcome,
    RunRequest,
    hold_board,
    run_recipe,
)
from labctl.runs.inputs.untrusted import check_board
from labctl.state import lab_state
from labctl.state.health import BY_PEOPLE, UNTRUSTED, Health
from labctl.transport import Transport

Connect = Callable[[Board], Transport]
#: Who sets the health.
_BY = "labctl run --untrusted"
_NOT_LOOKED_THROUGH = "an untrusted recipe ran on it, and it was not looked through since"
_LOOK = BoardUse("look for what an untrusted recipe changed")


def run_untrusted(request: RunRequest, connect: Connect, observer: Observer) -> Outcome:
    """Run an untrusted recipe on a board that is marked for it, and look through the board.

    Raises what :func:`labctl.runs.run_recipe` raises; ConfigError for a board that takes
    none, and for an emulated one, whose programs run on a host; JobError if the recipe changed the
    board.
    """
    board = request.board
    check_board(board)
    health = lab_state(request.lab).health.get(board.name)
    if health.evidence.get(UNTRUSTED) == _NOT_LOOKED_THROUGH:
        with _looked_through(request, connect, observer) as touch:
            touch()
    else:
        health.require_work()
    with _looked_through(request, connect, observer) as touch:

        def on_contact(held: HeldBoard) -> None:
            if held.facts.execution is not Execution.BOARD:
                raise ConfigError(
                    f"board {board.name} is not real hardware ({held.facts.execution}): an"
                    " untrusted recipe would run its programs on the host of its emulator",
                    hint="choose a real board",
                )
            touch()

        wanted = replace(request, untrusted=True, on_contact=on_contact)
        return run_recipe(wanted, connect, observer)


@contextmanager
def _looked_through(
    request: RunRequest, connect: Connect, observer: Observer
) -> Iterator[Callable[[], None]]:
    """Look through the board at the end, if the function that is yielded was called.

    What the run itself raises is raised, whatever the look finds; else JobError for a change.
    """
    board, healths = request.board, lab_state(request.lab).health
    touched = False

    def set_health(health: Health, reason: str, evidence: dict[str, Any] | None = None) -> None:
        healths.set(board.name, health, reason=reason, by=_BY, evidence=evidence, unless=BY_PEOPLE)

    def touch() -> None:
        nonlocal touched
        set_health(Health.BAD, _NOT_LOOKED_THROUGH, {UNTRUSTED: _NOT_LOOKED_THROUGH})
        touched = True

    def look() -> str | None:
        """Look through the board and keep what came of it; return what was changed."""
        try:
            damaged = look_through_store(request, connect, observer)
            if not damaged:
                set_health(Health.UNKNOWN, "its store was not changed by an untrusted recipe")
                result = check(request.lab, board, connect, observer)
                return None if result.health.may_work else result.verdict.reason
        except LabctlError as error:
            reason = f"{_NOT_LOOKED_THROUGH}: {error.message}"
            set_health(Health.BAD, reason, {UNTRUSTED: _NOT_LOOKED_THROUGH})
            observer.note(f"board {board.name}: {reason}")
            raise
        reason = f"an untrusted recipe changed {listed(damaged, joiner='and')}"
        set_health(Health.BAD, reason, {UNTRUSTED: reason, "damaged": damaged})
        observer.note(f"board {board.name} is quarantined: {reason}")
        return reason

    try:
        yield touch
    except BaseException:
        if touched:
            with suppress(LabctlError):  # which was told, and is in the board's health
                look()
        raise
    if touched and (reason := look()):
        raise JobError(
            f"board {board.name} is quarantined: {reason}",
            hint=f"`labctl boards history {board.name}` shows the evidence; a new system image is"
            " the only sure cure",
        )


def look_through_store(request: RunRequest, connect: Connect, observer: Observer) -> list[str]:
    """Bring a new agent to a board, end what runs there, and hash its store; what was changed.

    Changed files are removed. Raises what :func:`labctl.runs.hold_board` raises, LinkError,
    BoardError.
    """
    board, damaged = request.board, []
    with connect(board) as transport, hold_board(board, transport, request.lab, _LOOK) as held:
        held.refuse_if_taken()
        held.hold_in_lab()
        before = held.store.contents()
        agent = held.agent_object().stored
        # Only the board's own program can vouch for the agent that is there; so it goes anyway.
        if held.store.verify([one for one in before if one.sha256 == agent.sha256]):
            damaged.append(agent.name or agent.sha256)
        held.bring_agent(lambda _item, _done: None, anew=True)
        # What lost its controller must not go on changing what is looked at.
        for job in running_jobs(transport, board.workdir, held.agent).jobs:
            held.agent.stop(held.agent.job_directory(job.rpartition("/")[2]))
        for one in before:
            if one.sha256 != agent.sha256:
                observer.measuring(f"hash {one.name or one.sha256}")
                if held.store.verify([one]):
                    damaged.append(one.name or one.sha256)
    return damaged
