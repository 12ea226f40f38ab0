"""The contract of an engine: run an inference program and read its output.

An engine knows programs and flags by version, and turns the raw files of a job into a
:class:`~labctl.records.TimingRecord`. It starts nothing, touches no board, and believes nothing:
what it cannot show from the raw files is ``None`` or an error.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from labctl.config.recipe import EngineChoice
from labctl.config.yaml.loader import Value
from labctl.config.yaml.messages import explain, path_text
from labctl.engines.program import ProgramSource
from labctl.engines.progress import ProgramProgress, Seen, printed
from labctl.errors import ConfigError, HostError, LabctlError
from labctl.records import BoardFacts, Check, JobStatus, ModelIdentity, TimingRecord, Workload

#: Name of a program that was built without a revision.
_UNTOLD = "unknown"
#: Bytes of text that a token stands for, about: words of English, two letters of Chinese.
TEXT_BYTES_PER_TOKEN = 4


class EngineParameters(BaseModel):
    """Base of what a recipe may set for an engine: immutable, strict, unknown keys refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )


P = TypeVar("P", bound=EngineParameters)


class EngineKeys(EngineChoice):
    """Base of the recipe's ``engine`` mapping: an engine adds its own keys."""

    model_config = ConfigDict(extra="forbid")


K = TypeVar("K", bound=EngineKeys)


@dataclass(frozen=True)
class Roles:
    """Names of the parameters that labctl plans, predicts and records by; None: there is none.

    ``threads``: CPU threads. ``tokens``: how many are generated; a plan may cut it. ``warm_up``:
    true for a pass of the program's own before it measures; a plan may leave it out. ``batch``:
    tokens of a prompt that go through the weights together. ``prompt_tokens``: length of a prompt
    that the program makes itself.
    """

    threads: str | None = None
    tokens: str | None = None
    warm_up: str | None = None
    batch: str | None = None
    prompt_tokens: str | None = None

    def names(self) -> tuple[str, ...]:
        """Return the parameters that have a role."""
        return tuple(name for name in vars(self).values() if name is not None)

    def workload(self, parameters: Mapping[str, object]) -> Workload:
        """Return what resolved parameters mean; what is not set, or no number, is None."""

        def whole(key: str | None) -> int | None:
            value = None if key is None else parameters.get(key)
            return value if isinstance(value, int) and not isinstance(value, bool) else None

        return Workload(
            threads=whole(self.threads),
            tokens=whole(self.tokens),
            batch=whole(self.batch),
            prompt_tokens=whole(self.prompt_tokens),
        )


@dataclass(frozen=True)
class Tool:
    """A program of an artifact, and which set of flags it understands."""

    name: str
    profile: str


@dataclass(frozen=True)
class Resolved(Generic[P]):
    """Parameters in which nothing is left to chance, and what labctl decided by itself."""

    parameters: P
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MemoryNeed:
    """Memory of a run in bytes; ``None`` if the model does not say.

    Mapped weights are pages of the file: the kernel may drop them and must read them again. Those
    that a generation hardly reads do not count. Repacked ones are copies, or weights that were
    never mapped but read. Everything else is anonymous memory, without which the program fails.
    """

    mapped_bytes: int
    repacked_bytes: int
    kv_bytes: int | None
    compute_bytes: int | None
    #: What each position that is in use adds to what a token reads, in the cache's own types.
    kv_bytes_per_position: int | None = None
    #: What the program keeps besides: its vocabulary, graphs, buffers of output.
    program_bytes: int = 0

    @property
    def anonymous_bytes(self) -> int:
        """Bytes that cannot be dropped, as far as they are known."""
        buffers = (self.kv_bytes or 0) + (self.compute_bytes or 0)
        return self.repacked_bytes + buffers + self.program_bytes

    @property
    def total_bytes(self) -> int:
        """All of it at once, as while copies are being made; as far as it is known."""
        return self.mapped_bytes + self.anonymous_bytes

    @property
    def resident_bytes(self) -> int:
        """Bytes that must stay in memory so that no weight is read twice, as far as they are known.

        The pages of weights that were copied are not needed again.
        """
        return max(0, self.mapped_bytes - self.repacked_bytes) + self.anonymous_bytes


@dataclass(frozen=True)
class TokenCounts:
    """Minimum work of one run: it reads ``prompts`` texts of ``prompt_tokens`` each, and generates
    ``tokens`` one after the other.
    """

    prompts: int
    prompt_tokens: int
    tokens: int
    #: Of ``tokens`` those before the first one is printed; None: none is printed as it is made.
    before_first: int | None = None


@dataclass(frozen=True)
class Listen:
    """Port of a server on the loopback of its machine, and the server's name.

    The name is of this start alone: no answer of another server can be taken for its own.
    """

    port: int
    name: str


@dataclass(frozen=True)
class Inputs:
    """Inputs of a command: paths on the board, the prompt itself, the address to listen on.

    ``None``, or a missing file, is what the engine does not use.
    """

    program: str
    model: str | None = None
    prompt: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    listen: Listen | None = None


@dataclass(frozen=True)
class RawOutput:
    """Files that a job left in its directory."""

    stdout: bytes
    stderr: bytes
    timeline: bytes

    @classmethod
    def read(cls, directory: Path) -> "RawOutput":
        """Read ``stdout``, ``stderr`` and ``timeline`` as pulled. Raises HostError."""
        try:
            return cls(
                *((directory / name).read_bytes() for name in ("stdout", "stderr", "timeline"))
            )
        except OSError as error:
            raise HostError(f"cannot read {error.filename}: {error.strerror}") from error


