"""Worker processes that grade: limits, order, and nothing left behind."""

import os
import signal
import time
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from pathlib import Path

import pytest

from labctl.evaluation.graders import GRADERS, Grade
from labctl.evaluation.graders import pool as pools
from labctl.evaluation.graders.pool import GraderPool, GradingItem, Limits
from labctl.retry import wait_until

HOSTILE = '''
import os, signal, time
from labctl.evaluation.graders.base import Grade, Grader

class Hostile(Grader):
    """Does what its text says."""

    name = "hostile"
    version = "1"

    def grade(self, text, answer, *, complete):
        if text == "loop":
            while True:
                pass
        if text == "power":
            len(str(9 ** 9 ** 9 ** 9))
        if text == "memory":
            bytearray(1 << 40)
        if text == "wait":
            time.sleep(600)  # longer than any limit
        if text == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if text == "print":
            print("{}", flush=True)
        return Grade(text, correct=text == answer)
'''


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A grader that does what a text says, known to the worker processes alone."""
    (tmp_path / "hostile_grader.py").write_text(HOSTILE)
    (tmp_path / "sitecustomize.py").write_text(
        "from labctl.evaluation import graders\n"
        "import sys, hostile_grader\n"
        "sys.modules['labctl.evaluation.graders.hostile'] = hostile_grader\n"
        "graders.GRADERS['hostile'] = 'hostile.Hostile'\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "hostile"


def item(text: str, *graders: str, answer: str = "18") -> GradingItem:
    return GradingItem(text, answer, complete=True, graders=graders)


def children() -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has ended meanwhile has none
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


def test_grades_come_in_the_order_of_the_texts() -> None:
    texts = [item(rf"\boxed{{{n}}}", "boxed", "numeric", answer=str(n)) for n in range(200)]

    with GraderPool(2) as pool:
        grades = list(pool.grade_all(texts))

    assert [one.extracted for one, _ in grades] == [str(n) for n in range(200)]
    assert all(grade.correct for both in grades for grade in both)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("loop", "time-limit"),
        ("power", "time-limit"),
        ("memory", "memory-limit"),
        ("wait", "time-limit"),
        ("segfault", "crash"),
    ],
)
def test_a_text_that_passes_a_limit_is_wrong_and_no_other_is_lost(
    hostile: str, text: str, note: str
) -> None:
    limits = Limits(cpu_s=1, wall_s=20 if note == "time-limit" and text != "wait" else 3)
    texts = [item("18", hostile), item(text, "boxed", hostile, "numeric"), item("18", hostile)]

    with GraderPool(1, limits=limits) as pool:
        before, cut, after = list(pool.grade_all(texts))

    assert before == after == (Grade("18", correct=True),)
    assert cut[1] == Grade(None, correct=False, notes=("no-answer", note))
    assert len(cut) == 3


def test_what_a_grader_prints_is_no_grade(hostile: str) -> None:
    with GraderPool(1) as pool:
        (grades,) = pool.grade_all([item("print", hostile, answer="print")])

    assert grades == (Grade("print", correct=True),)


def test_nothing_is_left_after_the_end() -> None:
    before = children()
    with GraderPool(2) as pool:
        list(pool.grade_all([item("18", "numeric")] * 10))
        assert children() - before

    assert children() == before


def test_an_interrupt_ends_a_grade_that_would_take_long(hostile: str) -> None:
    before = children()
    asked: list[Future[tuple[Grade, ...]]] = []

    def interrupted() -> None:
        with GraderPool(1) as pool:
            asked.append(pool.submit(item("wait", hostile)))
            assert wait_until(lambda: bool(children() - before), timeout=60, interval=0.01)
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert time.monotonic() - began < 20
    assert isinstance(asked[0].exception(), CancelledError)
    assert children() == before


def test_a_killed_worker_is_replaced_and_its_text_is_graded() -> None:
    before = children()
    with GraderPool(1) as pool:
        list(pool.grade_all([item("18", "numeric")]))
        (worker,) = children() - before
        os.kill(worker, signal.SIGKILL)
        (grades,) = pool.grade_all([item("18", "numeric")])

    assert grades == (Grade("18", correct=True),)


def test_a_huge_text_full_of_braces_is_graded() -> None:
    texts = [item("{" * (1 << 20), *GRADERS), item("\\boxed{" * 150_000, *GRADERS)]

    with GraderPool(1) as pool:
        grades = list(pool.grade_all(texts))

    assert not any(grade.correct for both in grades for grade in both)
    assert not any("time-limit" in grade.notes for both in grades for grade in both)


def test_a_worker_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from labctl.errors import HostError

    monkeypatch.setattr(pools.sys, "executable", "/bin/false")

    with pytest.raises(HostError, match="does not start"), GraderPool(1) as pool:
        list(pool.grade_all([item("18", "numeric")]))


def test_files_of_the_lab_are_not_taken_for_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a file of the lab')\n")
    monkeypatch.chdir(tmp_path)

    with GraderPool(1) as pool:
        (grades,) = pool.grade_all([item("18", "numeric")])

    assert grades == (Grade("18", correct=True),)
