"""Packets that are late, slow or held."""

import asyncio
import time
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from labctl.virtual.delay_queue import DelayQueue


def test_what_comes_later_never_overtakes() -> None:
    async def order() -> tuple[list[int], float]:
        passed: list[int] = []
        empty = asyncio.Event()
        delay_queue = DelayQueue(empty.set)
        began = time.monotonic()
        delay_queue.put(1, lambda: passed.append(1), delay=0.05)
        empty.clear()
        delay_queue.put(1, lambda: passed.append(2))
        delay_queue.put(1000, lambda: passed.append(3), rate=20_000)
        assert not delay_queue.idle
        assert delay_queue.waiting_bytes == 1002
        await empty.wait()
        return passed, time.monotonic() - began

    passed, took = asyncio.run(order())
    assert passed == [1, 2, 3]
    assert 0.1 <= took < 20


def test_nothing_passes_while_held_and_all_does_afterwards() -> None:
    async def held() -> None:
        passed: list[int] = []
        delay_queue = DelayQueue(lambda: None)
        delay_queue.hold()
        for number in range(3):
            delay_queue.put(1, partial(passed.append, number))
        await asyncio.sleep(0.02)  # nothing passes, although the loop has its turns
        assert passed == []
        delay_queue.release()
        assert passed == [0, 1, 2]
        assert delay_queue.idle

    asyncio.run(held())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 0.005)), max_size=20))
def test_everything_passes_once_in_order(packets: list[tuple[int, float]]) -> None:
    async def run() -> list[int]:
        passed: list[int] = []
        empty = asyncio.Event()
        empty.set()
        delay_queue = DelayQueue(empty.set)
        for number, (size, delay) in enumerate(packets):
            empty.clear()
            delay_queue.put(size, partial(passed.append, number), delay=delay)
        await asyncio.wait_for(empty.wait(), 30)
        assert delay_queue.waiting_bytes == 0
        return passed

    assert asyncio.run(run()) == list(range(len(packets)))
