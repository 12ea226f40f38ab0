"""Parts of recipes: the source document, conditions, scheduling and the matrix.

``conditions``: required state of a board during a measurement. ``scheduling``: CPUs and priority of
the program. The combinations of the matrix are the variants.
"""

import itertools
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from labctl.config.set_values import apply_settings
from labctl.config.types import Duration, Line, Name, Size
from labctl.config.yaml.document import Document, StrictModel, refuse, refuse_all
from labctl.config.yaml.loader import Path as DocumentPath
from labctl.config.yaml.messages import path_text
from labctl.errors import ConfigError
from labctl.text_types import Word
from labctl.units import ranges


@dataclass
class _Origin:
    """File and folder of a recipe; recipes that differ only in these are equal."""

    document: Document | None = field(default=None, compare=False)


#: Purpose of a recipe: it measures times, asks questions, or loads a server.
Kind = Literal["timing", "evaluation", "load-test"]
#: Kind -> its noun, for people.
A_KIND: Mapping[Kind, str] = {
    "timing": "a timing run",
    "evaluation": "an evaluation",
    "load-test": "a load test",
}


class _RunRecord(Protocol):
    """Record of a run of any kind."""

    @property
    def id(self) -> str: ...
    @property
    def labctl_version(self) -> str: ...
    @property
    def recipe_resolved(self) -> Mapping[str, Any]: ...


