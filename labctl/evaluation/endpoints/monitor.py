"""Further pages of a server: health and metrics.

vLLM, SGLang, TGI and llama-server have ``/health``. Its 503 means that the model is being loaded
(llama-server), or that the engine is dead (vLLM, whose ``/v1/models`` still answers then). A
gateway may also answer 503 for every unknown path. So ``/health`` only explains a failure; a
request decides if a server works.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from labctl.errors import OutputNotUnderstood
from labctl.evaluation.endpoints.connection import Connection
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.endpoints.server_metrics import Snapshot, read_page

T = TypeVar("T")

#: Time-out (s) of one look.
LOOK_SECONDS = 2.0
#: Longest time (s) to wait for ``/health`` after the parallel request has ended; the second value
#: if ``/health`` did not answer last time.
_GRACE_SECONDS, _SHORT_GRACE_SECONDS = 0.5, 0.05
_UNAVAILABLE = 503


class ServerMonitor:
    """Looks at one server on its own connection, which a load does not share."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._is_silent = False

    async def beside(self, ask: Callable[[], Awaitable[T]]) -> tuple[T, str | None]:
        """Call ``ask``, and ask ``/health`` at the same time; return the answer and a complaint.

        The complaint says that ``/health`` answered 503, with the server's words; else None. Raises
        the errors of ``ask``; a TryAgain has the complaint in its message.
        """
        said: list[str] = []
        look = asyncio.create_task(self._read_health(said))
        try:
            try:
                answer = await ask()
            except TryAgain as error:
                await self._wait(look)
                if said:
                    raise _explained(error, said[-1]) from error
                raise
            await self._wait(look)
            return answer, said[-1] if said else None
        finally:
            look.cancel()
            await asyncio.gather(look, return_exceptions=True)

    async def _wait(self, look: "asyncio.Task[None]") -> None:
        """Wait a moment for an unfinished look; a shorter moment if the last look got no answer."""
        grace = _SHORT_GRACE_SECONDS if self._is_silent else _GRACE_SECONDS
        done, _ = await asyncio.wait([look], timeout=grace)
        self._is_silent = not done

    async def _read_health(self, said: list[str]) -> None:
        """If ``/health`` answers 503, add the status to ``said``, then the server's words.

        Ignore other answers and time-outs: many servers do not have this path.
        """
        try:
            async with self._connection.page("/health", timeout=LOOK_SECONDS) as answer:
                if answer.status_code == _UNAVAILABLE:
                    said.append(f"{self._connection.address}: /health: status 503")
                    said.append((await self._connection.trouble(answer)).message)
        except (TryAgain, OutputNotUnderstood):
            return  # a 503 counts even if its text is missing or endless

    async def metrics(self, timeout: float = LOOK_SECONDS) -> Snapshot:
        """Return the server's counters now. Raises TryAgain, OutputNotUnderstood.

        ``timeout``: most seconds for this look.
        """
        async with self._connection.page("/metrics", timeout=timeout) as answer:
            if answer.status_code != 200:
                raise OutputNotUnderstood(
                    f"{self._connection.address}: /metrics: status {answer.status_code}"
                )
            return await read_page(answer.aiter_raw())

    async def aclose(self) -> None:
        """Close the connection."""
        await self._connection.aclose()


def _explained(error: TryAgain, complaint: str) -> TryAgain:
    explained = TryAgain(f"{error.message} ({complaint})", hint=error.hint, details=error.details)
    explained.status, explained.retry_after_s = error.status, error.retry_after_s
    explained.attempts = error.attempts
    return explained
