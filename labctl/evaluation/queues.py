"""Wanted generations of each model, in the order of the requests.

The endpoints of a model share one queue. If a run may end before the last question, no model gets
far ahead of another, so that all are compared on nearly the same questions.
"""

import heapq
import itertools

from labctl.evaluation.plan import Ask, EvaluationPlan

#: Position in the plan, a number that distinguishes equal positions, and the request.
_Item = tuple[tuple[int, int, int], int, Ask]


class Queues:
    """All requests queued or in flight. ``ahead``: most questions between two models; None: any."""

    def __init__(self, plan: EvaluationPlan, ahead: int | None):
        self._plan, self._ahead = plan, ahead
        self._count = itertools.count()
        self._model = {variant.name: variant.model for variant in plan.variants}
        self.models = tuple(dict.fromkeys(self._model.values()))
        self._queued: dict[str, list[_Item]] = {model: [] for model in self.models}
        self._pending: dict[str, set[Ask]] = {model: set() for model in self.models}
        #: Heap of the pending requests; a request that is no longer pending is removed on top.
        self._unfinished: dict[str, list[_Item]] = {model: [] for model in self.models}

    @property
    def left(self) -> int:
        """Number of generations queued or in flight."""
        return sum(map(len, self._pending.values()))

    def model_of(self, ask: Ask) -> str:
        """Return the model of a request."""
        return self._model[ask.key.variant]

    def want(self, ask: Ask) -> None:
        """Queue a request, unless it is queued or in flight."""
        model = self.model_of(ask)
        if ask not in self._pending[model]:
            self._pending[model].add(ask)
            heapq.heappush(self._unfinished[model], self._item(ask))
            self.hand_back(ask)

    def hand_back(self, ask: Ask) -> None:
        """Queue a taken request again."""
        heapq.heappush(self._queued[self.model_of(ask)], self._item(ask))

    def done(self, ask: Ask) -> None:
        """Forget a request that has an answer, or will never have one."""
        self._pending[self.model_of(ask)].discard(ask)

    def is_done(self, model: str) -> bool:
        """Return True if no request of a model is queued or in flight."""
        return not self._pending[model]

    def has_next(self, model: str) -> bool:
        """Return True if a request of a model may be sent now."""
        queued = self._queued[model]
        if not queued or self._ahead is None:
            return bool(queued)
        others = [self._first(other) for other in self.models if other != model]
        first = min((place for place in others if place is not None), default=None)
        return first is None or queued[0][0][0] <= first + self._ahead

    def next(self, model: str) -> Ask:
        """Take the first request of a model's queue, which must not be empty."""
        return heapq.heappop(self._queued[model])[2]

    def drop_checks(self, model: str) -> None:
        """Forget a model's truncation checks that nobody has taken."""
        queued = self._queued[model]
        for item in [item for item in queued if item[2].check is not None]:
            queued.remove(item)
            self.done(item[2])
        heapq.heapify(queued)

    def _item(self, ask: Ask) -> _Item:
        return self._plan.order(ask), next(self._count), ask

    def _first(self, model: str) -> int | None:
        """Return the position of the first question that a model has not answered."""
        unfinished, pending = self._unfinished[model], self._pending[model]
        while unfinished and unfinished[0][2] not in pending:
            heapq.heappop(unfinished)
        return unfinished[0][0][0] if unfinished else None