class WrittenRecipe(StrictModel):
    """A recipe of any kind, with its source document."""

    kind: ClassVar[Kind]

    name: Name
    """Name of its runs."""
    description: Line | None = None
    """Description for people."""

    _origin: _Origin = PrivateAttr(default_factory=_Origin)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if problems := list(self.problems()):
            raise refuse_all(problems)
        return self

    @abstractmethod
    def problems(self) -> Iterable[tuple[DocumentPath, str]]:
        """Yield the keys that contradict other ones, each with a sentence."""

    @classmethod
    def read(
        cls,
        source: Path | Document,
        set_values: Sequence[str] = (),
        *,
        context: dict[str, Any] | None = None,
        check: Callable[[Self], Iterable[tuple[DocumentPath, str]]] = lambda _: (),
    ) -> Self:
        """Read the recipe in a file or a document, with ``key=value`` overrides applied.

        ``context`` is that of the validation; ``check`` yields what else is wrong with a recipe
        whose keys are valid. Raises ConfigError with a line for each problem.
        """
        document = source if isinstance(source, Document) else Document.read(source)
        check_kind(document, cls.kind)
        apply_settings(document, set_values, known=cls.model_fields)
        recipe = document.validated(cls, context=context)
        if problems := list(check(recipe)):
            raise document.refusal(problems)
        return recipe.written_in(document)

    @classmethod
    def of_run(cls, record: _RunRecord) -> Self:
        """Return the recipe of a run. Raises ConfigError if this labctl cannot read it."""
        try:
            return cls.model_validate(record.recipe_resolved)
        except ValidationError as error:
            raise ConfigError(
                f"this labctl cannot read the recipe of run {record.id}",
                hint=f"use the labctl that wrote it: {record.labctl_version}",
            ) from error

    @property
    def as_written(self) -> str | None:
        """Text of its file without the changes in ``settings``; None if it has no file."""
        return (self._origin.document.text if self._origin.document else None) or None

    @property
    def settings(self) -> tuple[str, ...]:
        """Changes of the recipe on the command line, as ``--set KEY=VALUE``."""
        document = self._origin.document if self.as_written else None
        return tuple(dict.fromkeys(document.overridden.values())) if document else ()

    def resolved(self) -> dict[str, Any]:
        """Return the recipe as it is run, with defaults, as JSON that the model can read."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def refusal(self, path: DocumentPath, problem: str) -> ConfigError:
        """Return the error for a key that cannot be satisfied, with its line if there is a file."""
        document = self._origin.document
        if document is None:
            return ConfigError(f"{path_text(path)}: {problem}")
        return document.refusal([(path, problem)])

    def written_in(self, document: Document) -> Self:
        """Remember the source document of the recipe; return the recipe."""
        self._origin.document = document
        return self


def recipe_kind(document: Document, default: Kind = "timing") -> Kind:
    """Return the kind of a recipe; ``default`` if it lacks the keys of all kinds."""
    keys = {*document.value} if isinstance(document.value, dict) else set[str]()
    if "engine" in keys:
        return "timing"
    if keys & {"dataset", "endpoints", "graders"}:
        return "evaluation"
    return "load-test" if "endpoint" in keys else default


def check_kind(document: Document, wanted: Kind) -> None:
    """Raise ConfigError for a recipe of another kind."""
    if (found := recipe_kind(document, wanted)) != wanted:
        raise ConfigError(
            f"{document.name} is a recipe of {A_KIND[found]}, not of {A_KIND[wanted]}",
            hint=f"run it with `labctl run {document.name}`",
        )


def check_bounds(low: float | None, high: float | None) -> None:
    """Refuse a gate without bounds, or whose ``min`` is above its ``max``."""
    if low is None and high is None:
        raise refuse("a gate needs min, max or both")
    if low is not None and high is not None and low > high:
        raise refuse(f"min {low:g} is above max {high:g}", "min")


#: The value of an engine's parameter.
Scalar: TypeAlias = bool | int | float | str


def _distinct(values: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    seen: set[tuple[type, Scalar]] = set()
    for index, value in enumerate(values):
        if (type(value), value) in seen:
            raise refuse("this value is given twice", index)
        seen.add((type(value), value))
    return values


Values = Annotated[
    tuple[Scalar, ...], Field(min_length=1, max_length=100), AfterValidator(_distinct)
]

MOST_VARIANTS = 1000
_LONGEST_SLUG = 80


@dataclass(frozen=True)
class Variant:
    """One combination.

    Args:
        slug: unique among the recipe's variants, even if case is ignored; a file name of ``a-z``,
            ``0-9``, ``.``, ``_`` and ``-``.
        model_key: key of the model in the recipe.
        parameters: the engine's parameters, fixed and from the matrix.
    """

    slug: str
    model_key: str
    parameters: Mapping[str, Scalar]


def expand(
    model_keys: Sequence[str],
    parameters: Mapping[str, Scalar],
    axes: Mapping[str, Sequence[Scalar]],
) -> list[Variant]:
    """Return all combinations; the last axis varies fastest, the model slowest."""
    taken: set[str] = set()
    variants = []
    for model in model_keys:
        for values in itertools.product(*axes.values()):
            chosen = dict(zip(axes, values, strict=True))
            slug = slug_of([model, *setting_words(chosen)], taken)
            variants.append(Variant(slug, model, {**parameters, **chosen}))
    return variants


def setting_words(chosen: Mapping[str, Scalar]) -> list[str]:
    """Return a word for each value: ``threads-3``, ``repack-false``."""
    return [
        f"{key}-{str(value).lower() if isinstance(value, bool) else value}"
        for key, value in chosen.items()
    ]


def slug_of(words: Iterable[str], taken: set[str]) -> str:
    """Return a new slug of words, and add it to ``taken``."""
    slug = next(s for s in _candidates("-".join(words)) if s not in taken)
    taken.add(slug)
    return slug


def _candidates(text: str) -> Iterator[str]:
    """Yield the text as a file name, then with numbers: different texts may give equal names."""
    slug = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-.")[:_LONGEST_SLUG] or "variant"
    yield slug
    for number in itertools.count(2):
        yield f"{slug}-{number}"


#: Default of the longest wait of a trial for a ready board.
DEFAULT_MAX_WAIT_SECONDS = 600.0
#: Programs without which nothing could restore the board.
_NEEDED = ("hdcd", "init")


def _not_needed(name: str) -> str:
    if name in _NEEDED:
        raise ValueError(f"labctl needs {name} to reach the board")
    return name


class Conditions(StrictModel):
    """Required state of a board; all changes are undone at the end."""

    strict: bool = False
    """Refuse to run when a condition cannot be met; by default that is recorded and shown."""
    governor: Word | None = None
    """The frequency governor of all CPUs, `performance` for instance."""
    frequency_mhz: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """One fixed frequency for all CPUs: the least and the most that they may run at."""
    memory_governor: Word | None = None
    """The frequency governor of the memory, `performance` for instance."""
    screen_off: bool = False
    """Switch the screen off; at the end it is switched on again if it was on."""
    stop_processes: Annotated[
        tuple[Annotated[Word, AfterValidator(_not_needed)], ...], Field(max_length=20)
    ] = ()
    """Programs to stop (SIGSTOP) during the measurement, by name; they continue afterwards
    (SIGCONT)."""
    max_start_temperature: Annotated[float, Field(ge=0, le=150)] | None = None
    """Highest temperature of any thermal zone when a trial starts, in degrees Celsius. If the value
    of a zone is not trusted, the zone is named, and the condition counts as unknown."""
    max_load: Annotated[float, Field(gt=0, le=1024)] | None = None
    """Number of CPUs that other programs may keep busy when a trial starts, 0.1 for instance."""
    min_free_memory: Size | None = None
    """Memory that must be available when a trial starts."""
    charging: bool | None = None
    """A phone's battery must be charging (true) or must not be (false) when a trial starts. A phone
    on USB charges until it is full."""
    max_wait: Duration | None = None
    """Longest wait of a trial for these four; 10 minutes by default. It counts against the
    recipe's `max_time`, and never uses the time that the trial itself needs."""
    drop_caches: bool = False
    """Empty the page cache before each trial, so that it loads from storage."""

    @property
    def changes(self) -> bool:
        """True if something on the board is changed and must be restored."""
        clocks = self.governor or self.frequency_mhz or self.memory_governor
        return bool(clocks or self.stop_processes or self.screen_off)

    @property
    def waits(self) -> bool:
        """True if a trial may have to wait for the board."""
        wanted = (self.max_start_temperature, self.max_load, self.min_free_memory, self.charging)
        return any(one is not None for one in wanted)


