"""2,000 times Ctrl-C at random moments of five commands; see ``pressed``.

``LABCTL_INTERRUPTS`` sets another number, ``LABCTL_INTERRUPTS_SEED`` other moments.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pressed import Ends, interrupt_batches, interrupt_bench, interrupt_evaluations, interrupt_runs

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(7200)]

COUNT = int(os.environ.get("LABCTL_INTERRUPTS", "2000"))
SEED = int(os.environ.get("LABCTL_INTERRUPTS_SEED", "30"))


@pytest.mark.parametrize(
    ("interrupt", "share"),
    [(interrupt_runs, 0.4), (interrupt_evaluations, 0.3), (interrupt_batches, 0.2)],
)
def test_every_interruption_is_continued(
    interrupt: Callable[[Path, random.Random, int], Ends],
    share: float,
    tmp_path: Path,
    private_state: Path,
) -> None:
    ends = interrupt(tmp_path, random.Random(SEED), round(COUNT * share))
    assert {status for _, status in ends} <= {0, 130}


def test_every_interrupted_bench_is_continued(
    tmp_path: Path, private_state: Path, native_llama: None
) -> None:
    ends = interrupt_bench(tmp_path, random.Random(SEED), round(COUNT * 0.1))
    assert {status for _, status in ends} <= {0, 130}
