"""Many commands through a server whose bytes come when they come.

``LABCTL_SOAK_SERVER_COMMANDS`` is how many (1,500).
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from erratic import ask, behind

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

COMMANDS = int(os.environ.get("LABCTL_SOAK_SERVER_COMMANDS", "1500"))


@pytest.mark.parametrize("workers", [1, 4])
def test_none_depends_on_how_its_bytes_come(tmp_path: Path, workers: int) -> None:
    count = COMMANDS // 2
    with behind(tmp_path, seed=workers) as (server, key), ThreadPoolExecutor(workers) as pool:
        began = time.monotonic()
        list(pool.map(lambda number: ask(server, key, number), range(count)))
    print(f"{count} commands, {workers} at once, in {time.monotonic() - began:.0f} s: 0 failed")
