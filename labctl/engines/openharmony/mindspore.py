"""MindSpore Lite: the demo from its documentation, and its benchmark tool.

The demo prints each output tensor and its first values: ``Tensor name: NAME, tensor size is BYTES
,elements num: N.``, ``output data is:``, then the values. It measures no time. The benchmark tool
prints ``Model = M, NumThreads = N, MinRunTime = X ms, MaxRuntime = Y ms, AvgRunTime = Z ms``
(``benchmark_unified_api.cc`` in ``mindspore/lite/tools/benchmark``), but no single times.
"""

import re
from collections.abc import Sequence
from statistics import median
from typing import ClassVar, Self

from pydantic import Field
from typing_extensions import override

from labctl.engines.base import EngineKeys, ProgramSource, RawOutput, Resolved
from labctl.engines.command import Command, CommandParameters
from labctl.engines.command.keys import ProgramKeys
from labctl.engines.command.schema import Reader
from labctl.errors import ConfigError, LabctlError, OutputNotUnderstood, ProgramFailed
from labctl.records.board import BoardFacts
from labctl.records.timing import Measure, TimingRecord
from labctl.records.trial import JobStatus, ModelIdentity

#: The demo shows at least this number of values of a larger tensor.
_LEAST_SHOWN = 50
_FLOAT_BYTES = 4
_FIRST_MINIMUM_NS = 1_000_000_000
_TENSOR = re.compile(
    r"^Tensor name: (?P<name>[^\n]{1,500}?), tensor size is (?P<bytes>[0-9]{1,15}) ?, ?"
    r"elements num: (?P<count>[0-9]{1,15})\.?[ \t]{0,9}\r?\n"
    r"output data is:[ \t]{0,9}\r?\n(?P<values>[^\n]*)",
    re.MULTILINE,
)
#: A number as ``printf`` writes it with ``%f``, ``%e`` or ``%g``.
_VALUE = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?")
_NOT_FINITE = re.compile(r"-?(?:nan(?:\(\w{0,20}\))?|inf(?:inity)?)", re.IGNORECASE)
_FAILURE = re.compile(
    rb"OH_AI_[A-Za-z]{1,60} failed|[Ii]nference error|_model_\.Build failed", re.ASCII
)
#: Maximum number of characters shown around a failure.
_AROUND = 200
_RUN = r"(?P<%s>[0-9]+(?:\.[0-9]+)?) ms"


class _MindSpore(Command):
    """Common part of both programs."""

    name = "mindspore_lite"
    keys_model: ClassVar[type[EngineKeys]] = ProgramKeys
    argument_template: ClassVar[tuple[str, ...]]
    readers: ClassVar[tuple[Reader, ...]] = ()

    @classmethod
    def chosen(cls, keys: ProgramKeys) -> Self:
        """Make the engine of a recipe."""
        return cls.of(keys.program)

    @classmethod
    def of(cls, program: ProgramSource) -> Self:
        """Return the engine of a program."""
        return cls(program, cls.argument_template, cls.readers)

    def diagnose(self, job: JobStatus, raw: RawOutput) -> LabctlError | None:
        """Return a failure that the program reports, with any exit status."""
        printed = raw.stdout + b"\n" + raw.stderr
        found = _FAILURE.search(printed)
        if found is None or job.outcome != "exited":
            return super().diagnose(job, raw)
        return ProgramFailed(
            f"MindSpore Lite failed: {_line_around(printed, *found.span())}",
            hint="the model must be an .ms file for this version of MindSpore Lite",
            details=printed[-2000:].decode(errors="replace"),
        )


def _line_around(printed: bytes, start: int, end: int) -> str:
    before = printed[max(0, start - _AROUND) : start].rpartition(b"\n")[2]
    after = printed[end : end + _AROUND].partition(b"\n")[0]
    return (before + printed[start:end] + after).decode(errors="replace").strip()


class MindSporeDemo(_MindSpore):
    """The demo: one inference, and its result."""

    task = "demo"
    argument_template = ("{model}",)

    @override
    def parse(self, raw: RawOutput, parameters: CommandParameters) -> TimingRecord:
        """Parse each output tensor as a measure with its shown values."""
        text = raw.stdout.decode(errors="replace")
        found = list(_TENSOR.finditer(text))
        if not found or len(found) != text.count("Tensor name:"):
            raise OutputNotUnderstood(
                "the output is not from MindSpore Lite's demo; expected 'Tensor name: …,"
                " tensor size is …, elements num: …' and 'output data is:'",
                details=text[-2000:] or None,
            )
        return TimingRecord(
            perf_format="mindspore_lite demo", measures=tuple(_tensor(match) for match in found)
        )


