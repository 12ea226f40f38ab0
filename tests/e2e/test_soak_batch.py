"""The scheduler at full size: 200 virtual boards, 2,000 jobs of 20 to 40 s, one process.

On a host that is busy with other things the makespan says little; the CPU time of a job does.
"""

import json
import os
import random
import time
from pathlib import Path

import pytest
from farm_lab import farm_lab
from labs import said

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(7200)]

#: Fewer for a host that is busy: LABCTL_SOAK_BOARDS=50 LABCTL_SOAK_JOBS=500.
BOARDS = int(os.environ.get("LABCTL_SOAK_BOARDS", "200"))
JOBS = int(os.environ.get("LABCTL_SOAK_JOBS", "2000"))
SEED = 15


def resident_bytes(pid: int) -> int:
    """Memory of a process and its children; 0 once it has ended."""
    try:
        (line,) = [
            line
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        ]
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, ValueError):
        return 0
    return int(line.split()[1]) * 1024 + sum(resident_bytes(int(child)) for child in children)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def test_two_hundred_boards_are_kept_busy(tmp_path: Path, private_state: Path) -> None:
    random.seed(SEED)
    seconds = [round(random.uniform(20, 40), 1) for _ in range(JOBS)]
    with farm_lab(tmp_path, BOARDS) as lab:
        entries = "".join(
            f"  - {{recipe: sleeping, set: {{seconds: {one}}}, expected: {one}s}}\n"
            for one in seconds
        )
        (tmp_path / "full.yaml").write_text(f"name: full\njobs:\n{entries}")
        running = lab.start("batch", str(tmp_path / "full.yaml"), "--json")
        running.waiting_for(lambda: list(tmp_path.glob("batches/*/batch.json")) != [])
        began, most, used, pid = time.monotonic(), 0, 0.0, running.process.pid
        while not running.ended:
            most = max(most, resident_bytes(pid))
            used = max(used, cpu_seconds(pid))
            time.sleep(1)
        took = time.monotonic() - began
        done = running.finish()
        assert done.exit_status == 0, said(done)
        found = json.loads(done.text)["jobs"]
        assert len({one["run"] for one in found}) == JOBS == len(lab.finished_trials())
    least = max(sum(seconds) / BOARDS, *seconds)
    print(
        f"\nseed {SEED}: {JOBS} jobs on {BOARDS} boards in {took:.0f} s, at least {least:.0f} s:"
        f" {least / took:.1%}; {used / JOBS:.3f} CPU s a job; {most / 2**20:.0f} MiB;"
        f" load {os.getloadavg()}"
    )
    assert most < 400 * 2**20
    assert least / took >= 0.95
