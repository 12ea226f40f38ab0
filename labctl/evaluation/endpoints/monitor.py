"""The pages that a server has beside its answers: its health and its metrics.

vLLM, SGLang, TGI and llama-server have ``/health``. Its 503 means that the model is being loaded
(llama-server), or that the engine is dead (vLLM, whose ``/v1/models`` still answers then). A
gateway may also answer 503 for every path that it does not know. So ``/health`` only explains:
whether a server works is decided by a request.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from labctl.errors import OutputNotUnderstood
from labctl.evaluation.endpoints.connection import Connection
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.endpoints.server_metrics import Snapshot, read_page

T = TypeVar("T")

#: Longest time (s) for one look.
LOOK_SECONDS = 2.0
#: Longest time (s) to wait for ``/health`` after the request beside which it was asked; the second
#: value if it did not answer the time before.
_GRACE_SECONDS, _SHORT_GRACE_SECONDS = 0.5, 0.05
_UNAVAILABLE = 503


class ServerMonitor:
    """Looks at one server, on a connection of its own, which takes none from a load."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._is_silent = False

    async def beside(self, ask: Callable[[], Awaitable[T]]) -> tuple[T, str | None]:
        """Ask a server, and its ``/health`` at the same time; return the answer and a complaint.

        The complaint says that ``/health`` answered 503, in the server's words; None: it did not.
        Raises the errors of ``ask``; a TryAgain has the complaint in its message.
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
        """Wait a moment for a look that has not ended; a shorter one if the last look had none."""
        grace = _SHORT_GRACE_SECONDS if self._is_silent else _GRACE_SECONDS
        done, _ = await asyncio.wait([look], timeout=grace)
        self._is_silent = not done

    async def _read_health(self, said: list[str]) -> None:
        """Add to ``said`` what ``/health`` says with a 503: the status, then the server's words.

        Every other answer, and none in time, means nothing: many servers do not have this path.
        """
        try:
            async with self._connection.page("/health", timeout=LOOK_SECONDS) as answer:
                if answer.status_code == _UNAVAILABLE:
                    said.append(f"{self._connection.address}: /health: status 503")
                    said.append((await self._connection.trouble(answer)).message)
        except (TryAgain, OutputNotUnderstood):
            return  # a 503 counts also if its text does not come, or has no end

    async def metrics(self, timeout: float = LOOK_SECONDS) -> Snapshot:
        """Return the server's counters now. Raises TryAgain, OutputNotUnderstood.

        ``timeout``: the most seconds for this look.
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
