"""A race: the best of many settings within a budget, and the pairs that prove it.

Pure functions over finished rounds. In a round of the race each remaining setting and the default
run once, in random order, so that drift affects all equally. Of many settings, a proposer says
which ones to try before, and the best of them are raced. Dropping a setting costs efficiency
only: nothing that the race measured is used again in the proof. The proof measures each named
setting and the default in fresh pairs.
"""

import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from statistics import fmean
from typing import Literal

from labctl.stats.intervals import student_quantile
from labctl.stats.power import MOST_REPEATS, repeats_for_difference
from labctl.stats.scatter import Scatter, pooled_scatter

#: Confidence, one-sided, with which a setting is behind the leader before it is dropped.
CONFIDENCE = 0.9
#: Rounds before a setting is dropped by its difference.
LEAST_ROUNDS = 3
#: Trials of the default before the race: the first warms the board, the second is timed.
_FIRST = 2
#: A search ends after so many failures of the default, one after the other.
MOST_FAILURES = 3
#: A trial is ended after this many times the default's time.
CUT_OFF = 3.0
#: Share of the budget for the race, and more if the proof needs less than the rest.
RACE_SHARE = 0.5
#: Factor of the longest time of a setting: the predicted upper time of its next trial.
_LONGER = 1.25
#: Alternating fits of settings and rounds; each halves what is left, at least.
_FITS = 8
#: Proposed settings in one round; the next proposals know what it measured.
_PROPOSED = 10
#: Gain that the proof should be able to show, beyond the smallest one that matters.
_FINER = 0.01

Kind = Literal["guard", "first", "try", "race", "proof", "parts"]


@dataclass(frozen=True)
class Outcome:
    """A finished trial. ``logs``: logarithm by objective, greater is better; None if it failed."""

    logs: Mapping[str, float] | None
    seconds: float
    reason: str = ""
    #: It needs a trial of kind guard before its proof.
    is_odd: bool = False


@dataclass(frozen=True)
class Round:
    """Settings that run one after the other; ``outcomes`` of the finished ones."""

    kind: Kind
    order: tuple[str, ...]
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)


@dataclass(frozen=True)
class Dropped:
    """A setting that left the race after ``rounds`` rounds."""

    setting: str
    rounds: int
    reason: str


@dataclass(frozen=True)
class Rules:
    """The task. ``default`` is a setting too.

    Args:
        settings: all settings, without the default.
        paired: objectives that are judged from pairs; ``single``: objectives that one trial shows.
        budget: seconds.
        lower: objectives whose smaller figure is better.
        practical: logarithm of the smallest gain that matters.
        parts: setting -> settings that each have one part of it.
        is_guarded: odd settings get a trial of kind guard before they are named, the default first.
        propose: (setting -> values of the objectives, settings to choose from, number) -> the
            settings to try next; None: all are raced.
    """

    default: str
    settings: tuple[str, ...]
    paired: tuple[str, ...]
    single: tuple[str, ...] = ()
    lower: Collection[str] = ()
    budget: float = math.inf
    seed: int = 1
    practical: float = math.log(1.02)
    parts: Callable[[str], Sequence[str]] = lambda _setting: ()
    is_guarded: bool = False
    propose: Callable[[Mapping[str, Sequence[float]], Sequence[str], int], Sequence[str]] | None = (
        None
    )

    @property
    def objectives(self) -> tuple[str, ...]:
        """All objectives."""
        return (*self.paired, *self.single)

    @property
    def error(self) -> float:
        """Error of one objective's proof, if all count (Holm's first step)."""
        return 0.05 / max(1, len(self.paired))

    def shuffled(self, settings: Iterable[str], number: int) -> tuple[str, ...]:
        """Return the random order of a round; the same seed and number give the same order."""
        order = sorted(settings)
        random.Random(f"{self.seed}/{number}").shuffle(order)  # noqa: S311 - not for secrets
        return tuple(order)


