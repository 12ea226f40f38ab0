"""A lab host in a process of its own, with short times: FOLDER HOST SECONDS BOARD..."""

import sys
from pathlib import Path

from labctl.cli.lab import connect_board
from labctl.config.lab import find_lab
from labctl.errors import LabctlError
from labctl.farm import queue_engine, worker
from labctl.farm.host_setup import host_worker
from labctl.results.gates import leave_open
from labctl.state import jobs, leases
from labctl.transport.registry import TRANSPORTS


def main() -> None:
    """Serve the boards until a signal comes."""
    folder, host, seconds, *boards = sys.argv[1:]
    jobs.JOB_SECONDS = leases.LEASE_SECONDS = float(seconds)
    queue_engine.STALL_SECONDS = worker.STALL_SECONDS = float(seconds)
    worker.AWAY_SECONDS = 1.0

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    lab = find_lab(Path(folder), TRANSPORTS)
    try:
        host_worker(lab, host, boards, connect=connect_board, compare=leave_open, note=say).run()
    except LabctlError as error:
        say(f"error: {error.message}")
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
