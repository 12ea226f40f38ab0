"""Parts of an evaluation's recipe: its models, endpoints, budgets, stop rule and gates."""

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from labctl.config.lab import Board, LabFile
from labctl.config.models import KINDS, ModelSource, one_of_kinds
from labctl.config.recipe_parts import Scalar, WrittenRecipe, check_bounds
from labctl.config.types import Duration, Line, Name, Sha256, Share
from labctl.config.yaml.document import StrictModel, refuse
from labctl.evaluation.datasets.source import DatasetSource
from labctl.suggestions import unknown
from labctl.text_types import HostPath, Word

UNLIMITED = "unlimited"
#: Time (s) for a server to be ready: it may read gigabytes from a slow card, and warm up.
READY_SECONDS = 1800.0
MOST_BUDGETS = 100


def _parse_tokens(value: object) -> object:
    if value == UNLIMITED:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
        raise ValueError(f"must be a whole number of tokens (1 or more) or {UNLIMITED}")
    return value


def _parse_seconds(value: object) -> object:
    if value == UNLIMITED:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 10**9:
        raise ValueError(f"must be a number of seconds above 0, or {UNLIMITED}")
    return float(value)


def _or_unlimited(kind: str) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": kind, "minimum": 0}, {"const": UNLIMITED}]})


_AS_WORD = PlainSerializer(lambda value: UNLIMITED if value is None else value)
#: A limit of tokens; None = unlimited.
TokenBudget = Annotated[
    int | None, BeforeValidator(_parse_tokens), _AS_WORD, _or_unlimited("integer")
]
#: A limit in s; None = unlimited.
TimeBudget = Annotated[
    float | None, BeforeValidator(_parse_seconds), _AS_WORD, _or_unlimited("number")
]


def _ascending(values: tuple[float | None, ...]) -> tuple[float | None, ...]:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise refuse("this budget is given twice", index)
    return tuple(sorted(values, key=lambda one: (one is None, one)))


TokenBudgets = Annotated[
    tuple[TokenBudget, ...],
    Field(min_length=1, max_length=MOST_BUDGETS),
    AfterValidator(_ascending),
]
TimeBudgets = Annotated[
    tuple[TimeBudget, ...],
    Field(min_length=1, max_length=MOST_BUDGETS),
    AfterValidator(_ascending),
]


class Budgets(StrictModel):
    """Limits of the generated tokens: the same for all models, or the same *time* for all."""

    tokens: TokenBudgets | None = None
    """Limits in tokens, and `unlimited`. With `equal_to` they are that model's."""
    seconds: TimeBudgets | None = None
    """Limits of time in s, and `unlimited`: each model may generate the tokens that it can in that
    time."""
    equal_to: Name | None = None
    """With `tokens`: the model whose limits they are. Every other model may generate the tokens
    that it can in the same time."""
    time_per_token: dict[Name, Duration] = Field(default_factory=dict)
    """Time per token of each model, `18.18s` for instance, for `seconds` and `equal_to`."""
    timing_run: Line | None = None
    """Instead of time_per_token: a timing run (`labctl run`) that measured these models."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.tokens is None) == (self.seconds is None):
            raise refuse(
                "budgets must be a list of tokens, or have exactly one of tokens and seconds"
            )
        if self.equal_to is not None and self.tokens is None:
            raise refuse("needs tokens: the limits of that model", "equal_to")
        if self.is_timed:
            if bool(self.time_per_token) == (self.timing_run is not None):
                raise refuse("needs either time_per_token or timing_run")
        elif self.time_per_token or self.timing_run:
            key = "time_per_token" if self.time_per_token else "timing_run"
            raise refuse("needs seconds or equal_to", key)
        return self

    @property
    def is_timed(self) -> bool:
        """True if the limits are times, so that models have different limits of tokens."""
        return self.seconds is not None or self.equal_to is not None


def _budgets(value: object) -> object:
    """Read a plain list as limits of tokens. pydantic reads the result as Python values."""
    if isinstance(value, list):
        value = {"tokens": value}
    if isinstance(value, dict):
        return {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
    return value


#: Budgets as written: a list of limits of tokens, or :class:`Budgets`.
WrittenBudgets = Annotated[Budgets, BeforeValidator(_budgets)]


class DeclaredModel(StrictModel):
    """A model whose file is not on this host, but at a server."""

    name: Line
    """Name of the model for people, with its quantization."""
    sha256: Sha256 | None = None
    """SHA-256 of its GGUF file, if known: it joins these answers to timing runs, as declared."""


class EvaluatedModel(ModelSource):
    """Source of one model: one of the sources of timing recipes, or `declared`."""

    kinds = (*KINDS, "declared")
    model_config = one_of_kinds(kinds)

    declared: DeclaredModel | None = None
    """The model of a server that labctl does not start."""


def _server_address(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ValueError("must be an address that begins with https:// or http://")
    if parts.username or parts.password:
        raise ValueError("must not hold a password: put the key into a variable, see key_env")
    return text


def _variable(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", text):
        raise ValueError("must be the name of an environment variable, not the key itself")
    return text


def _without_tgi(value: object) -> object:
    if value == "tgi":
        raise ValueError("TGI speaks OpenAI's forms: write openai-chat or openai-completions")
    return value


_Api = Literal["openai-chat", "openai-completions", "llama-server"]
_OF_URL = ("api", "served_name", "key_env")
_OF_START = ("parameters", "version", "target", "board", "draft", "lora")


class LoraFile(StrictModel):
    """A low-rank adapter (LoRA) that changes the model's weights."""

    file: HostPath
    """Its GGUF file: a name in `files`; for an endpoint a path from the lab's folder."""
    scale: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    """Factor of its change; 1 as it was trained."""


