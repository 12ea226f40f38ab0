"""Run coroutines that Ctrl-C can cancel."""

import asyncio
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

from labctl import interrupts

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as ``asyncio.run`` does. A signal cancels it, and is raised afterwards."""
    if not interrupts.is_told():
        return asyncio.run(work)
    is_cancelled = False

    async def cancellable() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        ending = task.cancel

        def cancel(_number: int, _frame: FrameType | None) -> None:
            nonlocal is_cancelled
            is_cancelled = True
            loop.call_soon_threadsafe(ending)

        with interrupts.handled_by(cancel):
            try:
                interrupts.check()
                return await work
            finally:
                work.close()

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        if is_cancelled:
            raise KeyboardInterrupt from None
        raise
