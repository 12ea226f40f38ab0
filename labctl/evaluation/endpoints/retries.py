"""Ask one question, with retries."""

import random
from dataclasses import dataclass

from labctl.errors import InfraError
from labctl.evaluation.endpoints.base import EndpointClient, Generation, GenerationRequest
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.retry import retry_async

#: Total number of attempts, and the longest wait (s) between two.
ATTEMPTS = 5
MOST_WAIT_SECONDS = 60.0
_FIRST_WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class Answered:
    """An answer, and the number of requests for it."""

    generation: Generation
    attempts: int


async def generate_with_retries(
    client: EndpointClient,
    request: GenerationRequest,
    *,
    timeout: float,
    attempts: int = ATTEMPTS,
    most_wait_s: float = MOST_WAIT_SECONDS,
) -> Answered:
    """Ask until there is an answer: retry after TryAgain, at most ``attempts`` attempts.

    Waits for the server's ``Retry-After``, otherwise a random time below 1 s, 2 s, 4 s …, so that
    many clients do not return at once; never longer than ``most_wait_s``. ``timeout`` (s): for each
    attempt. Raises the last error; a TryAgain has the number of ``attempts``.
    """
    made = 0

    async def ask() -> Generation:
        nonlocal made
        made += 1
        return await client.generate(request, timeout=timeout)

    def wait_s(attempt: int, error: InfraError) -> float:
        wanted = error.retry_after_s if isinstance(error, TryAgain) else None
        most = min(most_wait_s, _FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
        return min(wanted, most_wait_s) if wanted is not None else random.uniform(0, most)  # noqa: S311

    try:
        generation = await retry_async(ask, on=(TryAgain,), attempts=attempts, wait_s=wait_s)
    except TryAgain as error:
        error.attempts = made
        raise
    return Answered(generation, made)