@dataclass
class Race:
    """The state of a search: finished rounds and the decisions made from them."""

    rules: Rules
    rounds: list[Round] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    #: Objective -> the one setting whose proof is measured; None: the race goes on.
    named: dict[str, str] | None = None
    #: Pairs of the proof, planned before its first one.
    pairs: int = 0
    #: Time of the search over that of its trials alone.
    overhead: float = 1.0

    # -- what is known ----------------------------------------------------------------------------

    def of(self, kind: Kind) -> list[Round]:
        """Return the rounds of a kind; without the default's value a round is done again."""
        return [one for one in self.rounds if one.kind == kind and self._has_default(one)]

    def _has_default(self, one: Round) -> bool:
        found = one.outcomes.get(self.rules.default)
        return found is None or found.logs is not None

    @property
    def timed(self) -> list[Round]:
        """The rounds that measure speed."""
        return [one for one in self.rounds if one.kind != "guard"]

    @property
    def guarded(self) -> set[str]:
        """Settings that passed the guard."""
        found = (item for one in self.of("guard") for item in one.outcomes.items())
        return {setting for setting, outcome in found if outcome.logs is not None}

    @property
    def guard_time(self) -> float:
        """The predicted upper seconds of a trial of the guard; 0 if unknown."""
        found = [each.seconds for one in self.of("guard") for each in one.outcomes.values()]
        return self.overhead * _LONGER * max(found, default=0.0)

    def _is_odd(self, setting: str) -> bool:
        outcomes = (one.outcomes.get(setting) for one in self.of("race"))
        is_odd = any(one.is_odd for one in outcomes if one is not None)
        return is_odd and setting not in self.guarded

    @property
    def failures(self) -> int:
        """The last trials of the default, as far as they failed one after the other."""
        known = [one for one in self.timed if self.rules.default in one.outcomes]
        return sum(1 for _ in takewhile(lambda one: not self._has_default(one), reversed(known)))

    @property
    def alive(self) -> list[str]:
        """Settings still in the race, without the default."""
        gone = {one.setting for one in self.dropped}
        return [one for one in self.rules.settings if one not in gone]

    def values(self, objective: str, kind: Kind = "race") -> dict[str, dict[int, float]]:
        """Return the values of the rounds of a kind: setting -> round -> logarithm."""
        found: dict[str, dict[int, float]] = {}
        for number, one in enumerate(self.of(kind)):
            for setting, outcome in one.outcomes.items():
                if outcome.logs is not None and objective in outcome.logs:
                    found.setdefault(setting, {})[number] = outcome.logs[objective]
        return found

    def noise(self, objective: str) -> Scatter | None:
        """Return the noise of a trial, pooled over settings and rounds; None if unknown."""
        return pooled_noise(self.values(objective))

    def ranking(
        self, objective: str, settings: Collection[str], kind: Kind = "race"
    ) -> list[tuple[str, float]]:
        """Return settings with their mean gain over the default, the best first.

        Only rounds that have both count.
        """
        values = self.values(objective, kind)
        base = values.get(self.rules.default, {})
        found = []
        for setting in settings:
            both = values.get(setting, {}).keys() & base.keys()
            if both:
                own = values[setting]
                found.append((setting, fmean(own[number] - base[number] for number in both)))
        return sorted(found, key=lambda one: -one[1])

    def expected(self, settings: Iterable[str]) -> float:
        """Return the predicted seconds of one trial of each setting, in all."""
        known = self._times()
        usual = fmean(known[self.rules.default]) if self.rules.default in known else 0.0
        seconds = sum(fmean(known[one]) if one in known else usual for one in settings)
        return self.overhead * seconds

    def upper(self, setting: str) -> float:
        """Return the predicted upper time of a setting's next trial in s; 0 if unknown."""
        known = self._times()
        base = known.get(self.rules.default)
        own = _LONGER * max(known[setting]) if setting in known else None
        if base is None or setting == self.rules.default:
            return self.overhead * (own or 0.0)
        most = CUT_OFF * max(base)
        return self.overhead * (most if own is None else min(own, most))

    def least_time(self) -> float | None:
        """Return the seconds from now that a search needs; None without a trial of the default."""
        trials = least_trials(bool(self.rules.paired)) - min(len(self.timed), _FIRST)
        return trials * self.upper(self.rules.default) or None

    def _times(self) -> dict[str, list[float]]:
        """Return the seconds of all trials; the first one is cold, and counts while it is alone."""
        times: dict[str, list[float]] = {}
        warm = [one for one in self.timed[1:] if one.outcomes]
        for one in warm or self.timed:
            for setting, outcome in one.outcomes.items():
                times.setdefault(setting, []).append(outcome.seconds)
        return times

    # -- decisions --------------------------------------------------------------------------------

    def next_round(self, spent: float) -> Round | None:
        """Decide on the next round after ``spent`` seconds, and begin it; None: the search ends.

        All trials of the last round have their outcomes.
        """
        if self.failures >= MOST_FAILURES:
            return None
        trials = [trial.seconds for one in self.rounds for trial in one.outcomes.values()]
        if ran := sum(trials):
            self.overhead = max(1.0, spent / ran)
        found = None
        self._drop_failed()
        if self.named is None:
            # Only a leader that passes the guard may drop others.
            enough = LEAST_ROUNDS if self.rules.paired else 1
            found = self._guard_round(spent) if len(self.of("race")) >= enough else None
            if found is None:
                self._drop_behind()
                found = self._race_round(spent) or self._guard_round(spent)
            if found is None:
                self._name(spent)
        if found is None:
            found = self._proof_round(spent) or self._parts_round(spent)
        if found is not None:
            self.rounds.append(found)
        return found

    def finish(self, outcomes: Mapping[str, Outcome]) -> None:
        """Note the outcomes of the last round."""
        self.rounds[-1] = replace(self.rounds[-1], outcomes=dict(outcomes))

    def _drop(self, setting: str, reason: str) -> None:
        self.dropped.append(Dropped(setting, len(self.of("race")), reason))

    def _drop_failed(self) -> None:
        outcomes = self.rounds[-1].outcomes if self.rounds else {}
        for setting in self.alive:
            if setting in outcomes and outcomes[setting].logs is None:
                proof = "" if self.named is None else "in the proof: "
                self._drop(setting, proof + outcomes[setting].reason)

    def _drop_behind(self) -> None:
        """Drop settings that are behind the leader of every objective."""
        rounds = len(self.of("race"))
        if rounds < LEAST_ROUNDS and self.rules.paired:
            return
        behind = [self._behind(objective) for objective in self.rules.objectives]
        for setting in self.alive:
            reasons = [found[setting] for found in behind if setting in found]
            if rounds and len(reasons) == len(behind):
                self._drop(setting, "; ".join(dict.fromkeys(reasons)))

    def _behind(self, objective: str) -> dict[str, str]:
        """Return the settings that one objective does not need any more, with the reason."""
        ranked = self.ranking(objective, [*self.alive, self.rules.default])
        if not ranked:
            return {}
        (leader, best), *others = ranked
        if objective in self.rules.single:  # one trial shows it
            keep = leader if leader != self.rules.default else None
            text = "the default" if keep is None else leader
            return {
                one: self._worse(gain - best, objective, text)
                for one, gain in ranked
                if one not in (keep, self.rules.default)
            }
        noise = self.noise(objective)
        if noise is None:
            return {}
        values, found = self.values(objective), {}
        limit = student_quantile(CONFIDENCE, max(1.0, noise.degrees))
        for setting, _ in others:
            own, first = values[setting], values[leader]
            both = own.keys() & first.keys()
            if setting == self.rules.default or not both:
                continue
            difference = fmean(own[number] - first[number] for number in both)
            if difference + limit * noise.sigma * math.sqrt(2 / len(both)) < 0:
                behind = "the default" if leader == self.rules.default else leader
                found[setting] = self._worse(difference, objective, behind)
        return found

    def _worse(self, difference: float, objective: str, than: str) -> str:
        sign = -1 if objective in self.rules.lower else 1
        return f"{objective} {abs(math.expm1(sign * difference)):.1%} worse than {than}"

    def _race_round(self, spent: float) -> Round | None:
        """Return the next round that the race's share of the budget reaches."""
        done, default = len(self.of("race")), self.rules.default
        if self.rules.is_guarded and not self.rounds:
            return Round("guard", (default,))
        if len(self.of("first")) < _FIRST:
            return Round("first", (default,))
        left = self.rules.budget - self._kept_for_proof() - spent
        is_known = done >= LEAST_ROUNDS and len(self.alive) == 1  # the noise is
        if not self.alive or is_known or (done and not self.rules.paired):
            return None
        if not done and (trying := self._try_round(left)) is not None:
            return trying
        rounds = max(1, LEAST_ROUNDS - done) if self.rules.paired else 1
        if self.expected([default, *self.alive]) * rounds > left:
            if done:
                self._keep_by_rank(left, halve=done < LEAST_ROUNDS)
            else:
                self._draw(left)
        alive = self.alive
        if not alive or self.expected([default, *alive]) > left:
            return None
        return Round("race", self.rules.shuffled([default, *alive], len(self.rounds)))

    def _try_round(self, left: float) -> Round | None:
        """Return trials of proposed settings, as long as they take less time than they leave."""
        default, rounds = self.rules.default, self.of("try")
        names = dict.fromkeys(one for each in rounds for one in each.order)
        tried = {one: self._gains(one) for one in names}
        fresh = [one for one in self.alive if one not in tried]
        spent = self.overhead * sum(o.seconds for one in rounds for o in one.outcomes.values())
        count = int((left - spent) / 2 / (self.expected([default]) or math.inf)) - 1
        if self.rules.propose is None or not fresh or count < 1:
            return None
        found = self.rules.propose(tried, fresh, min(count, _PROPOSED))
        return Round("try", self.rules.shuffled([default, *found], len(self.rounds)))

    def _gains(self, setting: str) -> list[float]:
        """Return what a proposed setting gained; what failed counts as cut off."""
        found = [self.ranking(one, [setting], "try") for one in self.rules.objectives]
        return [gain[0][1] if gain and all(found) else -math.log(CUT_OFF) for gain in found]

    def _kept_for_proof(self) -> float:
        """Return the seconds that the race leaves: half of the budget, or enough for the proof."""
        half = (1 - RACE_SHARE) * self.rules.budget
        if self.rules.paired:
            half = max(half, 4 * self.upper(self.rules.default))  # two pairs
        leaders = {
            ranked[0][0] for one in self.rules.paired if (ranked := self.ranking(one, self.alive))
        }
        pair = sum(self.expected([self.rules.default, one]) for one in leaders)
        half = min(half, _LONGER * pair * self._enough()) if leaders else half
        return half + self.guard_time * sum(map(self._is_odd, leaders))

    def _draw(self, left: float) -> None:
        """Draw as many settings as the time allows, if each round keeps the better half.

        Proposed settings are not drawn: the best of them are kept.
        """
        one, alive = self.expected([self.rules.default]), self.alive
        ranks = self._ranks("try")
        drawn = sorted(ranks, key=lambda setting: ranks[setting])
        drawn = drawn or list(self.rules.shuffled(alive, 0))
        count = len(drawn)
        while count > 1 and one * sum(_halving(count)) > left:
            count -= 1
        for setting in drawn[count:]:
            why = "not drawn" if not ranks else f"rank {ranks[setting]} of those tried"
            self._drop(setting, f"{why}: the budget reaches {count} of {len(drawn)} settings")
        for setting in set(alive) - set(drawn):
            self._drop(setting, f"not proposed: {len(drawn)} others were tried")

    def _keep_by_rank(self, left: float, *, halve: bool) -> None:
        """Keep the best settings, as many as the time allows."""
        ranks = self._ranks("race")
        order = sorted(ranks, key=lambda setting: ranks[setting])
        keep = order[: math.ceil(len(order) / 2)] if halve else order
        while len(keep) > 2 and self.expected([self.rules.default, *keep]) > left:
            keep.pop()
        if self.expected([self.rules.default, *keep]) > left:
            return  # the race is over
        for setting in set(order) - set(keep):
            place = f"rank {ranks[setting]} of {len(order)}"
            self._drop(setting, f"{place}: the budget does not reach another round of all")

    def _ranks(self, kind: Kind) -> dict[str, int]:
        """Return the best rank of each setting in any objective."""
        ranks: dict[str, int] = {}
        for objective in self.rules.objectives:
            for rank, (setting, _) in enumerate(self.ranking(objective, self.alive, kind), 1):
                ranks[setting] = min(rank, ranks.get(setting, rank))
        return ranks

    def _guard_round(self, spent: float) -> Round | None:
        """Return a trial of the guard for a leader that needs one; drop leaders without time."""
        for objective in self.rules.objectives:
            for setting, _ in self.ranking(objective, self.alive):
                if not self._is_odd(setting):
                    break
                if spent + self.guard_time <= self.rules.budget:
                    return Round("guard", (setting,))
                self._drop(setting, "guard: the budget does not reach its divergence")
        return None

    def _name(self, spent: float) -> None:
        """Name one setting for each objective, and plan its pairs."""
        self.named = {}
        for objective in self.rules.objectives:
            ranked = self.ranking(objective, self.alive)
            if ranked:
                self.named[objective] = ranked[0][0]
        proved = [self.named[one] for one in self.rules.paired if one in self.named]
        pair = sum(self.expected([self.rules.default, one]) for one in dict.fromkeys(proved))
        reach = int((self.rules.budget - spent) / pair) if pair else 0
        self.pairs = max(0, min(reach, self._enough(), MOST_REPEATS))

    def _enough(self) -> int:
        """Return the pairs that would show a small gain; more would not tell more."""
        found = [self.needed(objective) or MOST_REPEATS for objective in self.rules.paired]
        return max(found, default=MOST_REPEATS)

    def needed(self, objective: str, gain: float | None = None) -> int | None:
        """Return the pairs that show a true ``gain`` (a logarithm), by the race's noise.

        By default a small one, just above the practical one. None if noise is unknown, or for more
        than MOST_REPEATS.
        """
        noise = self.noise(objective)
        least = self.rules.practical + math.log1p(_FINER)
        if noise is None:
            return None
        return repeats_for_difference(
            noise.sigma, gain or least, threshold=self.rules.practical, error=self.rules.error
        )

    def _proof_round(self, spent: float) -> Round | None:
        """Return the next pair of the finalist that has the fewest."""
        named = self.named or {}
        counts: dict[str, int] = {}
        for setting in named.values():
            own = [one for one in self.of("proof") if setting in one.order]
            is_paired = any(named.get(one) == setting for one in self.rules.paired)
            if setting in self.alive and len(own) < (self.pairs if is_paired else 1):
                counts[setting] = len(own)
        if not counts:
            return None
        pair = (self.rules.default, min(counts, key=lambda setting: counts[setting]))
        if spent + sum(map(self.upper, pair)) > self.rules.budget:
            return None
        return Round("proof", self.rules.shuffled(pair, len(self.rounds)))

    def _parts_round(self, spent: float) -> Round | None:
        """Return a round of what each part of the winners brings alone, if the budget reaches."""
        named = self.named or {}
        parts = [part for one in dict.fromkeys(named.values()) for part in self.rules.parts(one)]
        order = [self.rules.default, *dict.fromkeys(parts)]
        bad = {one.setting for one in self.dropped if one.reason.startswith("failed")}
        order = [one for one in order if one not in bad]
        if len(order) < 2 or spent + sum(map(self.upper, order)) > self.rules.budget:
            return None
        if len(self.of("parts")) >= self.pairs:
            return None
        return Round("parts", self.rules.shuffled(order, len(self.rounds)))


