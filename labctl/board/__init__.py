"""One board: its facts, its store of files, its agent, its lease."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.board.agent import LINK_LOSSES, BoardAgent
    from labctl.board.facts import probe
    from labctl.board.job import JobProgress, JobSpec, JobState, Started
    from labctl.board.lease import ALIVE_SECONDS, BoardLease, Fence, Lease, LeaseStatus
    from labctl.board.prune import (
        Holder,
        Inventory,
        PrunePolicy,
        Pruner,
        StoreEntry,
        Verified,
        choose,
        find,
    )
    from labctl.board.store import BoardStore, StoredObject
    from labctl.board.upload.client import ChunkedFile
    from labctl.board.upload.transfer import DeliveryOptions
    from labctl.board.workdir_check import Survey, survey
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "agent": "LINK_LOSSES BoardAgent",
            "facts": "probe",
            "job": "JobProgress JobSpec JobState Started",
            "lease": "ALIVE_SECONDS BoardLease Fence Lease LeaseStatus",
            "prune": "Holder Inventory PrunePolicy Pruner StoreEntry Verified choose find",
            "store": "BoardStore StoredObject",
            "upload.client": "ChunkedFile",
            "upload.transfer": "DeliveryOptions",
            "workdir_check": "Survey survey",
        },
    )

__all__ = [
    "ALIVE_SECONDS",
    "LINK_LOSSES",
    "BoardAgent",
    "BoardLease",
    "BoardStore",
    "ChunkedFile",
    "DeliveryOptions",
    "Fence",
    "Holder",
    "Inventory",
    "JobProgress",
    "JobSpec",
    "JobState",
    "Lease",
    "LeaseStatus",
    "PrunePolicy",
    "Pruner",
    "Started",
    "StoreEntry",
    "StoredObject",
    "Survey",
    "Verified",
    "choose",
    "find",
    "probe",
    "survey",
]
