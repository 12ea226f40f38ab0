"""The fake server's engine, and labs that have it."""

import sys
from collections.abc import Collection
from pathlib import Path

import fake_server
from third_party import write_package

from labctl.engines.base import (
    EngineParameters,
    Inputs,
    MemoryNeed,
    ProgramSource,
    RawOutput,
    Resolved,
    Tool,
)
from labctl.engines.outcome import diagnose_outcome
from labctl.engines.server import Answer, Endpoint, Question, ServerEngine, ServerIdentity
from labctl.errors import LabctlError, OutputNotUnderstood
from labctl.records.board import BoardFacts
from labctl.records.trial import JobStatus, ModelIdentity

TOOL = Tool("shouter", "only")


class ShouterParameters(EngineParameters):
    load: float = 0.0
    #: Of memory that the kernel cannot drop; None: nothing is known of it.
    anonymous_bytes: int | None = None
    die_on_load: int | None = None
    stubborn: bool = False


class Shouter(ServerEngine[ShouterParameters]):
    """The fake server's engine."""

    name = "shouter"
    task = "serve"
    product = "any"
    parameters_model = ShouterParameters
    #: ``tools/shouter`` of the lab; without a lab, the test's own words start it.
    program = ProgramSource(file="tools/shouter")

    def resolve_defaults(
        self,
        parameters: ShouterParameters,
        facts: BoardFacts,
        model: ModelIdentity,
        text_bytes: int | None = None,
    ) -> Resolved[ShouterParameters]:
        return Resolved(parameters)

    def memory(
        self, parameters: ShouterParameters, model: ModelIdentity, text_bytes: int | None = None
    ) -> MemoryNeed | None:
        count = parameters.anonymous_bytes
        return None if count is None else MemoryNeed(0, 0, count, 0)

    def tool(self, available: Collection[str], *, offered: Collection[str]) -> Tool:
        return TOOL

    def command(self, tool: Tool, parameters: ShouterParameters, inputs: Inputs) -> list[str]:
        assert inputs.listen is not None
        words = [inputs.program, *inputs.files.values()]
        words += ["--port", str(inputs.listen.port), "--name", inputs.listen.name]
        words += ["--load", str(parameters.load)]
        if parameters.die_on_load is not None:
            words += ["--die-on-load", str(parameters.die_on_load)]
        return [*words, "--stubborn"] if parameters.stubborn else words

    def diagnose(self, job: JobStatus, raw: RawOutput) -> LabctlError | None:
        return diagnose_outcome(job, program="shouter", output_tail=raw.stderr.decode())

    def is_ready(self, server: Endpoint) -> bool:
        reply = server.get("/ready")
        if reply.status == 200 and reply.json()["name"] != server.name:
            raise OutputNotUnderstood(f"another server answers at {server.address}")
        return reply.status == 200

    def identify(self, server: Endpoint) -> ServerIdentity:
        return ServerIdentity("shouter 1.0", "{{ shout }}")

    def ask(self, server: Endpoint, question: Question) -> Answer:
        text = server.post("/say", {"prompt": question.prompt}).json()["text"]
        return Answer(text, len(text), None, "limit")


ENGINES = (Shouter,)


def install_shouter(folder: Path) -> Path:
    """A folder for ``sys.path`` whose package offers the engine ``shouter``."""
    write_package(folder, "shouter-engine", "from shouter import ENGINES\n", name="shouter")
    return folder


def give_shouter(lab: Path) -> None:
    """Put the fake server's program into a lab."""
    program = lab / "tools" / "shouter"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {fake_server.__file__} "$@"\n')
    program.chmod(0o755)
