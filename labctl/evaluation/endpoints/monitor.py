"""The pages that a server has beside its answers: its health and its metrics.

vLLM, SGLang, TGI and llama-server have ``/health``. Its 503 means that the model is being loaded
(llama-server), or that the engine is dead (vLLM, whose ``/v1/models`` still answers then).
"""

from labctl.errors import OutputNotUnderstood
from labctl.evaluation.endpoints.connection import Connection
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.endpoints.server_metrics import Snapshot, read_page

#: Time (s) for one look. A server that needs longer is not asked beside a load.
LOOK_SECONDS = 2.0
_UNAVAILABLE = 503


class ServerMonitor:
    """Looks at one server, on a connection of its own, which takes none from a load."""

    def __init__(self, connection: Connection):
        self._connection = connection

    async def check_health(self) -> None:
        """Raise TryAgain if ``/health`` says 503, or the server refuses the connection.

        Every other answer, and none in time, means nothing: many servers do not have this path.
        """
        import httpx

        trouble: TryAgain | None = None
        try:
            async with self._connection.page("/health", timeout=LOOK_SECONDS) as answer:
                if answer.status_code != _UNAVAILABLE:
                    return
                trouble = TryAgain(f"{self._connection.address}: /health: status 503")
                trouble = await self._connection.trouble(answer)
        except (TryAgain, OutputNotUnderstood) as error:
            # A 503 counts also if its text does not come, or has no end.
            if trouble is None and isinstance(error.__cause__, httpx.ConnectError):
                raise
        if trouble is not None:
            raise trouble

    async def metrics(self) -> Snapshot:
        """Return the server's counters now. Raises TryAgain, OutputNotUnderstood."""
        async with self._connection.page("/metrics", timeout=LOOK_SECONDS) as answer:
            if answer.status_code != 200:
                raise OutputNotUnderstood(
                    f"{self._connection.address}: /metrics: status {answer.status_code}"
                )
            return await read_page(answer.aiter_raw())

    async def aclose(self) -> None:
        """Close the connection."""
        await self._connection.aclose()
