"""The race of settings, and its proof, on simulated boards."""

import math
import random
from statistics import fmean

import pytest
from simulated_boards import DEFAULT, SHAPES, Board, Noise, normal, search

from labctl.stats.race import MOST_FAILURES, Outcome, Race, Round, Rules, pooled_noise


def _equal(chance: random.Random, count: int = 24) -> dict[str, float]:
    return {f"s{number}": chance.gauss(0, 0.002) for number in range(count)}


def _one_best(chance: random.Random) -> dict[str, float]:
    others = {f"s{n}": math.log(1 + chance.uniform(-0.2, 0.07)) for n in range(23)}
    return {**others, "best": math.log(1.1)}


@pytest.mark.parametrize("noise", SHAPES.values(), ids=SHAPES.keys())
def test_of_equal_settings_hardly_any_is_shown_to_be_faster(noise: Noise) -> None:
    found = []
    for seed in range(25):
        chance = random.Random(seed)
        found.append(search(Board(_equal(chance), noise, chance), 200, seed))
    assert sum(one.is_shown for one in found) <= 3
    assert all(one.trials <= 200 for one in found)


def test_the_best_setting_wins_and_its_gain_is_not_exaggerated() -> None:
    found = []
    for seed in range(20):
        chance = random.Random(seed)
        found.append(search(Board(_one_best(chance), normal(0.02), chance), 200, seed))
    assert sum(one.winner == "best" for one in found) >= 19
    assert all(one.is_shown for one in found)
    errors = [math.log(one.row.ratio) - one.truth for one in found if one.row and one.row.ratio]
    assert abs(fmean(errors)) < 0.01


def test_settings_that_fail_leave_after_one_trial() -> None:
    chance = random.Random(3)
    broken = {"s0": "failed: out of memory", "s1": "slower than 3 times", "s2": "hangs"}
    board = Board(_one_best(chance), normal(0.02), chance, broken)
    found = search(board, 200)
    dropped = {one.setting: (one.rounds, one.reason) for one in found.race.dropped}
    assert {name: dropped[name] for name in broken} == {n: (1, why) for n, why in broken.items()}
    assert found.winner == "best"


def test_nothing_is_reused_in_the_proof_and_its_order_is_random() -> None:
    chance = random.Random(5)
    race = search(Board(_one_best(chance), normal(0.02), chance), 200).race
    orders = {one.order for one in race.of("proof")}
    assert orders == {(DEFAULT, "best"), ("best", DEFAULT)}
    assert len(race.of("proof")) == race.pairs
    kinds = [one.kind for one in race.rounds]
    assert kinds == sorted(kinds, key=("first", "race", "proof", "parts").index)


def test_a_small_budget_halves_by_rank_or_draws() -> None:
    chance = random.Random(1)
    race = search(Board(_one_best(chance), normal(0.02), chance), 40).race
    reasons = " ".join(one.reason for one in race.dropped)
    assert "not drawn: the budget reaches" in reasons
    assert "the budget does not reach another round of all" in reasons
    sizes = [len(one.order) - 1 for one in race.of("race")]
    assert sizes[1] <= math.ceil(sizes[0] / 2)
    assert sizes == sorted(sizes, reverse=True)


def test_no_trial_begins_that_could_end_after_the_budget() -> None:
    chance = random.Random(2)
    found = search(Board(_one_best(chance), normal(0.02), chance), 61)
    assert found.trials <= 61
    race = Race(Rules(DEFAULT, ("a",), ("decode",), budget=10))
    assert race.next_round(0) == Round("first", (DEFAULT,))
    race.finish({DEFAULT: Outcome({"decode": 0.0}, 4.0)})
    assert race.next_round(4.0) == Round("first", (DEFAULT,))
    race.finish({DEFAULT: Outcome({"decode": 0.0}, 3.0)})
    assert race.next_round(7.0) is None  # one round takes 6 s


def test_the_first_trial_is_cold_and_tells_no_time() -> None:
    race = Race(Rules(DEFAULT, tuple(f"s{n}" for n in range(24)), ("decode",), budget=900))
    spent, chance = 0.0, random.Random(1)
    while (one := race.next_round(spent)) is not None:
        seconds = 40.0 if not spent else 4.0
        race.finish({
            name: Outcome({"decode": chance.gauss(0.1 * (name == "s0"), 0.02)}, seconds)
            for name in one.order
        })  # fmt: skip
        spent += seconds * len(one.order)
    assert not [one for one in race.dropped if one.reason.startswith("not drawn")]
    assert race.named == {"decode": "s0"}
    assert race.upper(DEFAULT) < 10


