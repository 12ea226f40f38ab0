"""Many sessions, each with a command at once, on a busy host: every command gets its end.

``LABCTL_SOAK_SESSIONS`` is how many (3,000), in equal parts with boards of two kinds: one sends the
CHANNEL_CLOSE that ends the handshake at once, the other when it comes, or never.
"""

import os
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from daemons import board, daemons
from late_closes import as_it_comes

from labctl import process
from labctl.errors import LabctlError
from labctl.transport.hdc import HdcTcpConfig

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

SESSIONS = int(os.environ.get("LABCTL_SOAK_SESSIONS", "3000"))
WORKERS = 8
PATIENCE = 60.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_command_at_the_start_of_a_session_is_lost(tmp_path: Path, seed: int) -> None:
    (tmp_path / "prompt").mkdir()
    (tmp_path / "late").mkdir()
    plans = board(tmp_path / "prompt"), board(tmp_path / "late", interference=as_it_comes(seed))
    failures: Counter[str] = Counter()
    cores = os.cpu_count() or 1
    with daemons(*plans) as serving, ExitStack() as load:
        for _ in range(2 * cores):
            words = [sys.executable, "-c", "while True: pass"]
            busy = process.start(words, stdout=None, stderr=None)
            load.callback(process.stop, busy)

        def one(number: int) -> None:
            try:
                with HdcTcpConfig(address=serving.addresses[number % 2]).open() as link:
                    said = link.run(f"echo x{number}", timeout=PATIENCE)
            except LabctlError as error:
                failures[f"{type(error).__name__}: {error.message}"] += 1
                return
            if (said.exit_status, said.text) != (0, f"x{number}\n"):
                failures[repr(said)] += 1

        count = SESSIONS // 3
        began = time.monotonic()
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(one, range(count)))
    print(
        f"seed {seed}: {count} sessions beside {2 * cores} busy programs on {cores} cores in"
        f" {time.monotonic() - began:.0f} s, {failures.total()} failed"
    )
    assert not failures
