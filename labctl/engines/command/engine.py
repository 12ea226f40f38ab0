"""Engine for programs that labctl does not know."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, JsonValue, StrictBool, create_model
from typing_extensions import override

from labctl.engines.base import (
    Engine,
    EngineKeys,
    EngineParameters,
    Inputs,
    MemoryNeed,
    ProgramSource,
    RawOutput,
    Resolved,
    Roles,
    Tool,
)
from labctl.engines.command.arguments import (
    MODEL,
    PROMPT,
    files_of,
    filled,
    parameters_of,
    placeholders,
)
from labctl.engines.command.keys import CommandKeys
from labctl.engines.command.matching import find_all
from labctl.engines.command.reading import read
from labctl.engines.command.schema import Reader, Success, TokenStream
from labctl.engines.outcome import diagnose_outcome
from labctl.engines.progress import RUNNING, ProgramProgress, Seen, generated
from labctl.engines.timeline import arrivals_check
from labctl.errors import ConfigError, LabctlError, ProgramFailed
from labctl.records.board import BoardFacts
from labctl.records.timing import TimingRecord
from labctl.records.trial import Check, JobStatus, ModelIdentity
from labctl.suggestions import listed

_SHOWN_BYTES = 2000
#: Parameters whose name is their role.
THREADS, TOKENS = "threads", "tokens"
GENERATED = "generated_tokens"


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character, which no program argument can contain")
    return text


_Value = StrictBool | int | float | Annotated[str, AfterValidator(_no_nul)]


class CommandParameters(EngineParameters):
    """One parameter for each name in braces, except the model, the prompt and files."""


class Command(Engine[CommandParameters]):
    """A program as the recipe describes it.

    Subclasses know the arguments and output of one program, and accept fewer keys.
    """

    name = "command"
    task = "run"
    product = "any"
    reads_gguf = False
    keys_model: ClassVar[type[EngineKeys]] = CommandKeys
    #: Without defaults: an unset parameter is left to the program.
    cache_types: ClassVar[Mapping[str, str | None]] = {"cache_type_k": None, "cache_type_v": None}

    def __init__(
        self,
        program: ProgramSource,
        arguments: Sequence[str],
        output: Sequence[Reader],
        tokens: TokenStream | None = None,
        success: Success | None = None,
    ):
        names = placeholders(arguments)
        count = tokens.count if tokens is not None else None
        self.program: ProgramSource = program
        self.arguments = tuple(arguments)
        self.output = tuple(output)
        self.tokens = tokens
        self.success = success or Success()
        self.shows_text = tokens is not None and tokens.stream == "stdout"
        self.uses_prompt = PROMPT in names
        self.files = tuple(files_of(names))
        #: Parameters with the number of generated tokens.
        self.counts = (TOKENS, *([count] if count else ()))
        self.parameters_model = self._model_of([*parameters_of(names), *self.counts[1:]])
        self.roles = self._roles(self.parameters_model.model_fields)

    @classmethod
    def chosen(cls, keys: CommandKeys) -> Self:
        """Make the engine of a recipe."""
        return cls(keys.program, keys.arguments, keys.output, keys.tokens, keys.success)

    def _roles(self, names: Collection[str]) -> Roles:
        """Return the roles of parameters by their usual names, and by the recipe's declarations."""
        tokens = next((name for name in reversed(self.counts) if name in names), None)
        return Roles(threads=THREADS if THREADS in names else None, tokens=tokens)

    def _model_of(self, names: Sequence[str]) -> type[CommandParameters]:
        return _parameters_model(tuple(names), self.counts)

    @override
    def resolve_defaults(
        self,
        parameters: CommandParameters,
        facts: BoardFacts,
        model: ModelIdentity,
        text_bytes: int | None = None,
    ) -> Resolved[CommandParameters]:
        """Leave no value open; add a note if tokens are visible but not counted."""
        counted = any(t.metric == GENERATED for r in self.output for t in r.values.values())
        if self.tokens is None or self.tokens.count or counted:
            return Resolved(parameters)
        note = (
            "no token is timed: name the parameter with their number (engine.tokens.count), or"
            f" read {GENERATED} from the output"
        )
        return Resolved(parameters, (note,))

    @override
    def memory(
        self, parameters: CommandParameters, model: ModelIdentity, text_bytes: int | None = None
    ) -> MemoryNeed | None:
        """Return None: the memory is unknown."""
        return None

    def tool(self, available: Collection[str], *, offered: Collection[str]) -> Tool:
        """Return the product's tool that the recipe names."""
        wanted = self.program.tool or ""
        if wanted in available:
            return Tool(wanted, self.task)
        if wanted in offered:
            hint = f"build it: labctl build … --tool {wanted}"
            raise ConfigError(f"the artifact has no {wanted}", hint=hint)
        raise ConfigError(
            f"{self.program.product} has no tool {wanted}",
            hint=f"it has {listed(sorted({*available, *offered}), joiner='and')}",
        )

    @override
    def command(self, tool: Tool, parameters: CommandParameters, inputs: Inputs) -> list[str]:
        """Return program and arguments; an inserted value stays within its argument."""
        values = {name: _word(value) for name, value in parameters.model_dump().items()}
        values |= {f"file:{name}": path for name, path in inputs.files.items()}
        if inputs.model is not None:
            values[MODEL] = inputs.model
        if inputs.prompt is not None:
            values[PROMPT] = inputs.prompt
        return [inputs.program, *filled(self.arguments, values)]

    def comparability(self, tool: Tool, parameters: CommandParameters) -> dict[str, JsonValue]:
        """Return the program, the arguments as in the recipe, and every parameter."""
        common = super().comparability(tool, parameters)
        return {**common, "program": _name(self.program), "arguments": list(self.arguments)}

    def diagnose(self, job: JobStatus, raw: RawOutput) -> LabctlError | None:
        """Check the exit status and the patterns of ``success`` in the recipe."""
        name = _name(self.program)
        tail = (raw.stdout[-_SHOWN_BYTES:] + b"\n" + raw.stderr[-_SHOWN_BYTES:]).decode(
            errors="replace"
        )
        good = job.outcome == "exited" and job.exit_status in self.success.exit_status
        if not good:
            return diagnose_outcome(job, program=name, output_tail=tail.strip()) or ProgramFailed(
                f"{name} ended with status {job.exit_status}", details=tail.strip() or None
            )
        printed = raw.stdout + b"\n" + raw.stderr
        patterns = [p for p in (self.success.refuse, self.success.require) if p is not None]
        found = dict(
            zip(patterns, find_all([(pattern, printed) for pattern in patterns]), strict=True)
        )
        if self.success.refuse is not None and found[self.success.refuse]:
            return ProgramFailed(
                f"{name} printed the recipe's failure pattern: {self.success.refuse!r}",
                details=tail.strip() or None,
            )
        if self.success.require is not None and not found[self.success.require]:
            return ProgramFailed(
                f"{name} did not print the recipe's success pattern: {self.success.require!r}",
                details=tail.strip() or None,
            )
        return None

    @override
    def progress(self, seen: Seen, parameters: CommandParameters) -> ProgramProgress:
        """Return the number of tokens, if they are visible."""
        if self.tokens is None:
            return super().progress(seen, parameters)
        stream = seen.stdout if self.tokens.stream == "stdout" else seen.stderr
        count = stream.lines if self.tokens.each == "line" else stream.pieces
        return generated(stream, count, self._asked(parameters), RUNNING)

    @override
    def parse(self, raw: RawOutput, parameters: CommandParameters) -> TimingRecord:
        """Return the values that the recipe's readers find, and the times of visible tokens."""
        count = self.tokens.count if self.tokens is not None else None
        return read(
            raw,
            self.output,
            self.tokens,
            expected=getattr(parameters, count) if count else None,
            form=f"{self.name} {self.task}",
        )

    @override
    def answer(self, raw: RawOutput) -> bytes:
        """Return all that it printed."""
        return raw.stdout

    def checks(
        self, timing_record: TimingRecord, parameters: CommandParameters
    ) -> tuple[Check, ...]:
        """Check the number of tokens, if reported, and that each token was seen alone."""
        found = []
        asked, made = self._asked(parameters), timing_record.generated_tokens
        if timing_record.counted_by == "program" and asked is not None:
            detail = f"{made} of {asked} generated"
            found.append(Check(name=TOKENS, ok=made == asked, detail=detail))
        if timing_record.arrivals is not None:
            if made is None:
                detail = "the number of generated tokens is unknown, so no token was timed"
                found.append(Check(name=TOKENS, ok=None, detail=detail))
            else:
                found.append(arrivals_check(timing_record))
        return tuple(found)

    def _asked(self, parameters: CommandParameters) -> int | None:
        asked = (getattr(parameters, name, None) for name in reversed(self.counts))
        return next((number for number in asked if number is not None), None)


def _name(program: ProgramSource) -> str:
    if program.product is not None:
        return f"{program.product} {program.tool}"
    return program.board or str(program.file)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@lru_cache(maxsize=64)
def _parameters_model(names: tuple[str, ...], counts: tuple[str, ...]) -> type[CommandParameters]:
    """Make a class, cached: it is slower than reading a recipe, and a batch has thousands."""
    fields: dict[str, Any] = dict.fromkeys(names, (_Value, ...))
    fields |= {name: (Annotated[int, Field(ge=1)], ...) for name in counts if name in fields}
    return create_model("CommandParameters", __base__=CommandParameters, **fields)
