"""Engines: run inference programs and read their output."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.engines.base import (
        Engine,
        EngineKeys,
        EngineParameters,
        Inputs,
        Listen,
        MemoryNeed,
        RawOutput,
        Resolved,
        Roles,
        TokenCounts,
        Tool,
    )
    from labctl.engines.benchmark import COMPUTE_BENCHMARK
    from labctl.engines.outcome import diagnose_outcome
    from labctl.engines.program import ProgramSource
    from labctl.engines.progress import ProgramProgress, Seen
    from labctl.engines.registry import (
        check_engine,
        engine_names,
        engine_tasks,
        make_engine,
        make_server,
    )
    from labctl.engines.server import (
        Answer,
        Endpoint,
        Question,
        Reply,
        ServerEngine,
        ServerIdentity,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "base": "Engine EngineKeys EngineParameters Inputs Listen MemoryNeed TokenCounts"
            " RawOutput Roles Resolved Tool",
            "benchmark": "COMPUTE_BENCHMARK",
            "outcome": "diagnose_outcome",
            "program": "ProgramSource",
            "progress": "ProgramProgress Seen",
            "registry": "check_engine engine_names engine_tasks make_engine make_server",
            "server": "Answer Endpoint Question Reply ServerEngine ServerIdentity",
        },
    )

__all__ = [
    "COMPUTE_BENCHMARK",
    "Answer",
    "Endpoint",
    "Engine",
    "EngineKeys",
    "EngineParameters",
    "Inputs",
    "Listen",
    "MemoryNeed",
    "ProgramProgress",
    "ProgramSource",
    "Question",
    "RawOutput",
    "Reply",
    "Resolved",
    "Roles",
    "Seen",
    "ServerEngine",
    "ServerIdentity",
    "TokenCounts",
    "Tool",
    "check_engine",
    "diagnose_outcome",
    "engine_names",
    "engine_tasks",
    "make_engine",
    "make_server",
]
