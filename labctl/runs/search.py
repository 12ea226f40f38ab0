"""A search in a run: it decides after each round which trials come next.

``tuning.json`` has each decision before a trial follows from it. What the trials measured is in
their records, so a killed search continues with the same state.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from labctl.config.recipe_parts import Variant
from labctl.engines.base import RawOutput
from labctl.errors import ConfigError, JobError
from labctl.figures.trials import OBJECTIVES, objective_value, token_time
from labctl.records.trial import TrialLimit, TrialRecord, TrialState
from labctl.records.tuning import DroppedSetting, TuningRecord, TuningRound
from labctl.runs.context import RunContext
from labctl.runs.planning.settings import guard_slug, guard_trial, trial_of, variants_of
from labctl.runs.planning.time_limits import CUT_OFF_SOURCE, MAX_TIME
from labctl.runs.planning.trials import PlannedTrial
from labctl.stats.power import MOST_REPEATS, least_difference
from labctl.stats.proposals import MOST_WITHOUT, propose
from labctl.stats.race import (
    CUT_OFF,
    MOST_FAILURES,
    Dropped,
    Outcome,
    Race,
    Round,
    Rules,
    least_trials,
)
from labctl.units import duration

#: A proof that shows only larger gains needs a larger budget or a shorter workload.
_COARSE = 0.2
#: Judged by one trial of each setting: it hardly varies.
_SINGLE = ("memory",)


def begin_search(context: RunContext, record: TuningRecord) -> None:
    """Let a search decide on the trials of a run."""
    search = Search(record, context)
    context.search = search
    context.clock.cut_off = search.limit


@dataclass
class Search:
    """The search of a run."""

    record: TuningRecord
    context: RunContext
    race: Race = field(init=False)
    variants: Mapping[str, Variant] = field(init=False)
    #: Digests of texts, by trial.
    _texts: dict[int, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        record = self.record
        self.variants = {variant.slug: variant for variant in variants_of(record)}
        comparison = self.context.prepared.recipe.comparison
        rules = Rules(
            record.default,
            tuple(record.settings),
            tuple(one for one in record.objectives if one not in _SINGLE),
            tuple(one for one in record.objectives if one in _SINGLE),
            [one for one in record.objectives if OBJECTIVES[one].better == "lower"],
            record.budget_s,
            record.seed,
            math.log1p(comparison.practical),
            self._parts,
            record.divergence is not None,
            self._propose if len(record.settings) > MOST_WITHOUT else None,
        )
        self.race = Race(
            rules,
            [Round(one.kind, one.order) for one in record.rounds],
            [Dropped(one.setting, one.rounds, one.reason) for one in record.dropped],
            None if record.named is None else dict(record.named),
            record.pairs,
        )

    def _parts(self, setting: str) -> list[str]:
        """Return the settings that have one change of a setting each, if it has several."""
        changes = self.record.patches[setting]
        ones = [{key: value} for key, value in changes.items()] if len(changes) > 1 else []
        return [slug for slug, found in self.record.patches.items() if found in ones]

    def _propose(
        self, tried: Mapping[str, Sequence[float]], among: Sequence[str], count: int
    ) -> list[str]:
        """Return the settings to try next, as the finished trials suggest."""
        record = self.record
        keys = {key for patch in record.patches.values() for key in patch}
        points = {
            slug: {key: variant.parameters.get(key) for key in keys}
            for slug, variant in self.variants.items()
        }
        return propose(points, tried, among, count, record.seed)

    def more(self, records: Mapping[int, TrialRecord], planned: int) -> list[PlannedTrial]:
        """Return the trials of the next round, written down first; empty: the search ends.

        ``planned`` trials are in the plan. Raises JobError if the default fails, ConfigError if it
        fails the guard, or if the budget is too small.
        """
        for index, one in enumerate(self.record.rounds):
            if one.first > planned:  # written down, but killed before it was planned
                return self._planned(index, one)
            outcomes = {}
            for number, slug in enumerate(one.order, one.first):
                if number in records and (
                    found := self._outcome(one.kind, slug, records[number], records)
                ):
                    outcomes[slug] = found
            self.race.rounds[index] = Round(one.kind, one.order, outcomes)
        self._refuse_default(records)
        was_named = self.race.named is not None
        following = self.race.next_round(self.context.clock.spent)
        said = self.record.said
        if not was_named and self.race.named is not None:
            said = tuple(self._can_show())
            for text in said:
                self.context.observer.note(text)
        rounds = self.record.rounds
        if following is not None:
            added = TuningRound(kind=following.kind, first=planned + 1, order=following.order)
            rounds = (*rounds, added)
        self.record = self.record.model_copy(
            update={
                "rounds": rounds,
                "dropped": tuple(
                    DroppedSetting(setting=one.setting, rounds=one.rounds, reason=one.reason)
                    for one in self.race.dropped
                ),
                "named": self.race.named,
                "pairs": self.race.pairs,
                "said": said,
            }
        )
        self.context.directory.write_tuning(self.record)
        return [] if following is None else self._planned(len(rounds) - 1, rounds[-1])

    def _planned(self, index: int, one: TuningRound) -> list[PlannedTrial]:
        """Return a round's trials. The first timed round only warms up: it is repeat 0."""
        roles, guard = self.context.forecast.roles, self.context.guard
        repeat = sum(each.kind != "guard" for each in self.record.rounds[:index])
        numbered = enumerate(one.order, one.first)
        if one.kind == "guard" and guard is not None:
            prepared, facts = self.context.prepared, self.context.run.facts
            return [
                guard_trial(number, self.variants[slug], prepared, guard, facts)
                for number, slug in numbered
            ]
        return [trial_of(number, self.variants[slug], repeat, roles) for number, slug in numbered]

    def reason_to_skip(self, trial: PlannedTrial) -> str | None:
        """Return why a trial does not begin: it could end after the budget."""
        upper, spent = self.race.upper(trial.variant.slug), self.context.clock.spent
        if trial.guard:
            upper = self.race.guard_time
        if spent + upper <= self.record.budget_s:
            return None
        left = max(0.0, self.record.budget_s - spent)
        return f"the budget: {left:.1f} s left, such a trial may take {upper:.1f} s"

    def may_drop(self, trial: PlannedTrial) -> bool:
        """Return True if a trial's setting may be dropped whatever ended the trial."""
        return trial.variant.slug not in (self.record.default, guard_slug(self.record.default))

    def limit(self, trial: PlannedTrial) -> TrialLimit | None:
        """Return the limit of a setting's trial, 3 times the default's time; None: no such limit.

        The default's time is that of the same round if it ran before, else of the round before.
        """
        slug = trial.variant.slug
        if trial.guard:
            left = self.record.budget_s - self.context.clock.spent
            return TrialLimit(seconds=max(1.0, left), source=f"{MAX_TIME}: the remaining time")
        seconds = self.context.clock.took_of(self.record.default)
        if slug == self.record.default or seconds is None:
            return None
        source = f"{CUT_OFF_SOURCE} the default's {duration(seconds * 1e9)}"
        return TrialLimit(seconds=max(1.0, CUT_OFF * seconds), source=source)

    def _outcome(
        self, kind: str, slug: str, record: TrialRecord, records: Mapping[int, TrialRecord]
    ) -> Outcome | None:
        """Return what a setting's trial says; None if it did not run."""
        seconds = (record.took_ns or 0) / 1e9
        if record.state is TrialState.SKIPPED:
            cut = (record.skip_reason or "").startswith("slower than")
            if kind == "guard":
                return Outcome(None, seconds, f"guard: not measured: {record.skip_reason}")
            return Outcome(None, seconds, record.skip_reason or "") if cut else None
        if record.state is TrialState.FAILED:
            why = record.failure.message if record.failure else "failed"
            return Outcome(None, seconds, f"failed: {'guard: ' * (kind == 'guard')}{why}")
        if kind == "guard":
            why = too_far(record, self.record.divergence or 0.0)
            return Outcome(None if why else {}, seconds, why)
        is_odd = slug != self.record.default and not self._is_same_text(record, records)
        guarded = kind != "proof" or slug in self.race.guarded
        if is_odd and not (self.race.rules.is_guarded and guarded):
            return Outcome(None, seconds, "guard: other tokens than the default's")
        logs = {
            objective: value
            for objective in self.record.objectives
            if (value := objective_value(objective, record)) is not None
        }
        return Outcome(logs, seconds, is_odd=is_odd)

    def _is_same_text(self, record: TrialRecord, records: Mapping[int, TrialRecord]) -> bool:
        own = self._text(record)
        return all(
            self._text(one) == own
            for one in records.values()
            if one.variant == self.record.default and one.state is TrialState.OK
        )

    def _text(self, record: TrialRecord) -> str | None:
        """Return the digest of the text that a good trial generated."""
        if record.number not in self._texts:
            folder = self.context.directory.trial_path(record.number, record.slug)
            found = self.context.prepared.engine.answer(RawOutput.read(folder))
            digest = None if found is None else hashlib.sha256(found).hexdigest()
            self._texts[record.number] = digest
        return self._texts[record.number]

    def _refuse_default(self, records: Mapping[int, TrialRecord]) -> None:
        """Raise an error if the default cannot be what settings are compared with.

        After its first trials, settings that cannot be faster are dropped.
        """
        self._refuse_guard()
        own = [one for one in records.values() if one.variant == self.record.default]
        failed = [one for one in own if one.failure and one.state is TrialState.FAILED]
        if failed and (len(own) == len(failed) or self.race.failures >= MOST_FAILURES):
            why = failed[-1].failure
            which = "first trial" if len(own) == 1 else f"last {self.race.failures} trials"
            raise JobError(
                f"the default failed in its {which}: {why.message if why else ''}",
                hint="a search needs a default that runs: try it alone with labctl run",
            )
        good = [one for one in own if one.state is TrialState.OK]
        if len({self._text(one) for one in good}) > 1:
            raise ConfigError(
                "the default itself fails the guard: its own trials generated different tokens",
                hint="a search compares settings by tokens that are always the same",
            )
        if not good or {one.kind for one in self.record.rounds} - {"first", "guard"}:
            return
        for objective in self.record.objectives:
            if objective_value(objective, good[0]) is None:
                raise ConfigError(f"the default's trial does not tell {objective}")
        spent, needed = self.context.clock.spent, self.race.least_time() or 0.0
        coming = needed
        if (
            len(good) == 1
        ):  # cold: a warm one may be faster, but not than its tokens after the first
            warm = sum(good[0].timing.token_ns) / 1e9 if good[0].timing else 0.0
            trials = least_trials(bool(self.race.rules.paired)) - 1
            coming = max(self.race.upper(self.record.default), trials * warm)
        if spent + coming > self.record.budget_s:
            raise ConfigError(
                f"the budget of {duration(self.record.budget_s * 1e9)} is too small: the smallest"
                f" search takes about {duration((spent + needed) * 1e9)}",
                hint="raise --budget, or generate fewer tokens: --set tokens=16",
            )
        if len(good) > 1 and self.record.objectives == ("decode",):
            self._drop_slower_than(token_time(good[-1]) or 0)

    def _refuse_guard(self) -> None:
        """Raise an error if the guard of the default, the first trial of all, does not pass."""
        guard = next((one for one in self.race.rounds if one.kind == "guard"), None)
        found = guard.outcomes.get(self.record.default) if guard else None
        if found is None or found.logs is not None:
            return
        if found.reason.startswith("failed"):
            raise JobError(f"the guard of the default {found.reason}")
        if "not measured" in found.reason:
            budget = duration(self.record.budget_s * 1e9)
            raise ConfigError(
                f"the budget of {budget} is too small: {found.reason}",
                hint="raise --budget, or write the logits with fewer --chunks",
            )
        raise ConfigError(
            f"the default itself fails the guard: {found.reason.removeprefix('guard: ')}",
            hint="write files.base_logits with the model and the parameters of the default, or"
            " raise tune.divergence",
        )

    def _drop_slower_than(self, measured_ns: int) -> None:
        """Drop settings whose predicted minimum exceeds the default's measured time per token."""
        roles = self.context.forecast.roles
        for slug in self.race.alive:
            found = self.context.forecast.of(trial_of(0, self.variants[slug], 0, roles))
            # Near the limit of memory two times are predicted.
            if found and found.storage_token_ns is None and found.token_ns > measured_ns:
                reason = (
                    f"physics: at least {duration(found.token_ns)} a token ({found.source}), the"
                    f" default takes {duration(measured_ns)}"
                )
                self.race.dropped.append(Dropped(slug, 0, reason))

    def _can_show(self) -> list[str]:
        """Say, before the proof begins, which gain it can show."""
        rules, found = self.race.rules, []
        for objective in rules.paired:
            setting = (self.race.named or {}).get(objective)
            noise = self.race.noise(objective)
            if setting is None:
                continue
            text = f"the race names {setting} for {objective}"
            if self.race.pairs < 2:
                found.append(f"{text}; the budget does not reach two pairs: nothing can be shown")
                continue
            if noise is None:
                found.append(
                    f"{text}; its rounds are too few to know the noise, so {self.race.pairs} fresh"
                    " pairs follow without a forecast of what they can show"
                )
                continue
            least = math.expm1(
                least_difference(
                    noise.sigma, self.race.pairs, threshold=rules.practical, error=rules.error
                )
            )
            text += (
                f"; {self.race.pairs} fresh pairs at a noise of {noise.sigma:.1%} show a true gain"
                f" of {least:.1%} with a probability of 90 %"
            )
            if least > _COARSE:
                needed = self.race.needed(objective, math.log1p(_COARSE)) or MOST_REPEATS
                text += (
                    f"; a gain of 20 % needs {needed}: raise the budget, or shorten the workload"
                )
            found.append(text)
        return found


def too_far(record: TrialRecord, limit: float) -> str:
    """Return why a measured divergence is too large; empty if it is not.

    Both its value and its two standard errors count.
    """
    measures = record.timing.measures if record.timing else ()
    found = next((one for one in measures if one.name == "kl_divergence"), None)
    if found is None:
        return "guard: no KL divergence was measured"
    error = 2 * (found.error or 0.0)
    if found.value + error <= limit:
        return ""
    return f"guard: KL divergence {found.value:.4g} ± {error:.2g}, more than {limit:g}"
