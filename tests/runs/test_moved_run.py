"""What another board has to be, and what of a run is measured anew there."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from records_made import planned_run, run, trial

from labctl.board.probe_files import save_probe
from labctl.config.recipe_parts import Variant
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.records.probe import BoardProbe, MemoryRate, StorageRate
from labctl.records.run import PlanRecord
from labctl.runs.board.session import differences, differences_in_kind
from labctl.runs.planning.time_limits import Amount, RunClock
from labctl.runs.planning.trials import Order, PlannedTrial, make_plan
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.journal import Journal
from labctl.runs.resume import leave_board, unlike_in_speed

BOARD = BoardFacts(
    execution=Execution.BOARD,
    machine="aarch64",
    kernel="5.10",
    boot_id="b1",
    serial="0123",
    memory_total_bytes=2_000_000_000,
    cpus=(CpuFacts(count=4, implementer="0x41", part="0xd05"),),
)


def probed(lab: Path, board: str, memory: int, storage: int | None = 175_000_000) -> None:
    mapping = StorageRate(
        pattern="mapping", method="dropped", threads=1, block_bytes=4096, bytes_read=1 << 30,
        bytes_per_second=storage or 1, uncached=True,
    )  # fmt: skip
    save_probe(
        lab,
        BoardProbe(
            board=board,
            taken=datetime(2026, 11, 20, tzinfo=UTC),
            agent_version="1",
            labctl_version="1",
            facts=BOARD,
            memory=(MemoryRate(threads=4, bytes_per_second=memory),),
            storage=(mapping,) if storage else (),
        ),
    )


def test_another_board_of_the_kind_is_not_the_same_board() -> None:
    other = BOARD.model_copy(update={"serial": "4567", "boot_id": "b2"})
    assert differences(BOARD, other) == ["its serial number was 0123, now it is 4567"]
    assert differences_in_kind(BOARD, other) == []
    silent = BOARD.model_copy(update={"serial": None})
    assert differences(BOARD, silent) == differences(silent, BOARD) == []
    more = BOARD.model_copy(update={"memory_total_bytes": 4_000_000_000})
    assert differences_in_kind(BOARD, more) == [
        "its memory was 2000000000 bytes, now it is 4000000000"
    ]


def test_a_board_is_equally_fast_by_the_probes_of_both(tmp_path: Path) -> None:
    first = run(facts=BOARD, board="rk1")

    def unlike(board: str) -> list[str]:
        return list(unlike_in_speed(first, board, BOARD, tmp_path))

    assert unlike("rk2") == ["board rk1 was never probed, so the speeds of both cannot be compared"]
    probed(tmp_path, "rk1", 5_000_000_000)
    assert unlike("rk2")[0].startswith("board rk2 was never probed")
    probed(tmp_path, "rk2", 4_600_000_000)
    assert unlike("rk2") == []
    probed(tmp_path, "rk3", 4_000_000_000)
    assert unlike("rk3") == ["its memory reads 4.00 GB/s, that of board rk1 5.00 GB/s"]
    probed(tmp_path, "rk4", 5_000_000_000, storage=None)
    assert unlike("rk4") == [
        "its storage reads at a rate that was not measured, that of board rk1 175 MB/s"
    ]
    emulated = BOARD.model_copy(update={"execution": Execution.EMULATED})
    assert list(unlike_in_speed(first, "rk9", emulated, tmp_path)) == []


def two_variants(repeats: int, order: Order) -> tuple[PlannedTrial, ...]:
    """Trials of a warm-up and so many repeats of each."""
    variants = [Variant(name, name, {"tokens": 4}) for name in ("a", "b")]
    return make_plan(
        variants,
        Amount(repeats, 1, {"a": 4, "b": 4}),
        order=order,
        max_seconds=60,
        min_tokens=None,
        predict=lambda *_: None,
        roles=LlamaCpp.roles,
    ).trials


def begun(
    tmp_path: Path, trials: Sequence[PlannedTrial], finished: Sequence[int], under_way: int
) -> tuple[RunDirectory, Journal]:
    """A run of trials, of which some were finished, and one was under way."""
    plan = PlanRecord(trials=tuple(t.record() for t in trials), max_seconds=60)
    directory = planned_run(tmp_path, run(), plan)
    journal = Journal(directory.path, "r")
    for one in trials:
        if one.number in (*finished, under_way):
            journal.started(one.number, journal.attempt(one.number), "b1")
        if one.number in finished:
            directory.add(trial(one.number, slug=one.slug, repeat=one.repeat))
    return directory, journal


def moved(tmp_path: Path, finished: int, order: Order) -> tuple[list[int], RunDirectory, Journal]:
    """Two variants of a warm-up and two repeats; so many trials were finished, one was open."""
    trials = two_variants(2, order)
    directory, journal = begun(tmp_path, trials, range(1, finished + 1), finished + 1)
    done = {record.number: record for record in directory.trials()}
    clock = RunClock(1000, {}, lambda _trial: None)
    stay = leave_board(directory, journal, trials, done, board="rk2", clock=clock)
    # What is measured anew has taken its 30 s of the run's time all the same.
    assert clock.spent == pytest.approx(30 * (len(done) - len(stay)), abs=5)
    return list(stay), directory, journal


@pytest.mark.parametrize(
    ("finished", "order", "stay"),
    [
        (4, "interleaved", [3, 4]),  # a and b of the first round; the warm-ups warmed rk1
        (5, "interleaved", [3, 4]),  # the second round is torn: all of it on rk2
        (2, "interleaved", []),
        (4, "grouped", []),  # all of a, and nothing of b to compare it with
    ],
)
def test_variants_are_compared_on_one_board(
    tmp_path: Path, finished: int, order: Order, stay: list[int]
) -> None:
    found, directory, journal = moved(tmp_path, finished, order)
    assert found == stay
    assert [record.number for record in directory.trials()] == stay
    for number in set(range(1, finished + 2)) - set(stay):
        attempt = journal.attempt(number)
        assert (attempt.number, attempt.open) == (2, False)
        assert attempt.failures[0].message == (
            "the run moved to board rk2, and compares on one board only"
        )


def test_the_board_of_a_run_is_the_one_it_was_taken_up_on_last(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "r")
    assert journal.board is None
    journal.resumed("rk1")
    journal.resumed("rk2")
    assert Journal(tmp_path, "r").board == "rk2"


@pytest.mark.parametrize(
    ("under_way", "stay"),
    [
        (12, [3, 4, 5, 6, 7, 8, 10]),  # b of the fifth round: those before are whole
        (7, [3, 4, 5, 6]),  # a of the third one, after all: none from there on is surely whole
    ],
)
def test_a_repeat_that_was_left_out_tears_no_round(
    tmp_path: Path, under_way: int, stay: list[int]
) -> None:
    finished = [n for n in (1, 2, 3, 4, 5, 6, 7, 8, 10) if n != under_way]
    trials = two_variants(repeats=6, order="interleaved")
    directory, journal = begun(tmp_path, trials, finished, under_way)
    done = {record.number: record for record in directory.trials()}
    clock = RunClock(1000, {}, lambda _trial: None)
    kept = leave_board(directory, journal, trials, done, board="rk2", clock=clock)
    assert list(kept) == stay
    assert not journal.attempt(under_way).open
