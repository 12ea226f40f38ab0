"""One board: its facts, its store of files, its agent, its lease."""

from labctl.board.agent import LINK_LOSSES, BoardAgent
from labctl.board.facts import probe
from labctl.board.job import JobProgress, JobSpec, JobState, Started
from labctl.board.lease import BoardLease, Lease
from labctl.board.store import BoardStore, StoredObject

__all__ = [
    "LINK_LOSSES",
    "BoardAgent",
    "BoardLease",
    "BoardStore",
    "JobProgress",
    "JobSpec",
    "JobState",
    "Lease",
    "Started",
    "StoredObject",
    "probe",
]
