"""``labctl boards``."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import click

from labctl.board import probe
from labctl.cli.lab import connect_board, lab_of
from labctl.cli.root import Invocation, LazyGroup
from labctl.config.lab import Board
from labctl.errors import (
    ConfigError,
    ExitStatus,
    InfraError,
    JobError,
    LabctlError,
    LinkRefused,
    NotAuthorised,
)
from labctl.records import Execution
from labctl.units import size

_TIMEOUT_SECONDS = 15.0
_AT_ONCE = 32


@dataclass(frozen=True)
class BoardState:
    """A board as the list shows it."""

    name: str
    target: str
    address: str
    state: str
    detail: str
    facts: dict[str, object] | None = None


#: name -> (module, attribute, one line of help).
COMMANDS = {"probe": ("labctl.cli.boards_probe", "probe", "Measure what a board can do.")}


class BoardsGroup(LazyGroup):
    """Commands on boards beside their list."""

    lazy = COMMANDS


@click.group(cls=BoardsGroup, invoke_without_command=True, epilog="Example: labctl boards --json")
@click.option("--json", "as_json", is_flag=True, help="Print names, states and facts as JSON.")
@click.pass_context
def boards(context: click.Context, as_json: bool) -> int:
    """List the lab's boards and their state.

    Without a command, asks every board. Ends with status 3 when one of them does not answer, with 2
    when what devices.yaml says of one cannot be.
    """
    if context.invoked_subcommand is not None:
        return ExitStatus.OK
    known = lab_of(context.find_object(Invocation) or Invocation()).lab.boards.values()
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        states = list(pool.map(_state, known))
    if as_json:
        click.echo(json.dumps([asdict(state) for state in states], indent=2))
    else:
        width = max((len(state.name) for state in states), default=0)
        for state in states:
            click.echo(
                f"{state.name:{width}}  {state.state:12}  {state.target}  {state.address}"
                + (f"  {state.detail}" if state.detail else "")
            )
    found = {state.state for state in states}
    if "misconfigured" in found:
        return ExitStatus.CONFIG
    return ExitStatus.OK if found <= {"connected"} else ExitStatus.INFRA


def _state(board: Board) -> BoardState:
    address = board.transport.place
    try:
        with connect_board(board) as link:
            facts = probe(link, workdir=board.workdir, timeout=_TIMEOUT_SECONDS)
    except NotAuthorised as error:
        return BoardState(board.name, board.target, address, "unauthorised", _told(error))
    except LinkRefused as error:
        return BoardState(board.name, board.target, address, "offline", _told(error))
    except ConfigError as error:  # one such board must not hide the others
        return BoardState(board.name, board.target, address, "misconfigured", _told(error))
    except (InfraError, JobError) as error:
        return BoardState(board.name, board.target, address, "failing", _told(error))
    detail = [facts.machine, f"{facts.cores} cores"]
    if facts.memory_total_bytes:
        detail.append(f"{size(facts.memory_total_bytes)} memory")
    if facts.storage_free_bytes is not None:
        detail.append(f"{size(facts.storage_free_bytes)} free")
    if facts.execution is not Execution.BOARD:
        detail.append(facts.execution.upper())
    return BoardState(
        board.name,
        board.target,
        address,
        "connected",
        ", ".join(detail),
        facts.model_dump(mode="json"),
    )


def _told(error: LabctlError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message
