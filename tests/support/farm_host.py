"""A lab host of a simulated farm: its worker, whose jobs only take time. Run as a program.

``farm_host.py ROOT HOST LEASE_SECONDS BOARD...``; it ends at once when its input does: with the
test that started it, even where that was killed.
"""

import os
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread

from labctl import interrupts
from labctl.config.lab import find_lab
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.queue_engine import QueueEngine
from labctl.farm.worker import Worker
from labctl.state.state import lab_state
from labctl.transport.built_in import TRANSPORTS


class Sleeping:
    """An executor whose jobs take some time, and succeed."""

    def run(self, job: FarmJob, board: str) -> JobResult:
        """Take some time."""
        del board
        time.sleep(random.uniform(0.1, 0.5))
        return JobResult(0, run=f"run-of-{job.id}")

    def stop(self) -> None:
        """Let the jobs come to their end: that is soon."""


def main() -> None:
    """Serve until a signal."""
    root, host, lease_seconds, *boards = sys.argv[1:]
    lab = find_lab(Path(root), TRANSPORTS)
    state = lab_state(replace(lab, lease_seconds=float(lease_seconds)))
    worker = Worker(state, host, boards, Sleeping(), QueueEngine(lab), look_seconds=0.5)
    interrupts.begin()
    worker.run()


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    Thread(target=_end_with_input, daemon=True).start()
    interrupts.install()
    main()