def test_a_round_in_which_the_default_failed_is_done_again() -> None:
    race, chance = Race(Rules(DEFAULT, ("a", "b"), ("decode",), budget=100)), random.Random(1)
    spent, failing = 0.0, {4, 8}
    while (one := race.next_round(spent)) is not None:
        bad = len(race.rounds) in failing
        race.finish({
            name: Outcome(None if bad and name == DEFAULT else
                          {"decode": chance.gauss(0.2 * (name == "a"), 0.01)}, 1.0, "failed")
            for name in one.order
        })  # fmt: skip
        assert race.failures == bad
        spent += len(one.order)
    assert len(race.of("proof")) == race.pairs
    assert sum(one.kind == "proof" for one in race.rounds) == race.pairs + 1
    assert sum(one.kind == "race" for one in race.rounds) == len(race.of("race")) + 1
    always = Race(Rules(DEFAULT, ("a",), ("decode",), budget=100))
    while always.next_round(0) is not None:
        always.finish({DEFAULT: Outcome(None, 1.0)})
    assert always.failures == len(always.rounds) == MOST_FAILURES


def test_one_alternative_is_raced_until_its_noise_is_known() -> None:
    race, chance, spent = Race(Rules(DEFAULT, ("a",), ("decode",), budget=600)), random.Random(1), 0
    while (one := race.next_round(spent)) is not None:
        race.finish({n: Outcome({"decode": chance.gauss(0.1 * (n == "a"), 0.01)}, 1.0)
                     for n in one.order})  # fmt: skip
        spent += len(one.order)
    assert len(race.of("race")) == 3
    assert race.noise("decode") is not None
    assert 2 <= len(race.of("proof")) < 100


@pytest.mark.parametrize("objective", ["memory", "energy"])
def test_reasons_say_what_is_worse(objective: str) -> None:
    paired, single = ((), (objective,)) if objective == "memory" else ((objective,), ())
    race = Race(Rules(DEFAULT, ("a", "b"), paired, single, [objective], budget=100))
    sizes, spent = {DEFAULT: 100, "a": 200, "b": 80}, 0
    while (one := race.next_round(spent)) is not None:
        race.finish({n: Outcome({objective: -math.log(sizes[n])}, 1.0) for n in one.order})
        spent += len(one.order)
    assert [one.reason for one in race.dropped] == [f"{objective} 150.0% worse than b"]


def test_the_smallest_budget_reaches_two_pairs() -> None:
    for settings in (1, 3, 24):
        names = tuple(f"s{number}" for number in range(settings))
        race, chance, spent = (
            Race(Rules(DEFAULT, names, ("decode",), budget=9.6)),
            random.Random(2),
            0,
        )
        while (one := race.next_round(spent)) is not None:
            assert len(race.rounds) != 3 or spent + (race.least_time() or 0) <= 9.6
            race.finish({n: Outcome({"decode": chance.gauss(0, 0.01)}, 1.0) for n in one.order})
            spent += len(one.order)
        assert len(race.of("proof")) == race.pairs == 2


def test_a_slower_field_ends_without_a_proof() -> None:
    chance = random.Random(4)
    gains = {f"s{number}": math.log(0.8) for number in range(8)}
    found = search(Board(gains, normal(0.01), chance), 200)
    assert (found.winner, found.row, found.race.named) == (None, None, {})
    assert found.trials == 2 + 3 * 9


def test_peak_memory_needs_one_trial() -> None:
    race = Race(Rules(DEFAULT, ("a", "b"), (), ("memory",), budget=100))
    sizes = {DEFAULT: 0.0, "a": 0.2, "b": -0.1}
    kinds: list[str] = []
    while (one := race.next_round(len(kinds))) is not None:
        kinds.append(one.kind)
        race.finish({name: Outcome({"memory": sizes[name]}, 1.0) for name in one.order})
    assert kinds == ["first", "first", "race", "proof"]
    assert race.named == {"memory": "a"}


def test_parts_of_the_winner_are_measured_alone_if_the_budget_reaches() -> None:
    gains = {"a": math.log(1.1), "b": math.log(1.0), "a-b": math.log(1.12)}
    chance = random.Random(1)
    board = Board(gains, normal(0.005), chance)
    race = Race(Rules(DEFAULT, tuple(gains), ("decode",), budget=100,
                      parts=lambda one: ("a", "b") if one == "a-b" else ()))  # fmt: skip
    while (one := race.next_round(board.spent)) is not None:
        values = {name: board.measure(name) for name in one.order}
        race.finish({n: Outcome({"decode": v or 0.0}, 1.0) for n, v in values.items()})
    assert race.named == {"decode": "a-b"}
    assert {frozenset(one.order) for one in race.of("parts")} == {frozenset({DEFAULT, "a", "b"})}


def test_the_pooled_noise_has_no_effects_of_rounds_and_settings() -> None:
    chance = random.Random(1)
    drift = [chance.gauss(0, 0.1) for _ in range(8)]
    values = {
        f"s{setting}": {n: setting / 10 + drift[n] + chance.gauss(0, 0.02) for n in range(last)}
        for setting, last in enumerate([8, 8, 8, 8, 8, 3, 3, 3, 3, 3])
    }
    noise = pooled_noise(values)
    assert noise is not None
    assert noise.sigma == pytest.approx(0.02, rel=0.3)
    assert pooled_noise({"a": {0: 1.0}, "b": {0: 2.0}}) is None