def least_trials(is_paired: bool) -> int:
    """Return the trials of the smallest search: the first ones, one round, and its proof."""
    return _FIRST + 2 + (4 if is_paired else 2)


def pooled_noise(values: Mapping[str, Mapping[int, float]]) -> Scatter | None:
    """Return the robust noise of values by setting and round, without effects of both.

    None if nothing is left over. Settings may have left after some rounds.
    """
    rows = {name: dict(own) for name, own in values.items() if own}
    rounds = {number for own in rows.values() for number in own}
    cells = sum(map(len, rows.values()))
    degrees = cells - len(rows) - len(rounds) + 1
    if degrees < 1:
        return None
    columns = {number: [own for own in rows.values() if number in own] for number in rounds}
    for _ in range(_FITS):
        for own in rows.values():
            centre = fmean(own.values())
            for number in own:
                own[number] -= centre
        for column, members in columns.items():
            centre = fmean(own[column] for own in members)
            for own in members:
                own[column] -= centre
    found = pooled_scatter([list(own.values()) for own in rows.values()])
    if found is None:
        return None
    share = degrees / (cells - len(rows))
    return Scatter(found.sigma / math.sqrt(share), found.degrees * share)


def _halving(count: int) -> Iterable[int]:
    """Yield the number of trials of each round, the default's included."""
    while count > 1:
        yield count + 1
        count = math.ceil(count / 2)
    yield count + 1
