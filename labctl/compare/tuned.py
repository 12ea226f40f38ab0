"""Results of a search: the proof of each winner, and what the race says about all settings.

The proof is judged as ``labctl compare`` judges variants of one run, from its fresh pairs alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from labctl.compare.comparison import Row, Verdict
from labctl.compare.likeness import followers
from labctl.compare.sides import Pair, run_sides
from labctl.compare.thresholds import Thresholds
from labctl.compare.verdicts import compare
from labctl.figures.trials import OBJECTIVES, objective_value
from labctl.records.run import RunRecord
from labctl.records.trial import TrialRecord
from labctl.records.tuning import TuningRecord
from labctl.results.summary import good_trials
from labctl.stats.intervals import Interval, student_quantile
from labctl.stats.log_ratio import paired
from labctl.stats.power import repeats_for_difference
from labctl.stats.race import pooled_noise
from labctl.suggestions import listed

#: Gain whose cost is told if nothing is shown.
SMALL_GAIN = 0.03
#: More pairs are not told.
MOST_PAIRS = 1000
_LEVEL = 0.95


@dataclass(frozen=True)
class Proof:
    """The proof of one objective's winner. ``row``: its verdict; None for single trials, or none.

    ``left_out``: pairs whose trials differ in more than the setting, ``unlike``: the keys in which.

    ``gain``: ratio of the figure to the default's; None if it was not measured. ``refused``: why
    the setting is no result, whatever its gain. ``needed``: pairs that show SMALL_GAIN (None: more
    than MOST_PAIRS), and the seconds of the missing ones. ``practical``: smallest
    share that matters.
    """

    objective: str
    setting: str
    gain: float | None
    row: Row | None = None
    pairs: int = 0
    left_out: int = 0
    unlike: tuple[str, ...] = ()
    refused: str = ""
    needed: tuple[int | None, float] | None = None
    practical: float = 0.0

    @property
    def is_shown(self) -> bool:
        """True if the setting is shown to be better than the default."""
        if self.refused or self.gain is None:
            return False
        if self.row is None:  # a peak of memory hardly varies
            return self.gain < 1 - self.practical
        return self.row.verdict is Verdict.FASTER


@dataclass(frozen=True)
class SettingRow:
    """A setting in the race. ``gain``: mean ratio to the default by objective, its interval.

    ``values``: geometric mean of each figure over all good trials, with the half width of its
    interval as a share. ``fate``: why it left, empty for one that stayed.
    """

    setting: str
    rounds: int
    gains: Mapping[str, Interval]
    values: Mapping[str, tuple[float, float | None]]
    fate: str = ""
    on_front: bool = False


@dataclass(frozen=True)
class Tuned:
    """A search with its results; ``parts``: what each change of a winner brings alone."""

    record: TuningRecord
    proofs: tuple[Proof, ...]
    rows: tuple[SettingRow, ...]
    parts: Mapping[str, Interval]
    commands: Mapping[str, tuple[str, ...]]

    @property
    def shown(self) -> list[Proof]:
        """Proofs that show a gain."""
        return [one for one in self.proofs if one.is_shown]

    def changes(self, setting: str) -> str:
        """Return ``threads 4 → 3, repack true → false``."""
        before = self.record.parameters
        return ", ".join(
            f"{key} {_word(before.get(key))} → {_word(value)}"
            for key, value in self.record.settings[setting].items()
        )

    def patch(self, setting: str) -> str:
        """Return the parameters that a recipe needs for a setting."""
        changes = self.record.patches[setting].items()
        return f"parameters: {{{', '.join(f'{key}: {_word(value)}' for key, value in changes)}}}"


def _word(value: object) -> str:
    return (
        "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def tuned(
    run: RunRecord, trials: Sequence[TrialRecord], record: TuningRecord, name: str | None = None
) -> Tuned:
    """Return the results of a search, as far as it has come."""
    by_number = {trial.number: trial for trial in trials}
    rounds = [
        (one.kind, [by_number[n] for n in range(one.first, one.first + len(one.order))
                    if n in by_number])
        for one in record.rounds
    ]  # fmt: skip
    race, proof, parts = (
        [found for kind, found in rounds if kind == wanted and found]
        for wanted in ("race", "proof", "parts")
    )
    settings = _setting_rows(record, trials, race)
    singles = {
        setting: interval
        for setting, own in _by_setting(parts).items()
        if setting != record.default
        and (interval := _paired(record.default, setting, record.objectives[0], own))
    }
    commands = {
        setting: next((one.argv for one in good_trials(trials) if one.variant == setting), ())
        for setting in {*(record.named or {}).values()}
    }
    return Tuned(record, tuple(_proofs(run, record, proof, name)), settings, singles, commands)


def _proofs(
    run: RunRecord, record: TuningRecord, rounds: Sequence[Sequence[TrialRecord]], name: str | None
) -> list[Proof]:
    found: dict[str, Proof] = {}
    sides: dict[str, Pair] = {}
    refused = {one.setting: one.reason for one in record.dropped}
    limits = proof_limits(Thresholds.of_recipe(run.recipe_resolved))
    for objective, setting in (record.named or {}).items():
        whole = [pair for pair in rounds if {one.variant for one in good_trials(pair)}
                 == {record.default, setting}]  # fmt: skip
        varied = frozenset(record.settings[setting])
        unlike = [_unlike(pair, varied) for pair in whole]
        own = [pair for pair, keys in zip(whole, unlike, strict=True) if not keys]
        gain = _single(record.default, setting, objective, own)
        keys = tuple(sorted(set().union(*unlike)))
        why = refused.get(setting, "")
        if whole and not own:
            why = why or f"in all {len(whole)} pairs, the trials differ in {listed(keys)}"
        found[objective] = Proof(
            objective,
            setting,
            gain,
            pairs=len(own),
            left_out=len(whole) - len(own),
            unlike=keys,
            refused=why,
            practical=limits.practical,
        )
        if objective != "memory":
            flat = [trial for pair in own for trial in pair]
            by_variant = {
                one.variant: replace(one, varied=varied) for one in run_sides(run, flat, name)
            }
            if record.default in by_variant and setting in by_variant:
                sides[objective] = (by_variant[record.default], by_variant[setting])
    figures = {id(pair): OBJECTIVES[objective].gate for objective, pair in sides.items()}

    def figures_of(pair: Pair) -> tuple[str, ...]:
        return (figures[id(pair)],)

    judged = compare(sides.values(), figures=figures_of, thresholds=limits)
    for objective, row in zip(sides, judged.rows, strict=True):
        pairs = min(row.left_repeats, row.right_repeats)
        needed = _needed(row, pairs, rounds, limits, len(sides))
        one = found[objective]
        refusal = one.refused or (row.reason if row.verdict is Verdict.UNLIKE else "")
        # Holm's steps give no simultaneous intervals; an equal share of the error does.
        share = replace(limits, error=limits.error / len(sides))
        (alone,) = compare([sides[objective]], figures=figures_of, thresholds=share).rows
        found[objective] = replace(
            one,
            row=replace(row, interval=alone.interval),
            gain=row.ratio,
            pairs=pairs,
            needed=needed,
            refused=refusal,
        )
    return list(found.values())


def proof_limits(limits: Thresholds) -> Thresholds:
    """Return the limits of a proof: nothing that matters is called the same.

    Otherwise a gain between both limits would not be shown, however many pairs show it.
    """
    return replace(limits, same_within=limits.practical)


def _unlike(pair: Sequence[TrialRecord], varied: frozenset[str]) -> set[str]:
    """Return the keys in which two trials differ, without those that a setting changes."""
    left, right = (one.comparability for one in pair)
    differing = {key for key in {*left, *right} if left.get(key) != right.get(key)}
    return differing - varied - followers(varied)


def _needed(
    row: Row, pairs: int, rounds: Sequence[Sequence[TrialRecord]], limits: Thresholds, family: int
) -> tuple[int | None, float] | None:
    """Return the pairs that show a small gain, and the seconds of the missing ones."""
    if not row.noise:
        return None
    needed = repeats_for_difference(
        row.noise, math.log1p(SMALL_GAIN), threshold=limits.practical_log,
        error=limits.error / family, most=MOST_PAIRS,
    )  # fmt: skip
    if needed is None:
        return None, math.inf
    seconds = fmean(sum((one.took_ns or 0) / 1e9 for one in pair) for pair in rounds)
    return needed, max(0, needed - pairs) * seconds


def _single(
    default: str, setting: str, objective: str, rounds: Iterable[Sequence[TrialRecord]]
) -> float | None:
    """Return the ratio of the first pair."""
    for pair in rounds:
        values = {one.variant: OBJECTIVES[objective].of(one) for one in good_trials(pair)}
        own, base = values.get(setting), values.get(default)
        if own and base:
            return own / base
    return None


def _paired(
    default: str, setting: str, objective: str, rounds: Iterable[Sequence[TrialRecord]]
) -> Interval | None:
    """Return the ratio to the default of the same rounds; None for fewer than two."""
    figure, own, base = OBJECTIVES[objective], [], []
    for one in rounds:
        known = ((trial.variant, figure.of(trial) or 0) for trial in good_trials(one))
        values = {variant: value for variant, value in known if value > 0}
        if (mine := values.get(setting)) and (theirs := values.get(default)):
            own.append(mine)
            base.append(theirs)
    return paired(own, base).interval(_LEVEL) if len(own) > 1 else None


def _setting_rows(
    record: TuningRecord, trials: Sequence[TrialRecord], race: Sequence[Sequence[TrialRecord]]
) -> tuple[SettingRow, ...]:
    fates = {one.setting: one.reason for one in (*record.impossible, *record.dropped)}
    good: dict[str, list[TrialRecord]] = {}
    for one in good_trials(trials):
        good.setdefault(one.variant, []).append(one)
    races = _by_setting(race)
    spreads = {one: _spread(one, race) for one in OBJECTIVES}
    names = [record.default, *record.settings, *(one.setting for one in record.impossible)]
    found = []
    for setting in dict.fromkeys(names):
        own, raced = good.get(setting, []), races.get(setting, [])
        values = {}
        for objective, figure in OBJECTIVES.items():
            value = figure.over_all(own)
            if value:
                spread = spreads[objective]
                values[objective] = (value, spread / math.sqrt(len(own)) if spread else None)
        gains = {
            objective: interval
            for objective in record.objectives
            if setting != record.default
            and (interval := _paired(record.default, setting, objective, raced))
        }
        found.append(SettingRow(setting, len(raced), gains, values, fates.get(setting, "")))
    return tuple(replace(row, on_front=_on_front(row, found)) for row in found)


def _by_setting(
    rounds: Iterable[Sequence[TrialRecord]],
) -> dict[str, list[Sequence[TrialRecord]]]:
    """Return the rounds of each setting."""
    found: dict[str, list[Sequence[TrialRecord]]] = {}
    for each in rounds:
        for setting in {one.variant: None for one in each}:
            found.setdefault(setting, []).append(each)
    return found


def _spread(objective: str, race: Sequence[Sequence[TrialRecord]]) -> float | None:
    """Return half the width of the interval of one trial, by the pooled noise of the race."""
    values: dict[str, dict[int, float]] = {}
    for number, each in enumerate(race):
        for one in good_trials(each):
            if (value := objective_value(objective, one)) is not None:
                values.setdefault(one.variant, {})[number] = value
    noise = pooled_noise(values)
    if noise is None:
        return None
    return noise.sigma * student_quantile((1 + _LEVEL) / 2, max(1.0, noise.degrees))


def _on_front(row: SettingRow, rows: Iterable[SettingRow]) -> bool:
    """Return True if no other setting is as good in every figure and better in one."""
    own = _scores(row)
    if not own:
        return False
    others = [other for other in map(_scores, rows) if own.keys() <= other.keys()]
    return not any(
        all(other[one] >= own[one] for one in own) and any(other[one] > own[one] for one in own)
        for other in others
    )


def _scores(row: SettingRow) -> dict[str, float]:
    return {
        one: value if OBJECTIVES[one].better == "higher" else -value
        for one, (value, _) in row.values.items()
    }
