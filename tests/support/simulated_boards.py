"""Boards made of numbers: settings with known effects, noise of several shapes, and settings that
fail.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from labctl.compare.comparison import Row, Verdict
from labctl.compare.estimates import estimate_pairs
from labctl.compare.thresholds import Thresholds
from labctl.compare.tuned import proof_limits
from labctl.compare.verdicts import judged
from labctl.stats.proposals import propose
from labctl.stats.race import CUT_OFF, Outcome, Race, Rules

LIMITS = proof_limits(Thresholds(same_within=0.03, practical=0.02))
DEFAULT = "default"

#: Noise of the trial at a time (number of the trial, share of its whole search): a logarithm.
Noise = Callable[[random.Random, int], float]


def normal(sigma: float) -> Noise:
    """Return noise of independent trials."""
    return lambda chance, _: chance.gauss(0, sigma)


def drifting(sigma: float, total: float = 0.15, trials: int = 200) -> Noise:
    """Return noise on a board that becomes slower: by ``total`` over a search."""
    return lambda chance, number: chance.gauss(0, sigma) - total * number / trials


def rhythmic(sigma: float, size: float = 0.04, period: int = 8) -> Noise:
    """Return noise on a board with a periodic load."""
    return lambda chance, n: chance.gauss(0, sigma) + size * math.sin(2 * math.pi * n / period)


def bimodal(sigma: float, size: float = 0.08, share: float = 0.25) -> Noise:
    """Return noise on a board whose trials are sometimes slower, by ``size``."""
    return lambda chance, _: chance.gauss(0, sigma) - size * (chance.random() < share)


SHAPES: Mapping[str, Noise] = {
    "normal 1 %": normal(0.01),
    "normal 3 %": normal(0.03),
    "normal 5 %": normal(0.05),
    "drift, 2 %": drifting(0.02),
    "rhythm, 2 %": rhythmic(0.02),
    "bimodal, 2 %": bimodal(0.02),
}


@dataclass
class Board:
    """A board that knows the gain of each setting, as a logarithm; a trial takes about 1 s.

    ``broken``: settings that fail, hang or run out of memory.
    """

    gains: Mapping[str, float]
    noise: Noise
    chance: random.Random
    broken: Mapping[str, str] = field(default_factory=dict)
    trials: int = 0
    spent: float = 0.0

    def measure(self, setting: str) -> float | None:
        """Run a trial; return the logarithm of its rate. None: it failed."""
        self.trials += 1
        if why := self.broken.get(setting):
            self.spent += CUT_OFF if why == "hangs" else 0.2
            return None
        self.spent += 1.0
        gain = 0.0 if setting == DEFAULT else self.gains[setting]
        return gain + self.noise(self.chance, self.trials)


@dataclass(frozen=True)
class Found:
    """End of a search: the named setting, and its proof's row; None without a proof."""

    winner: str | None
    row: Row | None
    truth: float
    trials: int
    race: Race

    @property
    def is_shown(self) -> bool:
        """True if the winner is shown to be faster."""
        return self.row is not None and self.row.verdict is Verdict.FASTER


def search(
    board: Board,
    budget: float,
    seed: int = 1,
    points: Mapping[str, Mapping[str, int]] | None = None,
) -> Found:
    """Search as `labctl tune` does; with ``points`` (default included), by proposals."""

    def asked(tried: Mapping[str, Sequence[float]], among: Sequence[str], count: int) -> list[str]:
        return propose(points or {}, tried, among, count, seed)

    race = Race(
        Rules(DEFAULT, tuple(board.gains), ("decode",), budget=budget, seed=seed,
              practical=LIMITS.practical_log, propose=asked if points else None)
    )  # fmt: skip
    while (one := race.next_round(board.spent)) is not None:
        outcomes = {}
        for setting in one.order:
            before = board.spent
            value = board.measure(setting)
            logs = None if value is None else {"decode": value}
            reason = board.broken.get(setting, "")
            outcomes[setting] = Outcome(logs, board.spent - before, reason)
        race.finish(outcomes)
    winner = (race.named or {}).get("decode")
    row = None if winner is None else proof_row(race, winner)
    truth = 0.0 if winner is None else board.gains[winner]
    return Found(winner, row, truth, board.trials, race)


def proof_row(race: Race, winner: str) -> Row | None:
    """Judge the pairs of a proof by the comparison's own machinery."""
    values: list[float] = []
    references: list[float] = []
    for one in race.of("proof"):
        found = {name: outcome.logs for name, outcome in one.outcomes.items()}
        if all(found.values()):
            values.append(math.exp(found[winner]["decode"]))
            references.append(math.exp(found[DEFAULT]["decode"]))
    if not values:
        return None
    row = Row(DEFAULT, winner, "tokens_per_second", "tokens/s", True, Verdict.CANT_TELL, "",
              left_repeats=len(values), right_repeats=len(values))  # fmt: skip
    return judged([(row, estimate_pairs(values, references))], LIMITS)[0]


# -- what others do -------------------------------------------------------------------------------


def best_of_one_each(board: Board, budget: float) -> tuple[str, float]:
    """Return the best of one trial each and its claimed gain, over one trial of the default."""
    base = board.measure(DEFAULT) or 0.0
    seen = {setting: value for setting in board.gains
            if board.spent < budget and (value := board.measure(setting)) is not None}  # fmt: skip
    return _claimed({one: [value] for one, value in seen.items()}, [base])


def random_search(board: Board, budget: float) -> tuple[str, float]:
    """Return the setting with the best single trial of random ones, and its claimed gain."""
    base, seen = [board.measure(DEFAULT) or 0.0], dict[str, list[float]]()
    names = list(board.gains)
    while board.spent < budget:
        name = board.chance.choice(names)
        if (value := board.measure(name)) is not None:
            seen.setdefault(name, []).append(value)
    return _claimed({one: [max(values)] for one, values in seen.items()}, base)


def tree_parzen(
    board: Board, budget: float, axes: Mapping[str, Sequence[str]], name_of: Callable[..., str]
) -> tuple[str, float]:
    """Return the best trial of Optuna's TPE, and its claimed gain."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=board.chance.randrange(1 << 30))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    base = board.measure(DEFAULT) or 0.0
    while board.spent < budget:
        trial = study.ask()
        chosen = {axis: trial.suggest_categorical(axis, list(v)) for axis, v in axes.items()}
        value = board.measure(name_of(**chosen))
        study.tell(trial, -1e9 if value is None else value)
    best = study.best_trial
    return name_of(**best.params), best.value - base


def _claimed(seen: Mapping[str, Sequence[float]], base: Sequence[float]) -> tuple[str, float]:
    best = max(seen, key=lambda one: max(seen[one]))
    return best, max(seen[best]) - max(base)
