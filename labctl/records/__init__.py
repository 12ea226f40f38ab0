"""Records of labctl: versioned models of facts, trials and runs, and migration of older ones."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.records.base import (
        SCHEMA_VERSION,
        FileRecord,
        NewerRecord,
        read_record,
        written_version,
    )
    from labctl.records.board import BoardFacts, CpuFacts, Execution
    from labctl.records.energy import EnergyRecord
    from labctl.records.evaluation import (
        AccuracyRecord,
        DatasetRecord,
        EndpointRecord,
        EvaluationEnd,
        EvaluationRecord,
        FinishReason,
        GenerationRecord,
        GradeRecord,
        PromptRecord,
        QuestionRecord,
        SamplingRecord,
        TokenCounter,
        TruncationRecord,
        TruncationSlots,
    )
    from labctl.records.probe import (
        BoardProbe,
        ComputeRate,
        CpuClock,
        MemoryRate,
        Slowdown,
        StorageRate,
    )
    from labctl.records.run import (
        Annotations,
        ArtifactIdentity,
        GateRecord,
        JournalEntry,
        Origin,
        PlannedRecord,
        PlanRecord,
        RunEnd,
        RunRecord,
    )
    from labctl.records.serving import (
        LatencyLimits,
        LengthRange,
        RequestRecord,
        ServingRecord,
        StageRecord,
        WorkloadRecord,
    )
    from labctl.records.telemetry import (
        BoardState,
        ClockState,
        CoolingState,
        ResidentFile,
        StreamSoFar,
        TelemetrySample,
    )
    from labctl.records.timing import BenchTest, ClockCheck, Measure, SpanCheck, TimingRecord
    from labctl.records.trial import (
        Check,
        ConditionRecord,
        Failure,
        JobStatus,
        ModelIdentity,
        TelemetrySummary,
        TensorMix,
        TrialBound,
        TrialLimit,
        TrialPrediction,
        TrialRecord,
        TrialState,
        Workload,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "base": "FileRecord NewerRecord SCHEMA_VERSION read_record written_version",
            "board": "BoardFacts CpuFacts Execution",
            "energy": "EnergyRecord",
            "evaluation": "AccuracyRecord DatasetRecord EndpointRecord EvaluationEnd"
            " EvaluationRecord FinishReason GenerationRecord GradeRecord PromptRecord"
            " QuestionRecord SamplingRecord TokenCounter TruncationRecord TruncationSlots",
            "probe": "BoardProbe ComputeRate CpuClock MemoryRate Slowdown StorageRate",
            "run": "Annotations ArtifactIdentity GateRecord RunEnd RunRecord JournalEntry"
            " Origin PlannedRecord PlanRecord",
            "serving": "LatencyLimits LengthRange RequestRecord ServingRecord StageRecord"
            " WorkloadRecord",
            "telemetry": "StreamSoFar TelemetrySample BoardState ClockState CoolingState"
            " ResidentFile",
            "timing": "BenchTest ClockCheck Measure SpanCheck TimingRecord",
            "trial": "Check ConditionRecord Failure JobStatus ModelIdentity TelemetrySummary"
            " TensorMix TrialBound TrialLimit TrialPrediction TrialRecord TrialState Workload",
        },
    )

__all__ = [
    "SCHEMA_VERSION",
    "AccuracyRecord",
    "Annotations",
    "ArtifactIdentity",
    "BenchTest",
    "BoardFacts",
    "BoardProbe",
    "BoardState",
    "Check",
    "ClockCheck",
    "ClockState",
    "ComputeRate",
    "ConditionRecord",
    "CoolingState",
    "CpuClock",
    "CpuFacts",
    "DatasetRecord",
    "EndpointRecord",
    "EnergyRecord",
    "EvaluationEnd",
    "EvaluationRecord",
    "Execution",
    "Failure",
    "FileRecord",
    "FinishReason",
    "GateRecord",
    "GenerationRecord",
    "GradeRecord",
    "JobStatus",
    "JournalEntry",
    "LatencyLimits",
    "LengthRange",
    "Measure",
    "MemoryRate",
    "ModelIdentity",
    "NewerRecord",
    "Origin",
    "PlanRecord",
    "PlannedRecord",
    "PromptRecord",
    "QuestionRecord",
    "RequestRecord",
    "ResidentFile",
    "RunEnd",
    "RunRecord",
    "SamplingRecord",
    "ServingRecord",
    "Slowdown",
    "SpanCheck",
    "StageRecord",
    "StorageRate",
    "StreamSoFar",
    "TelemetrySample",
    "TelemetrySummary",
    "TensorMix",
    "TimingRecord",
    "TokenCounter",
    "TrialBound",
    "TrialLimit",
    "TrialPrediction",
    "TrialRecord",
    "TrialState",
    "TruncationRecord",
    "TruncationSlots",
    "Workload",
    "WorkloadRecord",
    "read_record",
    "written_version",
]