class EndpointSource(StrictModel):
    """A server: one that runs already (`url`), or one that labctl starts (`start`)."""

    model: Name
    """The model that it serves, by its key in `models`."""
    url: Annotated[Line, AfterValidator(_server_address)] | None = None
    """Address of a server that runs already."""
    api: Annotated[_Api, BeforeValidator(_without_tgi)] | None = None
    """API of that server."""
    served_name: Line | None = None
    """Name of the model in its API; by default the only one that it reports."""
    key_env: Annotated[str, AfterValidator(_variable)] | None = None
    """Environment variable that holds the key of its API; the key itself is stored nowhere. A key
    under 8 characters (`EMPTY`) is not removed from answers."""
    start: Literal["host", "board"] | None = None
    """Start llama-server on this host, or on a board: only this proves the model's hash."""
    parameters: dict[str, Scalar] = Field(default_factory=dict)
    """Parameters of the server that labctl starts: `context`, `threads` …"""
    draft: Name | None = None
    """A smaller model, by its key in `models`, that guesses the tokens (`speculation:
    draft-simple`)."""
    lora: tuple[LoraFile, ...] = ()
    """Low-rank adapters for its model."""
    version: Word | None = None
    """Version label of the build to start; by default the newest."""
    target: Name | None = None
    """Target of the build to start; by default that of this host, or of the board."""
    board: Name | None = None
    """The board to start it on; by default the lab's default board."""
    concurrency: int | None = Field(default=None, ge=1, le=1024)
    """Number of concurrent questions; by default that of the recipe."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.url is None) == (self.start is None):
            raise refuse("give exactly one of url and start")
        other, missing = (_OF_START, "start") if self.url else (_OF_URL, "url")
        for key in other:
            if getattr(self, key) not in (None, {}, ()):
                raise refuse(f"goes with {missing}", key)
        if self.url and self.api is None:
            raise refuse("the key api is required with url")
        if self.board is not None and self.start != "board":
            raise refuse("needs start: board", "board")
        return self

    def draft_problem(self, models: Mapping[str, "EvaluatedModel"]) -> str | None:
        """Return why its draft cannot be used; None if it can be used, or no draft is named."""
        if self.draft is None:
            return None
        if self.draft not in models:
            return unknown("model", self.draft, models)
        is_declared = models[self.draft].declared is not None
        return "this model is declared: its file is not here" if is_declared else None

    @property
    def scaled_lora(self) -> tuple[tuple[str, float], ...]:
        """Paths of the adapters, each with its scale."""
        return tuple((one.file, one.scale) for one in self.lora)

    def changed_on_board(self, changes: Mapping[str, str]) -> Self:
        """Return the server with these keys if labctl starts it on a board; otherwise unchanged."""
        return self.model_copy(update=changes) if self.start == "board" else self


class ServedRecipe(WrittenRecipe):
    """A recipe whose servers answer requests: an evaluation, or a load test."""

    models: Annotated[dict[Name, EvaluatedModel], Field(min_length=1)]
    """The models, by a short name."""

    @property
    @abstractmethod
    def questions(self) -> DatasetSource | None:
        """Data set of the recipe, or None."""

    @property
    @abstractmethod
    def servers(self) -> Mapping[str, EndpointSource]:
        """All servers, by name."""

    @property
    @abstractmethod
    def longest_seconds(self) -> float:
        """The longest that its servers may run, in s."""

    @abstractmethod
    def changed_on_board(self, **changes: str) -> Self:
        """Return the recipe with these keys of the servers that it starts on a board."""

    def on_board(self, board: str) -> Self:
        """Return the recipe with this board for all servers that it starts on a board."""
        return self.changed_on_board(board=board)

    def measured_models(self) -> list[str]:
        """Return the keys of the models of the servers that it starts."""
        started = [one for one in self.servers.values() if one.start]
        named = [key for one in started for key in (one.model, one.draft) if key is not None]
        return list(dict.fromkeys(named))

    def board_servers(self) -> list[EndpointSource]:
        """Return the servers that it starts on boards."""
        return [one for one in self.servers.values() if one.start == "board"]

    def boards(self, lab: LabFile) -> list[Board]:
        """Return the boards on which it starts servers. Raises ConfigError for an unknown one."""
        boards = (lab.board(one.board) for one in self.board_servers())
        return list({board.name: board for board in boards}.values())


class Sampling(StrictModel):
    """Choice of each token."""

    temperature: float = Field(default=0.0, ge=0, le=100)
    """0 takes the likeliest token each time."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Nucleus sampling: share of the probability from which tokens are drawn; by default the
    server's own."""
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] | None = None
    """Seed of the first sample; each further one takes the next. By default the server's own."""
    samples: int = Field(default=1, ge=1, le=1000)
    """Generations for each question; more than one needs a temperature above 0."""

    @model_validator(mode="after")
    def _several_differ(self) -> Self:
        if self.samples > 1 and self.temperature == 0:
            raise refuse("at temperature 0 all samples are the same", "samples")
        return self