_PART = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_PATTERN = r"^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$"
#: Number of CPUs that the agent can address.
_MOST_CPUS = 1024


def cpu_numbers(text: str) -> frozenset[int]:
    """Return the CPUs of a kernel's list (``0-3,5``). Raises ValueError for other texts."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last >= _MOST_CPUS:
            raise ValueError(f"must be numbers of CPUs such as 0-3,5, found {text!r}")
        found.update(range(first, last + 1))
    return frozenset(found)


def _one_number(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


#: CPU numbers as kernels write them; kept in that form.
CpuList = Annotated[
    str,
    BeforeValidator(_one_number),
    AfterValidator(lambda text: ranges(cpu_numbers(text))),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": _PATTERN, "examples": ["0-3,5"]},
                {"type": "integer", "minimum": 0, "maximum": _MOST_CPUS - 1},
            ]
        }
    ),
]


#: Clusters of CPUs by their maximum frequency, resolved on each board.
CLUSTERS = ("big", "little")

#: The same, or the name of a cluster.
CpuChoice = Annotated[
    str,
    BeforeValidator(_one_number),
    AfterValidator(lambda text: text if text in CLUSTERS else ranges(cpu_numbers(text))),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": _PATTERN, "examples": ["0-3,5"]},
                {"enum": list(CLUSTERS)},
                {"type": "integer", "minimum": 0, "maximum": _MOST_CPUS - 1},
            ]
        }
    ),
]


class Scheduling(StrictModel):
    """CPUs and priority of the program on the board."""

    cpus: CpuChoice | None = None
    """CPUs that the program may use, by number, `4-7` for instance; or `little`, those with the
    lowest maximum frequency, or `big`, all others (all, if there is one kind); by default
    all that labctl may use. An engine that starts a thread for each core counts these."""
    nice: Annotated[int, Field(ge=-20, le=19)] | None = None
    """Its priority, added to labctl's own on the board: 19 gives way to everything else, below 0 is
    for root alone."""
