"""False alarms and finds of 500 nights, by their noise and the number of their rows."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulated_farm import DISTURBANCES, Nights, simulate, simulate_searches

pytestmark = pytest.mark.soak

NIGHTS = 500
#: Without a false alarm in so many nights, the upper 95 % limit of their share is 0.2 %.
DISTURBED_NIGHTS = int(os.environ.get("LABCTL_SOAK_NIGHTS", "1500"))
WORKERS = os.cpu_count() or 1
#: In memory, where there is such a folder: what a disk takes to keep a line is not simulated.
IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as name:
        yield Path(name)


def shown(name: str, found: Nights) -> Nights:
    print(f"{name}: {found}")
    return found


@pytest.mark.parametrize("sigma", [0.01, 0.02, 0.03])
def test_500_nights_of_20_rows(folder: Path, sigma: float) -> None:
    found = simulate(folder, NIGHTS, rows=20, sigma=sigma, planted=True, seed=15, workers=WORKERS)
    shown(f"seed 15, sigma {sigma:.0%}, 20 rows, one 5 % slower", found)
    assert found.found >= 484
    assert found.false <= 1
    assert found.blamed_wrong == 0


@pytest.mark.parametrize("rows", [1, 20, 100])
def test_500_nights_without_a_slowdown(folder: Path, rows: int) -> None:
    nights = NIGHTS if rows < 100 else NIGHTS // 5
    found = simulate(folder, nights, rows=rows, sigma=0.02, planted=False, seed=16, workers=WORKERS)
    shown(f"seed 16, sigma 2 %, {rows} rows, none slower", found)
    assert found.false <= 1
    assert found.blamed_wrong == 0


@pytest.mark.parametrize("rows", [1, 100])
def test_nights_of_few_and_many_rows(folder: Path, rows: int) -> None:
    nights = NIGHTS if rows < 100 else NIGHTS // 5
    found = simulate(folder, nights, rows=rows, sigma=0.02, planted=True, seed=17, workers=WORKERS)
    shown(f"seed 17, sigma 2 %, {rows} rows, one 5 % slower", found)
    assert found.found >= 0.968 * nights
    assert found.false <= 1


@pytest.mark.parametrize("sigma", [0.01, 0.02, 0.03])
def test_500_searches_for_a_commit(folder: Path, sigma: float) -> None:
    found = simulate_searches(folder, NIGHTS, sigma=sigma, seed=18, workers=WORKERS)
    print(f"seed 18, sigma {sigma:.0%}, 2 to 64 commits: {found}")
    assert found.right >= 0.95 * found.searched
    assert found.wrong + found.missed <= 0.01 * found.searched


def test_searches_with_commits_that_do_not_build(folder: Path) -> None:
    found = simulate_searches(
        folder, NIGHTS, sigma=0.02, unbuildable=0.15, seed=19, workers=WORKERS
    )
    print(f"seed 19, sigma 2 %, 15 % of the commits do not build: {found}")
    assert found.wrong + found.missed <= 0.01 * found.searched
    assert found.right + found.ranges >= 0.99 * found.searched


@pytest.mark.parametrize("disturbed", sorted(DISTURBANCES))
def test_no_disturbance_of_all_boards_makes_a_false_alarm(folder: Path, disturbed: str) -> None:
    found = simulate(
        folder,
        DISTURBED_NIGHTS,
        rows=2,
        sigma=0.02,
        planted=False,
        with_faults=False,
        disturbed=disturbed,
        seed=20,
        workers=WORKERS,
    )
    shown(f"seed 20, sigma 2 %, 2 rows, none slower, {disturbed}", found)
    assert found.false == 0
    assert found.blamed_wrong == 0


@pytest.mark.parametrize("disturbed", sorted(DISTURBANCES))
def test_a_slowdown_is_found_within_two_nights_where_a_row_is_judged(
    folder: Path, disturbed: str
) -> None:
    found = simulate(
        folder,
        DISTURBED_NIGHTS // 5,
        rows=2,
        sigma=0.02,
        planted=True,
        with_faults=False,
        disturbed=disturbed,
        seed=21,
        workers=WORKERS,
    )
    shown(f"seed 21, sigma 2 %, 2 rows, one 5 % slower, {disturbed}", found)
    assert found.false == 0
    assert found.found_in_two >= 0.95


@pytest.mark.parametrize("disturbed", sorted(DISTURBANCES))
def test_no_disturbance_names_an_innocent_commit(folder: Path, disturbed: str) -> None:
    found = simulate_searches(
        folder, DISTURBED_NIGHTS // 5, sigma=0.02, disturbed=disturbed, seed=22, workers=WORKERS
    )
    print(f"seed 22, sigma 2 %, {disturbed}: {found}")
    assert found.wrong == 0


@pytest.mark.parametrize("rows", [1, 4])
def test_sound_boards_are_called_looping_in_less_than_one_month_of_a_hundred(
    folder: Path, rows: int
) -> None:
    found = simulate(
        folder, DISTURBED_NIGHTS, rows=rows, sigma=0.02, planted=True, with_faults=False, seed=23,
        workers=WORKERS,
    )  # fmt: skip
    shown(f"seed 23, sigma 2 %, {rows} rows, one 5 % slower, sound boards", found)
    boards = min(5, max(2, rows)) if rows > 1 else 1
    assert found.looping <= 0.01 / 30 * DISTURBED_NIGHTS * boards + 2