class StopRule(StrictModel):
    """Stop before the last question, once every accuracy is precise enough."""

    half_width: Share
    """Half of the interval's width: 3% is plus or minus 3 percentage points."""
    level: Annotated[float, Field(ge=0.5, lt=1)] = 0.95
    """Confidence level of the rule's interval. Tables always show 95 %."""
    min_questions: int = Field(default=30, ge=1)
    """Smallest number of questions."""


class AnswerTimeouts(StrictModel):
    """Time-out of each step; all have defaults."""

    answer: Duration = 600.0
    """One answer, from sending the question to its end."""


class AccuracyGate(StrictModel):
    """A bound for an accuracy; a run with a missed gate ends with status 1."""

    metric: Literal["accuracy"]
    """Bounded quantity: the share of right answers."""
    min: Annotated[float, Field(ge=0, le=1)] | None = None
    """Smallest allowed value, 0 to 1."""
    max: Annotated[float, Field(ge=0, le=1)] | None = None
    """Largest allowed value, 0 to 1."""
    where: dict[Literal["model", "prompt", "budget", "grader"], int | str] = Field(
        default_factory=dict
    )
    """Answers that it applies to: by `model`, `prompt`, `budget` (tokens, or `unlimited`) and
    `grader`. By default all."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        check_bounds(self.min, self.max)
        return self
