"""Leases a second: taken, renewed and released, on SQLite and on PostgreSQL."""

import sys
from functools import partial
from pathlib import Path

import pytest
from interleaved import medians
from postgres_server import PostgresServer

from labctl.config.lab import Lab, LabFile
from labctl.state.state import LabState, lab_state

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]
CYCLES = 50


def cycles(state: LabState) -> None:
    """Take, renew and release boards in turn."""
    for number in range(CYCLES):
        lease = state.leases.acquire(f"rk{number}", purpose="bench")
        state.leases.renew(lease)
        state.leases.release(lease)


def test_leases_a_second(tmp_path: Path, postgres: PostgresServer) -> None:
    shared = Lab(lab=postgres.new_lab(), database=postgres.url, boards={})
    states = {
        "SQLite": lab_state(LabFile(tmp_path, Lab(boards={}))),
        "PostgreSQL": lab_state(LabFile(tmp_path, shared)),
    }
    work = {name: partial(cycles, state) for name, state in states.items()}
    found = medians(5, work)
    for name, seconds in found.items():
        print(
            f"\n{name}: {CYCLES / seconds:.0f} leases a second, each taken, renewed and released",
            file=sys.stderr,
        )
        assert states[name].leases.list() == []
