"""Budgets: limits of generated tokens; a long generation can be cut at smaller limits.

A run uses it like this:

1. If the prompt states no budget, ask once at the largest budget, with ``offsets``.
2. For each smaller budget: :func:`cut` if :func:`can_cut`, otherwise ask at this budget.
3. On :data:`CHECKED_QUESTIONS` questions of each model also ask at a smaller budget, at the run's
   concurrency, and compare the answer with the cut one: :func:`check_truncation`. If more than 1 %
   differ, ask at every budget instead. A server that computes several questions at once may round
   differently, so a check with one slot proves nothing for eight.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from labctl.records.evaluation import FinishReason, GenerationRecord

#: Number of questions that the truncation check needs, and largest share that may differ.
CHECKED_QUESTIONS = 100
MOST_DISAGREEMENT = 0.01


@dataclass(frozen=True)
class Cut:
    """An answer within a budget, as a server with this limit would give it.

    ``complete``: ended by the model, not by a limit. ``tokens``: number within the budget; None:
    not known. ``truncated_here``: labctl cut a longer generation.
    """

    text: str
    finish: FinishReason
    tokens: int | None
    truncated_here: bool

    @property
    def complete(self) -> bool:
        """True if the model ended the answer within the budget."""
        return self.finish == "stop"


def can_cut(generation: GenerationRecord, budget: int | None) -> bool:
    """Return True if a generation shows the answer of its server within a budget.

    A generation that ended by itself within the budget needs no token ends for this.
    """
    if generation.failure is not None:
        return False
    if budget == generation.max_tokens:
        return True
    if generation.stated_budget is not None:
        return False
    most, count = generation.max_tokens, _count(generation)
    if budget is None or (most is not None and budget > most):
        return generation.finish == "stop"
    if count is None:
        return False
    return count <= budget or _ends_known(generation, count)


def cut(generation: GenerationRecord, budget: int | None) -> Cut:
    """Return the answer within a budget of tokens; None: no limit.

    A token that ends inside a code point adds nothing to the text, as in a stream that ends there.
    The end token counts: if only the end token did not fit, the answer is not complete. Raises
    ValueError if :func:`can_cut` returns False.
    """
    if not can_cut(generation, budget):
        raise ValueError(f"question {generation.question} cannot be cut at {budget} tokens")
    count = _count(generation)
    if budget == generation.max_tokens or budget is None or count is None or count <= budget:
        return Cut(generation.text, generation.finish, count, truncated_here=False)
    assert generation.token_ends is not None
    end = generation.token_ends[budget - 1] if budget else 0
    return Cut(generation.text[:end], "length", budget, truncated_here=True)


def _count(generation: GenerationRecord) -> int | None:
    if generation.completion_tokens is not None:
        return generation.completion_tokens
    return None if generation.token_ends is None else len(generation.token_ends)


def _ends_known(generation: GenerationRecord, count: int) -> bool:
    """Return True if every token has an end inside the text, in order."""
    ends = generation.token_ends
    if ends is None or len(ends) != count:
        return False
    return list(ends) == sorted(ends) and ends[0] >= 0 and ends[-1] <= len(generation.text)


def tokens_within(time_ns: int, time_per_token_ns: int) -> int:
    """Return the number of whole tokens that a model generates in a time; may be 0.

    The time of the prompt is not included, since budgets compare the time per token.
    """
    return time_ns // time_per_token_ns


def equal_tokens(tokens: int, *, time_per_token_ns: int, other_time_per_token_ns: int) -> int:
    """Return the number of tokens of the other model in the time of ``tokens`` of the first.

    Rounded to the nearest, halves up, as in the experiment: at 18.18 and 49.73 s per token, 100
    tokens become 37, 200 become 73, 300 become 110. 0: not even half a token.
    """
    time = tokens * time_per_token_ns
    return (2 * time + other_time_per_token_ns) // (2 * other_time_per_token_ns)


@dataclass(frozen=True)
class TruncationCheck:
    """Comparison of cut generations with real limits; ``differing``: ids of questions.

    ``decision``: ``cut`` if at most 1 % differ on at least 100 questions; ``generate`` if more
    differ; ``too-few`` if there are too few questions for both.
    """

    compared: int
    differing: tuple[str, ...]

    @property
    def decision(self) -> Literal["cut", "generate", "too-few"]:
        """Decide as soon as further questions (up to 100) cannot change the decision."""
        if len(self.differing) > MOST_DISAGREEMENT * max(self.compared, CHECKED_QUESTIONS):
            return "generate"
        return "cut" if self.compared >= CHECKED_QUESTIONS else "too-few"


def check_truncation(
    pairs: Iterable[tuple[GenerationRecord, GenerationRecord]],
) -> TruncationCheck:
    """Cut each long generation, and compare it with one that the server limited.

    They differ if the text or the end differs. Make one check for pairs with one slot, and another
    for pairs at the run's concurrency. Raises ValueError if a long generation cannot be cut.
    """
    compared: dict[str, bool] = {}
    for long, limited in pairs:
        expected = cut(long, limited.max_tokens)
        same = (expected.text, expected.finish) == (limited.text, limited.finish)
        compared[limited.question] = compared.get(limited.question, True) and same
    return TruncationCheck(
        len(compared), tuple(name for name, same in compared.items() if not same)
    )
