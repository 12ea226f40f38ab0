"""Agreement of two servers of one model, to check that a host answers like the board.

Different kernels round differently, and one different token changes the rest of an answer. Answers
need not be identical: their share and the effect on the accuracy are reported.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from labctl.errors import ConfigError
from labctl.evaluation.accuracy import Budget, accuracy_table, in_both
from labctl.evaluation.directory import EvaluationDirectory
from labctl.evaluation.recipe import variant_name
from labctl.records.board import Execution
from labctl.records.evaluation import (
    EndpointRecord,
    EvaluationRecord,
    GenerationRecord,
    GradeRecord,
    PromptRecord,
)
from labctl.records.trial import ModelIdentity
from labctl.runs.record.directory import RunDirectory
from labctl.stats.intervals import Interval
from labctl.stats.paired_answers import paired_difference
from labctl.stats.proportions import interval_of_variance

#: With fewer common answers, the result is uncertain.
ENOUGH = 50
#: First token of each class of the histogram.
CLASSES = (1, 2, 5, 17, 65, 257)


@dataclass(frozen=True)
class Answers:
    """One recorded evaluation."""

    record: EvaluationRecord
    generations: Sequence[GenerationRecord]
    grades: Sequence[GradeRecord]

    @classmethod
    def of(cls, run: RunDirectory) -> "Answers":
        """Read the answers of an evaluation. Raises ConfigError."""
        directory = EvaluationDirectory(run)
        generations = [one for one in directory.generations() if one.check is None]
        return cls(directory.record(), generations, list(directory.grades()))


@dataclass(frozen=True)
class Served:
    """One model of one evaluation, and its servers."""

    run: str
    model: ModelIdentity
    endpoints: tuple[EndpointRecord, ...]

    @property
    def executions(self) -> tuple[Execution, ...]:
        """Kinds of machine; unknown for a server that labctl did not start."""
        return tuple(sorted({one.execution for one in self.endpoints if one.execution}))

    @property
    def where(self) -> str:
        """Return the machines, for people."""
        return ", ".join(
            dict.fromkeys(
                (f"board {one.board}" if one.board else one.address or "this host")
                + ("" if one.execution in (None, Execution.BOARD) else f" ({one.execution})")
                for one in self.endpoints
            )
        )


@dataclass(frozen=True)
class Difference:
    """Two different answers to a question, and the first different place, from 1.

    ``token`` is None if a server did not report its tokens.
    """

    question: str
    sample: int
    limit: Budget
    character: int
    token: int | None


@dataclass(frozen=True)
class AccuracyGap:
    """Accuracy of both sides on the same questions; ``interval`` is of second minus first."""

    grader: str
    budget: Budget
    first: float
    second: float
    interval: Interval


@dataclass(frozen=True)
class Agreement:
    """Comparison of two servers: their answers to the same questions with the same prompt.

    ``compared``: number of pairs of answers. ``by_question``: pairs for each question.
    ``unpaired``: number of answers that only one side has.
    """

    prompt: str
    first: Served
    second: Served
    compared: int
    unpaired: int
    differences: tuple[Difference, ...]
    gaps: tuple[AccuracyGap, ...]
    notes: tuple[str, ...]
    by_question: Mapping[str, int]

    @cached_property
    def identical(self) -> Interval:
        """Share of identical answers, with its 95 % interval. Each question is one cluster:

        its answers within several limits begin alike, so they differ together.
        """
        share = 1 - len(self.differences) / self.compared
        unlike = Counter(one.question for one in self.differences)
        off = (
            count * (1 - share) - unlike[question] for question, count in self.by_question.items()
        )
        variance = max(sum(one**2 for one in off) / self.compared, share * (1 - share))
        return interval_of_variance(share, variance / self.compared, len(self.by_question))

    @property
    def tokens(self) -> tuple[int, ...]:
        """Positions of the first differing tokens, as far as known, ascending."""
        return tuple(sorted(one.token for one in self.differences if one.token is not None))

    @property
    def median_token(self) -> float | None:
        """Median position of the first differing token; None if no position is known."""
        return median(self.tokens) if self.tokens else None

    @property
    def median_character(self) -> float | None:
        """Median position of the first differing character; None if all answers are identical."""
        return median(one.character for one in self.differences) if self.differences else None

    @property
    def histogram(self) -> dict[str, int]:
        """Number of first differing tokens by classes of their position."""
        found = Counter(
            max(i for i, least in enumerate(CLASSES) if least <= token) for token in self.tokens
        )
        ends = (*(str(least - 1) for least in CLASSES[1:]), "")
        names = (
            f"{least}" if end == str(least) else f"{least}-{end}" if end else f"{least} and later"
            for least, end in zip(CLASSES, ends, strict=True)
        )
        return {name: found[index] for index, name in enumerate(names)}

    @property
    def is_emulated(self) -> bool:
        """True if a side was emulated."""
        return Execution.EMULATED in (*self.first.executions, *self.second.executions)


def agreements(first: Answers, second: Answers) -> list[Agreement]:
    """Compare the answers of two evaluations, or of two models in one.

    A pair has the same model, by the hashes of its file and adapters, and the same prompt. In one
    evaluation two keys of the same file are a pair. Raises ConfigError, with the reason, if nothing
    can be compared.
    """
    unlike = list(_unlike(first.record, second.record))
    if unlike:
        raise ConfigError(
            f"{first.record.id} and {second.record.id} do not ask the same: {'; '.join(unlike)}"
        )
    found = [
        _agreement(first, one, second, other, prompt)
        for one, other in _pairs(first.record, second.record)
        for prompt in _common_prompts(first.record, second.record)
    ]
    found = [one for one in found if one.compared]
    if not found:
        raise ConfigError(
            f"{first.record.id} and {second.record.id} have no common answers of one model and"
            " prompt",
            hint="ask the same model by its file, with the same prompt, on both servers",
        )
    return found


def _unlike(first: EvaluationRecord, second: EvaluationRecord) -> Iterator[str]:
    if first.dataset.sha256 != second.dataset.sha256:
        yield "other data sets"
    if first.dataset.shots != second.dataset.shots:
        yield "other numbers of worked examples"
    if first.sampling != second.sampling:
        yield "other sampling"


def _pairs(
    first: EvaluationRecord, second: EvaluationRecord
) -> Iterator[tuple[ModelIdentity, ModelIdentity]]:
    for i, one in enumerate(first.models):
        for k, other in enumerate(second.models):
            is_pair = first.id != second.id or i < k
            if is_pair and one.sha256 and one.weights == other.weights:
                yield one, other


def _common_prompts(first: EvaluationRecord, second: EvaluationRecord) -> Iterator[PromptRecord]:
    theirs = {one.name: one for one in second.prompts}
    for prompt in first.prompts:
        if prompt.name in theirs and prompt.sha256 == theirs[prompt.name].sha256:
            yield prompt


def _served(answers: Answers, model: ModelIdentity) -> Served:
    of_model = tuple(one for one in answers.record.endpoints if one.model == model.key)
    return Served(answers.record.id, model, of_model)


def _agreement(
    first: Answers, one: ModelIdentity, second: Answers, other: ModelIdentity, prompt: PromptRecord
) -> Agreement:
    variants = variant_name(one.key, prompt.name), variant_name(other.key, prompt.name)
    ours, theirs = _by_key(first, variants[0]), _by_key(second, variants[1])
    both = [key for key in ours if key in theirs]
    differences = tuple(
        found for key in both if (found := _difference(ours[key], theirs[key])) is not None
    )
    sides = _served(first, one), _served(second, other)
    return Agreement(
        prompt=prompt.name,
        first=sides[0],
        second=sides[1],
        compared=len(both),
        unpaired=len(ours.keys() ^ theirs.keys()),
        differences=differences,
        gaps=tuple(_gaps(first, variants[0], second, variants[1])),
        notes=tuple(_notes(first.record, sides, len({key[0] for key in both}))),
        by_question=Counter(key[0] for key in both),
    )


_Key = tuple[str, int, Budget]


def _by_key(answers: Answers, variant: str) -> dict[_Key, GenerationRecord]:
    return {
        (one.question, one.sample, one.max_tokens): one
        for one in answers.generations
        if one.variant == variant and one.failure is None
    }


def _difference(one: GenerationRecord, other: GenerationRecord) -> Difference | None:
    if (one.text, one.finish) == (other.text, other.finish):
        return None
    ids, theirs = one.token_ids, other.token_ids
    token = None if ids is None or theirs is None else _first(ids, theirs)
    return Difference(one.question, one.sample, one.max_tokens, _first(one.text, other.text), token)


def _first(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the first different place, from 1; if one text ends first, the place after it."""
    pairs = enumerate(zip(one, other, strict=False), 1)
    shorter = min(len(one), len(other)) + 1
    return next((number for number, (a, b) in pairs if a != b), shorter)


