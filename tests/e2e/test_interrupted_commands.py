"""Ctrl-C at random moments: always 130, one line that says how to continue, and that continues.

The long counts are in ``test_soak_interrupted_commands.py``.
"""

import random
from pathlib import Path

import pytest
from pressed import (
    interrupt_batches,
    interrupt_bench,
    interrupt_evaluations,
    interrupt_runs,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def chance(seed: int) -> random.Random:
    return random.Random(seed)


def test_runs_and_their_continuations(tmp_path: Path, private_state: Path) -> None:
    assert interrupt_runs(tmp_path, chance(1), 6)["run", 130] > 0


def test_batches_and_their_continuations(tmp_path: Path, private_state: Path) -> None:
    assert interrupt_batches(tmp_path, chance(2), 5)["batch", 130] > 0


def test_evaluations_and_their_continuations(tmp_path: Path, private_state: Path) -> None:
    assert interrupt_evaluations(tmp_path, chance(3), 5)["run", 130] > 0


def test_bench_and_its_continuations(
    tmp_path: Path, private_state: Path, native_llama: None
) -> None:
    assert interrupt_bench(tmp_path, chance(4), 3)["bench", 130] > 0