class EngineBase(ABC, Generic[P]):
    """One thing that one kind of inference program is asked for.

    What programs that end (:class:`Engine`) and servers
    (:class:`~labctl.engines.server.ServerEngine`) have in common.
    """

    #: Its name in recipes, and what it is asked for.
    name: ClassVar[str]
    task: ClassVar[str]
    #: The product whose artifacts hold its programs.
    product: ClassVar[str]
    #: The recipe's ``engine``, read.
    keys_model: ClassVar[type[EngineKeys]] = EngineKeys
    parameters_model: type[P]
    #: What its parameters mean.
    roles: Roles = Roles()
    #: Further parameters that say what is done or shown, and not how fast a token is.
    workload_parameters: ClassVar[tuple[str, ...]] = ()
    #: Parameters with the types of the KV cache, with that where one is not set; empty: unknown.
    cache_types: ClassVar[Mapping[str, str]] = {}
    #: Where its program comes from; None: a tool of its product.
    program: ProgramSource | None = None
    #: Whether its models have to be GGUF files.
    reads_gguf: ClassVar[bool] = True
    #: Whether it continues a prompt; a prompt that nobody reads is refused.
    uses_prompt: bool = False
    #: The recipe's files that it reads, by name.
    files: tuple[str, ...] = ()

    @classmethod
    def chosen(cls, keys: Any) -> Self:  # noqa: ARG003 - of engines with keys of their own
        """Make the engine for a recipe's ``engine``, an instance of ``keys_model``."""
        return cls()

    def parameters(self, values: Mapping[str, Value]) -> P:
        """Check a recipe's parameters.

        Raises ConfigError that names each wrong key, what was expected, and the nearest valid name.
        """
        document: dict[str, Value] = dict(values)
        try:
            return self.parameters_model.model_validate(document)
        except ValidationError as error:
            problems = [
                f"{path_text(('parameters', *path))}: {sentence}"
                for path, sentence, _ in explain(error.errors(), document, self.parameters_model)
            ]
            raise ConfigError("; ".join(problems)) from error

    @abstractmethod
    def resolve_defaults(
        self,
        parameters: P,
        facts: BoardFacts,
        model: ModelIdentity,
        text_bytes: int | None = None,
    ) -> Resolved[P]:
        """Decide what the recipe left open from what the board, the model and the text are."""

    @abstractmethod
    def memory(
        self, parameters: P, model: ModelIdentity, text_bytes: int | None = None
    ) -> MemoryNeed | None:
        """Return the memory of a run with resolved parameters; None if it is unknown.

        ``text_bytes``: of the prompt, or of the text that it reads; None: as long as may be.
        """

    @abstractmethod
    def tool(self, available: Collection[str], *, offered: Collection[str]) -> Tool:
        """Choose the program and its flags.

        Args:
            available: the programs that an artifact holds.
            offered: all programs that its version can be built with.

        Raises ConfigError when none of them serves.
        """

    @abstractmethod
    def command(self, tool: Tool, parameters: P, inputs: Inputs) -> list[str]:
        """Return the argument vector for a board. Raises ConfigError if the program cannot do
        it.
        """

    def comparability(self, tool: Tool, parameters: P) -> dict[str, JsonValue]:
        """Return what must be equal for two records to be comparable: program and every
        parameter.
        """
        return {
            "engine": self.name,
            "intent": self.task,
            "tool": tool.name,
            "dialect": tool.profile,
            **parameters.model_dump(mode="json"),
        }

    def locks_memory(self, parameters: P) -> bool:  # noqa: ARG002 - nothing is locked
        """Return True if its program is to lock memory, for which it needs the permission."""
        return False

    @abstractmethod
    def diagnose(self, job: JobStatus, raw: RawOutput) -> LabctlError | None:
        """Return why a job failed; ``None`` if it succeeded."""


class Engine(EngineBase[P]):
    """A program that ends by itself, and is measured from its beginning to its end."""

    def token_counts(self, parameters: P, text_bytes: int) -> TokenCounts | None:  # noqa: ARG002 - of others
        """Return the work of a run with resolved parameters; None if it is unknown.

        ``text_bytes`` is the length of the prompt, or of the text that it reads.
        """
        return None

    def progress(self, seen: Seen, parameters: P) -> ProgramProgress:  # noqa: ARG002 - others look at them
        """Return the progress of a run, for display only."""
        return printed(seen)

    @abstractmethod
    def parse(self, raw: RawOutput, parameters: P) -> TimingRecord:
        """Read the output of a job that ended well. Raises OutputNotUnderstood."""

    @abstractmethod
    def checks(self, timing: TimingRecord, parameters: P) -> tuple[Check, ...]:
        """Return the checks that the numbers of a result allow."""

    def build_check(self, timing: TimingRecord, revision: str | None) -> Check | None:
        """Check that the program reports the revision that was built; None if it reports none.

        ``revision``: of the source that the artifact was built from, where there is an artifact.
        """
        if timing.program_version is None:
            return None
        stated = timing.program_version.partition(" ")[0]
        comparable = stated != _UNTOLD and revision is not None
        return Check(
            name="build",
            ok=stated == revision if comparable else None,
            detail=f"the program says {stated}, the artifact's source is {revision or 'not known'}",
        )