def _gaps(first: Answers, ours: str, second: Answers, theirs: str) -> Iterator[AccuracyGap]:
    tables = [
        accuracy_table(
            side.generations,
            side.grades,
            questions=side.record.dataset.questions,
            variants=[variant],
        )
        for side, variant in ((first, ours), (second, theirs))
    ]
    for cell in tables[0].cells:
        other = tables[1].cell(theirs, cell.budget, cell.grader)
        if other is None or other.version != cell.version:
            continue
        paired = [
            (sum(a) / len(a), sum(b) / len(b))
            for _question, a, b in in_both(cell, other)
            if a and b
        ]
        if len(paired) < 2:
            continue
        shares = [one for one, _ in paired], [two for _, two in paired]
        means = [sum(share) / len(share) for share in shares]
        yield AccuracyGap(cell.grader, cell.budget, means[0], means[1], paired_difference(*shares))


def _notes(record: EvaluationRecord, sides: tuple[Served, Served], questions: int) -> Iterator[str]:
    if questions < ENOUGH:
        yield f"only {questions} common questions (fewer than {ENOUGH}): the result is uncertain"
    if temperature := record.sampling.temperature:
        yield f"temperature {temperature:g}: answers are random, so they may differ for this reason"
    for side in sides:
        if not all(one.sha256_proven for one in side.endpoints):
            yield f"{side.where}: the model is as declared; its file was not checked"
    templates = [
        {one.template_sha256 for one in side.endpoints if one.template_sha256} for side in sides
    ]
    if all(templates) and templates[0] != templates[1]:
        yield "the servers report different chat templates"
    slots = [{one.parameters.get("parallel") for one in side.endpoints} for side in sides]
    if slots[0] != slots[1] or any(value not in (None, 1) for value in slots[0] | slots[1]):
        yield (
            "a server may round differently when it computes several questions at once: ask one at"
            " a time (parallel: 1, concurrency: 1)"
        )
