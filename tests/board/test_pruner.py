"""What a prune sees on a board and removes from it, with hostile things lying there."""

import json
import os
from pathlib import Path

import pytest
from agent_fences import native_fence, native_leases

from labctl.board.agent import BoardAgent
from labctl.board.lease import BoardLease, Lease
from labctl.board.prune import PrunePolicy, Pruner, choose
from labctl.transport.base import Transport

A, B = "a" * 64, "b" * 64

#: Says of every job folder that holds a file ``runs`` that it does.
AGENT = """#!/bin/sh
[ ! -f "$3/stuck" ] || exit 71
[ -f "$3/runs" ] && echo '{"state":"running"}' || echo '{"state":"finished"}'
"""


@pytest.fixture
def board(workdir: str) -> Path:
    directory = Path(workdir)
    (directory / "store").mkdir(parents=True)
    (directory / "agent").write_text(AGENT)
    (directory / "agent").chmod(0o755)
    return directory


def pruner(transport: Transport, board: Path, own: Lease | None = None) -> Pruner:
    fence = native_fence(transport, str(board), epoch=99)
    agent = BoardAgent(transport, f"{board}/agent", str(board), fence)
    return Pruner(
        transport, str(board), agent, BoardLease(transport, str(board)), lambda lease: lease == own
    )


def put(board: Path, sha256: str, name: str) -> Path:
    path = board / "store" / sha256
    path.write_bytes(bytes(5000))
    Path(f"{path}.stamp").write_text("stamp\n")
    Path(f"{path}.name").write_text(name)
    return path


def test_what_is_there_is_listed_and_removed_with_all_that_belongs_to_it(
    transport: Transport, board: Path
) -> None:
    path = put(board, A, "model.gguf\n")
    part = board / "store" / f".part-{B}"
    part.write_bytes(b"x")
    Path(f"{part}.journal").write_text("j")
    (board / "jobs" / "1 a").mkdir(parents=True)
    work = pruner(transport, board)
    there = work.inventory()
    assert [(item.name, item.sha256) for item in there.objects] == [("model.gguf", A)]
    assert [item.sha256 for item in there.partials] == [B]
    assert [item.path for item in there.jobs] == ["jobs/1 a"]
    everything = [*there.objects, *there.partials, *there.jobs]
    assert work.remove(everything) == everything
    assert list((board / "store").iterdir()) == []
    assert not (board / "jobs" / "1 a").exists()
    assert not path.exists()


def test_names_with_lines_of_their_own_make_no_objects(transport: Transport, board: Path) -> None:
    line = f"1 8 512 {B} w"
    put(board, A, f"x\\n{line}\f{line}\u2028{line}\n1 8 512 ../../victim y\n{line}\n")
    (board / "store" / "some notes").write_text("not ours")
    (board / "store" / "README").write_text("not ours")
    (board / "jobs" / "j\n1 1 jobs").mkdir(parents=True)
    there = pruner(transport, board).inventory()
    assert [item.path for item in there.objects] == [f"store/{A}"]
    assert all(item.path.startswith("jobs/j") for item in there.jobs)


def test_what_was_wanted_after_the_look_stays(transport: Transport, board: Path) -> None:
    path = put(board, A, "model.gguf")
    other = put(board, B, "other.gguf")
    work = pruner(transport, board)
    there = work.inventory()
    os.utime(f"{path}.stamp", (2_000_000_000, 2_000_000_000))
    assert [item.sha256 for item in work.remove(there.objects)] == [B]
    assert path.exists()
    assert not other.exists()


def test_what_running_jobs_name_is_held_and_dead_jobs_hold_nothing(
    transport: Transport, board: Path
) -> None:
    for number, sha256, runs in ((1, A, True), (2, B, False)):
        job = board / "jobs" / str(number)
        job.mkdir(parents=True)
        (job / "started.json").write_text(json.dumps({"argv": [f"/x/store/{sha256}"]}))
        if runs:
            (job / "runs").write_text("")
        put(board, sha256, f"{number}.gguf")
    there = pruner(transport, board).inventory()
    assert there.held == {"jobs/1", A}
    assert [i.sha256 for i in choose(there, PrunePolicy(free_bytes=1 << 60))] == [B]
    (board / "jobs" / "2" / "stuck").write_text("")  # then nothing is known of it
    assert pruner(transport, board).inventory().held == {"jobs/1", A, "jobs/2", B}


def test_who_holds_the_board(transport: Transport, board: Path) -> None:
    """A controller that lives; not one that died, ended, or is this one."""
    leases = native_leases(transport, str(board))
    theirs = leases.acquire("theirs")
    holder = pruner(transport, board).inventory().holder
    assert holder is not None
    assert holder.host == theirs.host
    assert pruner(transport, board, theirs).inventory().holder is None
    leases.release(theirs)
    assert pruner(transport, board).inventory().holder is None


def test_a_holder_that_is_silent_while_its_job_runs_is_alive(
    transport: Transport, board: Path
) -> None:
    leases = native_leases(transport, str(board))
    leases.release(leases.acquire("theirs"))
    job = board / "jobs" / "1"
    job.mkdir(parents=True)
    (job / "started.json").write_text("{}")
    (job / "runs").write_text("")
    assert pruner(transport, board).inventory().holder is not None
    (job / "runs").unlink()
    assert pruner(transport, board).inventory().holder is None