def _tensor(match: "re.Match[str]") -> Measure:
    name, size, count = match["name"], int(match["bytes"]), int(match["count"])
    words = match["values"].split()
    strange = [word for word in words if _VALUE.fullmatch(word) is None]
    if strange and all(_NOT_FINITE.fullmatch(word) for word in strange):
        raise OutputNotUnderstood(
            f"tensor {name} has {len(strange)} values of {len(words)} that are not finite numbers,"
            f" {strange[0]} for instance: the model computed nonsense",
            hint="it may need another input, or another precision",
        )
    if strange:
        raise OutputNotUnderstood(f"tensor {name}: {strange[0][:80]!r} is not a number")
    values = tuple(float(word) for word in words)
    if size != count * _FLOAT_BYTES:
        raise OutputNotUnderstood(
            f"tensor {name}: {size} bytes for {count} elements; the demo prints 32-bit floats"
        )
    if not min(count, _LEAST_SHOWN) <= len(values) <= count or not values:
        raise OutputNotUnderstood(f"tensor {name}: {len(values)} values of {count} elements")
    return Measure(name=f"tensor {name}", unit="1", values=values, value=median(values))


class MindSporeBenchmarkParameters(CommandParameters):
    """Parameters of the benchmark tool."""

    loops: int = Field(10, ge=1, le=1_000_000, description="timed inferences")
    warm_up_loops: int = Field(3, ge=0, le=1000, description="untimed inferences before them")
    threads: int | None = Field(
        None, ge=1, le=512, description="CPU threads; default: one for each core of the board"
    )


class MindSporeBenchmark(_MindSpore):
    """The benchmark tool: the time of an inference."""

    task = "benchmark"
    argument_template = (
        "--modelFile={model}",
        "--loopCount={loops}",
        "--warmUpLoopCount={warm_up_loops}",
        "--numThreads={threads}",
    )
    readers = (
        Reader.model_validate(
            {
                "pattern": r"^PrepareTime = (?P<prepare>[0-9]+(?:\.[0-9]+)?) ms",
                "optional": True,
                "values": {"prepare": {"metric": "load", "unit": "ms"}},
            }
        ),
        Reader.model_validate(
            {
                "pattern": r"^Model = [^\n]+, NumThreads = (?P<threads>[0-9]+), MinRunTime = "
                + _RUN % "least" + ", MaxRuntime = " + _RUN % "most"
                + ", AvgRunTime = " + _RUN % "mean",
                "values": {
                    "threads": {"metric": "threads", "unit": "number"},
                    "least": {"metric": "inference_min", "unit": "ms"},
                    "most": {"metric": "inference_max", "unit": "ms"},
                    "mean": {"metric": "inference_mean", "unit": "ms"},
                },
            }
        ),
    )  # fmt: skip

    @override
    def _model_of(self, names: Sequence[str]) -> type[CommandParameters]:
        return MindSporeBenchmarkParameters

    @override
    def resolve_defaults(
        self,
        parameters: CommandParameters,
        facts: BoardFacts,
        model: ModelIdentity,
        text_bytes: int | None = None,
    ) -> Resolved[CommandParameters]:
        """Use one thread for each core."""
        assert isinstance(parameters, MindSporeBenchmarkParameters)
        if parameters.threads is not None:
            return Resolved(parameters)
        if not facts.cores:
            raise ConfigError(
                "the board does not report its cores", hint="set parameters.threads in the recipe"
            )
        return Resolved(parameters.model_copy(update={"threads": facts.cores}))

    @override
    def parse(self, raw: RawOutput, parameters: CommandParameters) -> TimingRecord:
        """Parse the shortest, mean and longest time of an inference, and compare them."""
        assert isinstance(parameters, MindSporeBenchmarkParameters)
        timing = super().parse(raw, parameters)
        values = {measure.name: measure.value for measure in timing.measures}
        least, mean, most = (values[f"inference_{name}"] for name in ("min", "mean", "max"))
        if not least <= mean <= most:
            raise OutputNotUnderstood(f"a mean of {mean} ns is not between {least} and {most} ns")
        if parameters.threads is not None and values["threads"] != parameters.threads:
            raise OutputNotUnderstood(
                f"{parameters.threads} threads were requested, it used {values['threads']:g}"
            )
        # The tool's minimum starts at 1 s, so it is wrong if all inferences are slower.
        left_out = {"threads"} | ({"inference_min"} if least == _FIRST_MINIMUM_NS else set())
        kept = tuple(measure for measure in timing.measures if measure.name not in left_out)
        return timing.model_copy(update={"measures": kept})
