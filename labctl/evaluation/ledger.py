"""State of an evaluation: the answers so far, and the open requests.

It depends only on the journal: the same records give the same state, in the controller that wrote
them and in its successor after a kill.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from labctl.errors import Blame
from labctl.evaluation.budgets import MOST_DISAGREEMENT, can_cut, check_truncation
from labctl.evaluation.plan import Ask, EvaluationPlan, Key, Limit
from labctl.records.evaluation import GenerationRecord, TruncationRecord, TruncationSlots


@dataclass
class _Held:
    """Comparison of a model's cut answers with real limits, with one load of its server."""

    planned: int
    done: int = 0
    disagreements: int = 0

    @property
    def is_bad(self) -> bool:
        return self.disagreements > MOST_DISAGREEMENT * self.planned


@dataclass
class Ledger:
    """All answers so far, and the requests that follow from them."""

    plan: EvaluationPlan
    answered: int = 0
    #: Requests that the server refused; they get no answer, and are not repeated.
    refused: set[Ask] = field(default_factory=set)
    #: Requests that failed because of host or server. A resume repeats them.
    failed: set[Ask] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._variants = {variant.name: variant for variant in self.plan.variants}
        #: Limit of each generation -> the limits that it serves.
        self._seen: dict[Key, dict[Limit, frozenset[Limit]]] = {}
        self._checks_done: set[Ask] = set()
        #: Checks that wait for the long answer, and long answers that wait for their check.
        self._open: dict[Ask, GenerationRecord] = {}
        self._bases: dict[Key, GenerationRecord] = {}
        self._checks: dict[str, list[Ask]] = {}
        self._held: dict[tuple[str, TruncationSlots], _Held] = {}
        for model in dict.fromkeys(variant.model for variant in self.plan.variants):
            self._checks[model] = list(self.plan.checks(model))
            for ask in self._checks[model]:
                assert ask.check is not None
                self._held.setdefault((model, ask.check), _Held(0)).planned += 1
        checked = {ask.key: ask for asks in self._checks.values() for ask in asks}
        self._checked = set(checked)
        #: Models whose answers are no longer cut.
        self._whole: set[str] = set()

    def add(self, record: GenerationRecord) -> None:
        """Take a record of the journal. If a request has two answers, the first counts."""
        ask = ask_of(record)
        if ask.key.variant not in self._variants:
            return
        if record.failure is not None:
            lasting = record.failure.blame is Blame.JOB
            (self.refused if lasting else self.failed).add(ask)
            return
        self.failed.discard(ask)
        if ask.check is None:
            of_key = self._seen.setdefault(ask.key, {})
            if ask.max_tokens in of_key:
                return
            limits = self._variants[ask.key.variant].limits
            of_key[ask.max_tokens] = frozenset(one for one in limits if can_cut(record, one))
            self.answered += 1
            if ask.key in self._checked and ask.max_tokens == self._largest(ask.key):
                self._bases[ask.key] = record
        elif ask not in self._checks_done:
            self._checks_done.add(ask)
            self._open[ask] = record
        self._hold_against(ask.key)

    def _hold_against(self, key: Key) -> None:
        base = self._bases.get(key)
        if base is None:
            return
        for ask in [ask for ask in self._open if ask.key == key]:
            assert ask.check is not None
            real = self._open.pop(ask)
            model = self._variants[key.variant].model
            if not can_cut(base, ask.max_tokens):
                continue  # it is asked at every limit anyway
            held = self._held[model, ask.check]
            held.done += 1
            held.disagreements += len(check_truncation([(base, real)]).differing)
            if held.is_bad:
                self._whole.add(model)

    def _largest(self, key: Key) -> Limit:
        return self._variants[key.variant].limits[-1]

    def cuts(self, model: str) -> bool:
        """Return True if answers of a model are cut: cut answers agreed with real limits so far."""
        return model not in self._whole

    def serving(self, key: Key, limit: Limit) -> tuple[Limit] | None:
        """Return the limit of the generation that serves a limit; None: not yet served."""
        variant, seen = self._variants[key.variant], self._seen.get(key, {})
        if limit in seen:
            return (limit,)
        if limit is None or not variant.cut or variant.model in self._whole:
            return None
        larger = (one for one in variant.limits if one is None or one > limit)
        found = [one for one in larger if limit in seen.get(one, ())]
        return (found[0],) if found else None

    def missing(self, key: Key) -> list[Ask]:
        """Return the requests needed now for one sample of a question, largest limits first."""
        variant = self._variants[key.variant]
        unserved = [one for one in variant.limits[::-1] if self.serving(key, one) is None]
        open_ = [ask for one in unserved if (ask := Ask(key, one)) not in self.refused]
        if not open_ or not variant.cut or variant.model in self._whole:
            return open_
        # The largest limit may serve the others.
        return open_[:1] if open_[0].max_tokens == variant.limits[-1] else open_

    def missing_checks(self, model: str) -> list[Ask]:
        """Return the pending truncation checks of a model."""
        if model in self._whole:
            return []
        gone = self._checks_done | self.refused
        return [ask for ask in self._checks[model] if ask not in gone]

    def is_complete(self, number: int) -> bool:
        """Return True if every variant has all its answers to a question."""
        question = self.plan.questions[number]
        return all(
            self.serving(Key(question, variant.name, sample), limit) is not None
            for variant in self.plan.variants
            for sample in range(1, self.plan.samples + 1)
            for limit in variant.limits
        )

    @property
    def planned(self) -> int:
        """Number of generations, as far as known: more than at first if answers cannot be cut."""
        keys = (
            Key(question, variant.name, sample)
            for question in self.plan.questions
            for variant in self.plan.variants
            for sample in range(1, self.plan.samples + 1)
        )
        return self.answered + len(self.refused) + sum(len(self.missing(key)) for key in keys)

    @property
    def complete_questions(self) -> int:
        """Number of questions that every variant has answered within every budget."""
        return sum(map(self.is_complete, range(len(self.plan.questions))))

    def truncation(self) -> tuple[TruncationRecord, ...]:
        """Return the comparisons of cut answers with real limits; a model's last one decides."""
        return tuple(
            TruncationRecord(
                model=model,
                slots=slots,
                questions=held.done,
                disagreements=held.disagreements,
                cutting=self.cuts(model),
            )
            for (model, slots), held in self._held.items()
            if held.done
        )

    def served(
        self, records: Iterable[GenerationRecord]
    ) -> Iterator[tuple[GenerationRecord, Limit]]:
        """Yield each generation once, with all limits that it serves."""
        given: Counter[Ask] = Counter()
        for record in records:
            ask = ask_of(record)
            if record.failure or record.check or ask.key.variant not in self._variants:
                continue
            given[ask] += 1
            if given[ask] == 1:
                for limit in self._variants[ask.key.variant].limits:
                    if self.serving(ask.key, limit) == (record.max_tokens,):
                        yield record, limit


def ask_of(record: GenerationRecord) -> Ask:
    """Return the request that a generation answers."""
    key = Key(record.question, record.variant, record.sample)
    return Ask(key, record.max_tokens, record.check)
