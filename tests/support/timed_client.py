"""A client of a server that has no server: answers take exactly the time that they are told.

``slots`` answers are made at once, the others wait in the order in which they came. ``stalls`` are
times, in s from the first request, between which no answer begins.
"""

import asyncio
import time
from collections.abc import Callable

from labctl.evaluation.endpoints.base import (
    EndpointClient,
    Generation,
    GenerationRequest,
    ServerIdentity,
)


class TimedClient(EndpointClient):
    def __init__(
        self,
        service_s: float,
        *,
        slots: int | None = None,
        first_s: float | None = None,
        pieces: int = 2,
        tokens: int = 2,
        stall: tuple[float, float] | None = None,
        fail: Callable[[int], Exception | None] = lambda _number: None,
    ):
        self.service_s, self.pieces, self.tokens, self.stall = service_s, pieces, tokens, stall
        self.first_s = service_s / 2 if first_s is None else first_s
        self.fail = fail
        self.requests: list[GenerationRequest] = []
        self.gone: Exception | None = None
        #: How long each answer really took, without its wait for a slot: timers are late.
        self.services: list[float] = []
        self._slots = asyncio.Semaphore(slots or 10_000)
        self._began: float | None = None

    async def generate(self, request: GenerationRequest, *, timeout: float) -> Generation:
        sent = time.monotonic_ns()
        self.requests.append(request)
        if self._began is None:
            self._began = time.monotonic()
        error = self.gone or self.fail(len(self.requests))
        if error is not None:
            raise error
        async with self._slots:
            began = time.monotonic()
            if self.stall is not None:
                since = time.monotonic() - self._began
                if self.stall[0] <= since < self.stall[1]:
                    await asyncio.sleep(self.stall[1] - since)  # the server's stall
            first = time.monotonic()
            arrivals = []
            step = (self.service_s - self.first_s) / max(1, self.pieces - 1)
            for piece in range(self.pieces):
                due = first + self.first_s + piece * step
                await asyncio.sleep(max(0.0, due - time.monotonic()))  # the server's pace
                arrivals.append(time.monotonic_ns())
            self.services.append(time.monotonic() - began)
        return Generation(
            text="word " * self.pieces,
            finish="length",
            sent_ns=sent,
            done_ns=arrivals[-1],
            arrivals=tuple(arrivals),
            prompt_tokens=10,
            completion_tokens=self.tokens,
            counted_by="usage",
            tokens_after_first=self.tokens - 1,
        )

    async def tokenize(self, text: str) -> tuple[int, ...] | None:
        return None

    async def identify(self) -> ServerIdentity:
        if self.gone is not None:
            raise self.gone
        return ServerIdentity()

    async def aclose(self) -> None:
        pass
