"""Rhythms of runs: found where pairs differ by them, and hardly ever in steady runs."""

import math
import random

import pytest
from simulated_farm import FORMS, rhythm

from labctl.stats.rhythm import find_rhythm

SIGMA = 0.01


def pairs_of(
    chance: random.Random, count: int, level, memory: float = 0.0
) -> list[tuple[float, float]]:  # type: ignore[no-untyped-def]
    """Logarithms of runs with noise of 1 % that remembers (AR(1)), and a level by their number."""
    before, found = chance.gauss(0, SIGMA), []
    for number in range(2 * count):
        found.append(before + level(number))
        before = memory * before + chance.gauss(0, SIGMA * math.sqrt(1 - memory**2))
    return list(zip(found[::2], found[1::2], strict=True))


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("runs", range(2, 9))
def test_rhythms_of_two_to_eight_runs_are_found_in_every_phase(runs: int, form: str) -> None:
    chance = random.Random(runs)
    for phase in range(runs):
        level = rhythm(runs, phase, form)
        changes = [level(number + 1) - level(number) for number in range(0, 2 * runs, 2)]
        found = find_rhythm(pairs_of(chance, 42, level))
        if max(changes) - min(changes) < 1e-9 and abs(changes[0]) < 1e-9:
            assert found is None  # both runs of a pair are alike: nothing to warn of
        else:
            assert found is not None
            assert runs % found.runs == 0
            assert found.swing == pytest.approx(math.log1p(0.08), rel=0.6)


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
def test_steady_and_drifting_runs_have_no_rhythm(memory: float) -> None:
    chance = random.Random(4)
    found = [
        find_rhythm(pairs_of(chance, chance.choice([14, 28, 42]), lambda n: 0.002 * n, memory))
        for _ in range(150)
    ]
    large = [one for one in found if one is not None and one.swing > math.log1p(0.02)]
    assert len(large) <= 2  # by design 0.2 % of any size


def test_few_pairs_show_no_rhythm() -> None:
    assert find_rhythm([]) is None
    assert find_rhythm([(0.0, 0.1)]) is None
    assert find_rhythm([(0.0, 0.0)] * 20) is None
    assert find_rhythm(pairs_of(random.Random(1), 8, rhythm(4, 1, "half"))) is None
    chance = random.Random(2)  # a night whose time ran out may have any number
    for count in range(2, 14):
        find_rhythm(pairs_of(chance, count, rhythm(3, 1, "wave")))
