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
        Passes,
        RawOutput,
        Roles,
        Settled,
        Tool,
    )
    from labctl.engines.benchmark import COMPUTE_BENCHMARK
    from labctl.engines.outcome import diagnose_outcome
    from labctl.engines.program import ProgramSource
    from labctl.engines.progress import Headway, Seen
    from labctl.engines.registry import (
        check_engine,
        engine_names,
        engine_tasks,
        make_engine,
        make_server,
    )
    from labctl.engines.server import Answer, Endpoint, Question, Reply, ServerEngine
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "base": "Engine EngineKeys EngineParameters Inputs Listen MemoryNeed Passes"
            " RawOutput Roles Settled Tool",
            "benchmark": "COMPUTE_BENCHMARK",
            "outcome": "diagnose_outcome",
            "program": "ProgramSource",
            "progress": "Headway Seen",
            "registry": "check_engine engine_names engine_tasks make_engine make_server",
            "server": "Answer Endpoint Question Reply ServerEngine",
        },
    )

__all__ = [
    "COMPUTE_BENCHMARK",
    "Answer",
    "Endpoint",
    "Engine",
    "EngineKeys",
    "EngineParameters",
    "Headway",
    "Inputs",
    "Listen",
    "MemoryNeed",
    "Passes",
    "ProgramSource",
    "Question",
    "RawOutput",
    "Reply",
    "Roles",
    "Seen",
    "ServerEngine",
    "Settled",
    "Tool",
    "check_engine",
    "diagnose_outcome",
    "engine_names",
    "engine_tasks",
    "make_engine",
    "make_server",
]
