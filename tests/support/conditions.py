"""Conditions that a test waits for inside an event loop; outside of one: `labctl.retry`."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], *, timeout: float = 60.0) -> None:
    """Let the loop go on until the condition holds. Raises TimeoutError."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.01)
