"""What labctl writes: versioned models of facts, trials and runs. Schema only, no behaviour."""

from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.records.model import ModelIdentity, TensorMix
from labctl.records.run import ArtifactIdentity, GateRecord, RunEnd, RunRecord
from labctl.records.timing import SpanCheck, TimingRecord
from labctl.records.trial import Check, Failure, JobStatus, TrialRecord, TrialState

__all__ = [
    "ArtifactIdentity",
    "BoardFacts",
    "Check",
    "CpuFacts",
    "Execution",
    "Failure",
    "GateRecord",
    "JobStatus",
    "ModelIdentity",
    "RunEnd",
    "RunRecord",
    "SpanCheck",
    "TensorMix",
    "TimingRecord",
    "TrialRecord",
    "TrialState",
]
