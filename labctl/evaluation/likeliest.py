"""Multiple choice by probability: the likeliest first letter of the model.

One token is requested, with the likeliest alternatives. ``B`` and `` B`` are the same letter: their
probabilities are added.
"""

import math
from collections.abc import Iterable
from string import ascii_uppercase

from labctl.config.yaml.loader import Path
from labctl.errors import HostError, JobError
from labctl.evaluation.endpoints.base import EndpointClient, GenerationRequest, Message
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.recipe import EvaluationRecipe

#: Number of tokens to request: the most that OpenAI's chat API, and vLLM by default, report.
LIKELIEST = 20
_TRIED = "Which letter comes first?\nA. A\nB. B\nAnswer:"


def letter_logprobs(tokens: Iterable[tuple[str, float]], choices: int) -> dict[str, float]:
    """Return the reported letters of ``choices`` choices, with their log-probabilities.

    A letter that is not among the likeliest tokens is left out.
    """
    found: dict[str, list[float]] = {}
    for token, logprob in tokens:
        letter = token.strip()
        if letter and letter in tuple(ascii_uppercase[:choices]) and not math.isnan(logprob):
            found.setdefault(letter, []).append(min(0.0, logprob))
    return {letter: _sum(found[letter]) for letter in sorted(found)}


def _sum(logprobs: list[float]) -> float:
    most = max(logprobs)
    if most == -math.inf:
        return -1e9  # JSON has no infinity
    return min(0.0, most + math.log(sum(math.exp(one - most) for one in logprobs)))


async def check_tells(
    recipe: EvaluationRecipe, endpoint: str, client: EndpointClient
) -> str | None:
    """Check before the first question that a server reports the likeliest tokens.

    Return a note if it reports fewer than :data:`LIKELIEST`. Raises ConfigError if it reports none,
    HostError if it does not answer.
    """
    fewest = LIKELIEST
    for name, prompt in recipe.prompts.items():
        if prompt.choose_by != "probability":
            continue
        path: Path = ("prompts", name, "choose_by")
        problem = f"endpoint {endpoint} does not report how likely each letter is"
        request = GenerationRequest(
            (Message("user", _TRIED),) if prompt.is_chat else _TRIED, 1, likeliest=LIKELIEST
        )
        try:
            found = await client.generate(request, timeout=recipe.timeouts.answer)
        except JobError as error:
            raise recipe.refusal(path, f"{problem}: {error.message}") from error
        except TryAgain as error:
            raise HostError(f"endpoint {endpoint}: {error.message}", hint=error.hint) from error
        fewest = min(fewest, len(found.likeliest or ()))
    if fewest == LIKELIEST:
        return None
    return (
        f"endpoint {endpoint} reports {fewest} of the {LIKELIEST} likeliest tokens asked for: an"
        " answer with no choice's letter among them counts as wrong (vLLM allows more with"
        " --max-logprobs)"
    )
