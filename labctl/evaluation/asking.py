"""Ask all questions of an evaluation; each endpoint has a limit of concurrent questions.

The endpoints of a model share one queue, so the fastest one answers most. If an endpoint dies, its
questions return to the queue. An answer counts only when it is on disk.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from labctl.errors import ConfigError, HostError, JobError, LabctlError
from labctl.evaluation.directory import EvaluationDirectory
from labctl.evaluation.endpoints.base import EndpointClient, Generation, GenerationRequest
from labctl.evaluation.endpoints.counting import check_count
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.endpoints.retries import generate_with_retries
from labctl.evaluation.ledger import Ledger
from labctl.evaluation.likeliest import LIKELIEST, letter_logprobs
from labctl.evaluation.plan import Ask, EvaluationPlan, Key
from labctl.evaluation.prompts import render
from labctl.evaluation.question import Dataset, Question
from labctl.evaluation.queues import Queues
from labctl.evaluation.recipe_parts import Sampling
from labctl.records.evaluation import GenerationRecord
from labctl.records.trial import Failure

#: Number of consecutive failures after which a server counts as dead, even if it still identifies
#: itself.
_MOST_IN_A_ROW = 3
_IDENTIFY_SECONDS = 30.0
#: Most restarts of a lost server.
_MOST_RESTARTS = 2
#: Number of answers per endpoint whose tokens are counted again with its tokenizer.
_COUNTED_AGAIN = 3

#: Receives each record that is on disk.
Heard = Callable[[GenerationRecord], None]


@dataclass
class OpenEndpoint:
    """A server and its requests in flight.

    ``restart`` restarts a server that labctl started and returns its new client. It may take
    minutes, and raises LabctlError. None: labctl did not start the server.
    """

    name: str
    model: str
    client: EndpointClient
    concurrency: int
    restart: Callable[[], EndpointClient] | None = None
    restarts: int = 0
    #: Clients that were used before a restart.
    former: list[EndpointClient] = field(default_factory=list)
    active: int = 0
    in_a_row: int = 0
    counted_again: int = 0
    #: Reason not to ask the server any more.
    dead: HostError | None = None
    #: Held during the choice of the next question, and during a question that must run alone.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: Held during a restart.
    restarting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def aclose(self) -> None:
        """Close all its connections."""
        for client in (self.client, *self.former):
            await client.aclose()


class Asking:
    """Asking by one controller. ``ahead``: see :class:`Queues`."""

    def __init__(
        self,
        *,
        plan: EvaluationPlan,
        ledger: Ledger,
        dataset: Dataset,
        sampling: Sampling,
        timeout_s: float,
        attempts: int,
        endpoints: Sequence[OpenEndpoint],
        ahead: int | None,
        directory: EvaluationDirectory,
        note: Callable[[str], None],
        heard: Heard,
    ):
        self._plan, self._ledger, self._sampling = plan, ledger, sampling
        self._questions: Mapping[str, Question] = {one.id: one for one in dataset.questions}
        self._examples = dataset.examples
        self._timeout_s, self._attempts = timeout_s, attempts
        self._endpoints = endpoints
        self._directory, self._note, self._heard = directory, note, heard
        self._queues = Queues(plan, ahead)
        self._changed = asyncio.Condition()
        self._writing = asyncio.Lock()
        self._enough = False
        #: Endpoints at which a question failed, by question.
        self._tried: dict[Ask, set[str]] = {}
        self.retries = 0
        self._cutting = {model: ledger.cuts(model) for model in self._queues.models}
        for question in plan.questions:
            for sample in range(1, plan.samples + 1):
                for variant in plan.variants:
                    self._want(ledger.missing(Key(question, variant.name, sample)))
        for model in self._queues.models:
            self._want(ledger.missing_checks(model))

    @property
    def left(self) -> int:
        """Number of generations queued or in flight."""
        return self._queues.left

    async def run(self, deadline: float | None) -> bool:
        """Ask until all is answered, the stop rule is met or ``deadline`` (loop's clock) passes.

        Return False if the time was too short. Raises HostError if a model has no endpoint left.
        """
        try:
            async with asyncio.timeout_at(deadline), asyncio.TaskGroup() as group:
                for endpoint in self._endpoints:
                    for _ in range(endpoint.concurrency):
                        group.create_task(self._work(endpoint))
        except TimeoutError:
            return False
        except ExceptionGroup as errors:  # the first error ends all; report only this error
            first: Exception = errors
            while isinstance(first, ExceptionGroup):
                first = first.exceptions[0]
            raise first from None
        return True

    async def stop(self) -> None:
        """Ask nothing more, and wait for the requests in flight."""
        self._enough = True
        async with self._changed:
            self._changed.notify_all()

    def _want(self, asks: Sequence[Ask]) -> None:
        for ask in asks:
            if ask not in self._ledger.failed:
                self._queues.want(ask)

    async def _work(self, endpoint: OpenEndpoint) -> None:
        """Ask one question after the other."""
        while endpoint.dead is None and not self._enough:
            async with endpoint.turn:
                ask = await self._next(endpoint)
                if ask is None:
                    return
                endpoint.active += 1
                if ask.check == "one":
                    async with self._changed:
                        await self._changed.wait_for(lambda: endpoint.active == 1)
                    await self._one(endpoint, ask)
                    continue
            await self._one(endpoint, ask)

    async def _next(self, endpoint: OpenEndpoint) -> Ask | None:
        """Return the next question for an endpoint; None if no more will come."""
        model, queues = endpoint.model, self._queues
        async with self._changed:
            await self._changed.wait_for(
                lambda: (
                    endpoint.dead is not None
                    or self._enough
                    or queues.is_done(model)
                    or queues.has_next(model)
                )
            )
        if endpoint.dead is not None or self._enough or queues.is_done(model):
            return None
        return queues.next(model)

    async def _one(self, endpoint: OpenEndpoint, ask: Ask) -> None:
        record: GenerationRecord | None = None
        try:
            record = await self._asked(endpoint, ask)
            if record is not None:
                async with self._writing:
                    # Shielded: a thread finishes its write even if nobody waits for it.
                    await asyncio.shield(asyncio.to_thread(self._directory.add, record))
        finally:
            endpoint.active -= 1
            if record is None:  # handed back
                self._queues.hand_back(ask)
            async with self._changed:
                self._changed.notify_all()
        if record is not None:
            self._count(ask, record)
        async with self._changed:
            self._changed.notify_all()
        if endpoint.dead is not None:
            self._lose(endpoint)

    def _count(self, ask: Ask, record: GenerationRecord) -> None:
        """Act on a record that is on disk."""
        model = self._queues.model_of(ask)
        self._ledger.add(record)
        self._queues.done(ask)
        self.retries += record.attempts - 1
        self._want(self._ledger.missing(ask.key))
        if self._cutting[model] and not self._ledger.cuts(model):
            self._cutting[model] = False
            self._stop_cutting(model)
        self._heard(record)

    def _stop_cutting(self, model: str) -> None:
        """Ask at every limit from now on, also again where answers were cut."""
        self._note(
            f"{model}: answers under real limits differ from cut ones; every budget is asked from"
            " now on"
        )
        self._queues.drop_checks(model)
        for question in self._plan.questions:
            for sample in range(1, self._plan.samples + 1):
                for variant in self._plan.variants:
                    if variant.model == model:
                        self._want(self._ledger.missing(Key(question, variant.name, sample)))

    def _lose(self, endpoint: OpenEndpoint) -> None:
        """Continue without an endpoint. Raises its error if its model has no other endpoint."""
        assert endpoint.dead is not None
        others = [
            one.name for one in self._endpoints if one.model == endpoint.model and one.dead is None
        ]
        if not others:
            raise endpoint.dead
        self._note(
            f"endpoint {endpoint.name} is lost: {endpoint.dead.message};"
            f" its questions go to {', '.join(others)}"
        )

    async def _asked(self, endpoint: OpenEndpoint, ask: Ask) -> GenerationRecord | None:
        """Ask once; return None if another endpoint must be asked."""
        began, client = time.monotonic_ns(), endpoint.client
        try:
            answered = await generate_with_retries(
                client,
                self._request(ask),
                timeout=self._timeout_s,
                attempts=self._attempts,
            )
        except TryAgain as error:
            async with endpoint.restarting:
                if endpoint.client is not client:  # restarted meanwhile, for another question
                    return None
                is_lost = endpoint.dead is None and await self._is_lost(endpoint)
                if is_lost and await self._restarted(endpoint):
                    return None
            if is_lost:
                endpoint.dead = HostError(
                    f"endpoint {endpoint.name}: {error.message}",
                    hint="check the server, then `labctl resume`: answers so far are kept",
                    details=error.details,
                )
            if endpoint.dead is not None or self._may_succeed_elsewhere(endpoint, ask):
                return None
            return self._failed(endpoint, ask, error, began, error.attempts)
        except JobError as error:
            return self._failed(endpoint, ask, error, began, 1)
        endpoint.in_a_row = 0
        if endpoint.counted_again < _COUNTED_AGAIN:
            endpoint.counted_again += 1
            await self._count_again(endpoint, answered.generation)
        return self._record(endpoint, ask, answered.generation, answered.attempts)

    async def _count_again(self, endpoint: OpenEndpoint, found: Generation) -> None:
        """Check a server's token count against its tokenizer: budgets depend on it."""
        try:
            check = await check_count(endpoint.client, found)
        except (TryAgain, JobError, ConfigError):
            return  # it answered, but its tokenizer cannot be asked
        if check and not check.agrees:
            endpoint.counted_again = _COUNTED_AGAIN
            self._note(
                f"endpoint {endpoint.name} reports {check.reported} tokens for an answer, its"
                f" tokenizer {check.tokenized}: its budgets may differ from those requested"
            )

    async def _is_lost(self, endpoint: OpenEndpoint) -> bool:
        """Return True if a server no longer answers questions."""
        endpoint.in_a_row += 1
        if endpoint.in_a_row >= _MOST_IN_A_ROW:
            return True
        try:
            async with asyncio.timeout(_IDENTIFY_SECONDS):
                await endpoint.client.identify()
        except (TryAgain, JobError, TimeoutError):
            return True
        return False

    async def _restarted(self, endpoint: OpenEndpoint) -> bool:
        """Restart a lost server if labctl started it, unless it was lost too often."""
        if endpoint.restart is None or endpoint.restarts >= _MOST_RESTARTS:
            return False
        endpoint.restarts += 1
        self._note(f"endpoint {endpoint.name} is lost: restarting")
        former = endpoint.client  # other questions may still wait for it
        try:
            endpoint.client = await asyncio.to_thread(endpoint.restart)
        except LabctlError as error:
            self._note(f"endpoint {endpoint.name} cannot be restarted: {error.message}")
            return False
        endpoint.former.append(former)
        endpoint.in_a_row = 0
        return True

    def _may_succeed_elsewhere(self, endpoint: OpenEndpoint, ask: Ask) -> bool:
        """Return True if another endpoint should try a question that failed here."""
        tried = self._tried.setdefault(ask, set())
        tried.add(endpoint.name)
        return any(
            one.model == endpoint.model and one.dead is None and one.name not in tried
            for one in self._endpoints
        )

    def _request(self, ask: Ask) -> GenerationRequest:
        variant, sampling = self._plan.variant(ask.key.variant), self._sampling
        seed = sampling.seed
        return GenerationRequest(
            prompt=render(
                variant.prompt, self._questions[ask.key.question], self._examples, ask.max_tokens
            ),
            max_tokens=1 if variant.one_token else ask.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=None if seed is None else (seed + ask.key.sample - 1) % (1 << 32),
            stop=variant.prompt.stop_words,
            offsets=variant.cut
            and len(variant.limits) > 1
            and ask.check is None
            and not variant.one_token,
            likeliest=LIKELIEST if variant.one_token else 0,
        )

    def _record(
        self, endpoint: OpenEndpoint, ask: Ask, found: Generation, attempts: int
    ) -> GenerationRecord:
        first = found.arrivals[0] - found.sent_ns if found.arrivals else None
        text, finish = _storable(found.text), found.finish
        letters = None
        if found.likeliest is not None:
            choices = len(self._questions[ask.key.question].choices)
            letters = letter_logprobs(found.likeliest, choices)
            text, finish = max(letters, key=letters.__getitem__, default=""), "stop"
        return GenerationRecord(
            **self._facts(endpoint, ask, found.sent_ns),
            text=text,
            thoughts=_storable(found.thoughts),
            finish=finish,
            letter_logprobs=letters,
            prompt_tokens=found.prompt_tokens,
            drafted_tokens=found.drafted_tokens,
            accepted_tokens=found.accepted_tokens,
            completion_tokens=found.completion_tokens,
            counted_by=found.counted_by,
            token_ids=found.token_ids,
            token_ends=found.token_ends,
            ttft_ns=first,
            total_ns=found.done_ns - found.sent_ns,
            prompt_eval_ns=found.prompt_eval_ns,
            eval_ns=found.eval_ns,
            attempts=attempts,
        )

    def _failed(
        self, endpoint: OpenEndpoint, ask: Ask, error: Exception, began: int, attempts: int
    ) -> GenerationRecord:
        return GenerationRecord(
            **self._facts(endpoint, ask, began),
            text="",
            finish="unknown",
            total_ns=time.monotonic_ns() - began,
            attempts=attempts,
            failure=Failure.of(error),
        )

    def _facts(self, endpoint: OpenEndpoint, ask: Ask, sent_ns: int) -> dict[str, object]:
        ago = timedelta(microseconds=(time.monotonic_ns() - sent_ns) / 1000)
        prompt = self._plan.variant(ask.key.variant).prompt
        return {
            "question": ask.key.question,
            "variant": ask.key.variant,
            "sample": ask.key.sample,
            "max_tokens": ask.max_tokens,
            "stated_budget": prompt.stated(ask.max_tokens),
            "endpoint": endpoint.name,
            "check": ask.check,
            "sent": datetime.now(UTC) - ago,
        }


def _storable(text: str) -> str:
    """Return a text without lone surrogates, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
