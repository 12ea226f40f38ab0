"""How often the set of variants that may be the fastest contains the true best."""

import pytest
from simulated_searches import Search, searches, share_with_the_best

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("kind", searches(2, 2))
@pytest.mark.parametrize("repeats", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("cells", [2, 12, 60])
def test_the_true_best_is_in_the_set(kind: str, cells: int, repeats: int) -> None:
    found = share_with_the_best(searches(cells, repeats)[kind], count=2000, seed=repeats)
    print(f"{kind}, {cells} cells, {repeats} repeats: {found:.1%}")
    assert found >= (0.95 if cells == 60 else 0.93)


@pytest.mark.parametrize("repeats", [2, 3, 5, 10])
def test_the_noise_of_the_best_alone_is_no_promise(repeats: int) -> None:
    """The figures of docs/comparing.md: 60 equal cells, one three times as noisy."""
    search = Search([0.0] * 60, [0.06] + [0.02] * 59, repeats)
    found = share_with_the_best(search, count=2000, seed=repeats)
    print(f"the best alone is noisy, {repeats} repeats: {found:.1%}")
    assert found >= 0.75
