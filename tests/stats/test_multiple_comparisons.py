"""The variants that may be the fastest: the true best is among them, and the set is coherent."""

import random

import pytest
from simulated_searches import Search, searches, share_with_the_best

from labctl.stats.describe import geometric_mean
from labctl.stats.log_ratio import Repeat
from labctl.stats.multiple_comparisons import may_be_best


def variants(*values: list[float], turns: bool = True) -> list[list[Repeat]]:
    """Repeats with these values; ``turns``: in interleaved rounds."""
    return [
        [Repeat(n, 100 * n + place if turns else 100 * place + n, v) for n, v in enumerate(of, 1)]
        for place, of in enumerate(values)
    ]


@pytest.mark.parametrize("kind", searches(2, 2))
@pytest.mark.parametrize(("cells", "repeats"), [(2, 3), (12, 2), (12, 5), (60, 3)])
def test_the_true_best_is_in_the_set(kind: str, cells: int, repeats: int) -> None:
    """A small part of what `make soak` simulates."""
    assert share_with_the_best(searches(cells, repeats)[kind], count=60, seed=cells) >= 0.93


def test_the_set_is_small_where_variants_are_apart() -> None:
    """60 cells, each 1 % slower than the one before: a few may be the best, not the others."""
    chance = random.Random(3)
    found = [may_be_best(searches(60, 3)["drift"].measured(chance)) for _ in range(20)]
    assert sum(map(sum, found)) / 20 < 8
    assert not any(any(one[15:]) for one in found)


def test_no_variant_is_in_the_set_while_one_with_a_smaller_estimate_is_not() -> None:
    """257 ms in, 214 ms out: the noise of a variant alone decides nothing."""
    chance = random.Random(4)
    for _ in range(40):
        noises = [chance.choice((0.005, 0.02, 0.2)) for _ in range(12)]
        measured = Search([0.01 * n for n in range(12)], noises, 3, outliers=0.1).measured(chance)
        estimates = [geometric_mean([one.value for one in repeats]) for repeats in measured]
        kept = [e for e, is_kept in zip(estimates, may_be_best(measured), strict=True) if is_kept]
        assert kept == [e for e in estimates if e <= max(kept)]


def test_a_noisy_variant_has_its_own_noise() -> None:
    """It may be the best although it looks slower; with the others' noise it would be left out."""
    steady = [[100 + n, 100.5 + n, 99.5 + n, 100.2 + n, 99.8 + n] for n in (0, 10, 20, 30, 40)]
    assert may_be_best(variants(*steady)) == [True, False, False, False, False]
    noisy = [85.0, 160, 90, 180, 70]
    assert may_be_best(variants(*steady[:4], noisy))[4]


def test_the_drift_of_rounds_is_no_noise() -> None:
    drifting = [[100.0, 130, 90, 115], [105.0, 136.6, 94.6, 120.8], [110.0, 143, 99.1, 126.6]]
    assert may_be_best(variants(*drifting)) == [True, False, False]
    assert may_be_best(variants(*drifting, turns=False)) == [True, True, True]


def test_few_repeats() -> None:
    assert may_be_best(variants([1.0], [9.0], [5.0])) == [True, True, True]  # nothing shows noise
    some = variants([100.0, 101, 99], [100.5], [150.0], [101.0, 100])
    assert may_be_best(some) == [True, True, False, True]
    assert may_be_best(variants([2.0, 2.0], [2.0, 2.0], [3.0, 3.0])) == [True, True, False]
    assert may_be_best(variants([2.0])) == [True]


def test_a_stop_at_a_precise_result_makes_the_set_no_smaller() -> None:
    chance = random.Random(5)
    measured = searches(12, 6)["apart"].measured(chance)
    plain, stopped = may_be_best(measured), may_be_best(measured, stopped=True)
    assert sum(stopped) >= sum(plain)


def test_an_only_variant_is_the_best() -> None:
    assert may_be_best(variants([1.0, 1.1])) == [True]
    assert may_be_best([]) == []
