"""Accepted slowdowns: no alarm until the row is faster again, or slower by as much as it finds."""

from pathlib import Path

import pytest
from simulated_comparisons import realistic
from simulated_farm import SimulatedFarm, Truth, nights_in_a_row

from labctl.config.lab import Lab, LabFile
from labctl.errors import ConfigError
from labctl.farm.nightly.acceptance import accept_slowdown, unaccept_slowdown
from labctl.farm.nightly.executor import GOOD
from labctl.farm.nightly.last_good import new_good_runs
from labctl.farm.nightly.nights import same_programs
from labctl.records.night import NightResult, NightVerdict
from labctl.state.state import lab_state

ROW, PLAN = "llama/r000@b0", "simulated"
COMMITS = {f"c{number}": 0.08 * (number >= 2) for number in range(4)}


def nights(root: Path, count: int, slow: float, **truth: object) -> list[NightResult]:
    """Further nights whose head is slower by so much; the last good stays where it is."""

    def farm(number: int) -> SimulatedFarm:
        return SimulatedFarm(number, realistic(0.01), Truth(slow={ROW: slow}, **truth))  # type: ignore[arg-type]

    return [result for _, result in nights_in_a_row(root, count, farm)]


def lab_of(root: Path) -> LabFile:
    return LabFile(root, Lab(boards={}))


def accept(
    lab: LabFile, source: str, *, ratio: float = 1.08, night: str = "n", good: str = GOOD
) -> None:
    lab_state(lab).accepted.accept(
        PLAN, ROW, "q8", ratio=ratio, night=night, source=source, good=good
    )


@pytest.fixture
def accepted(tmp_path: Path) -> Path:
    """A lab that accepted a slowdown of 8 %."""
    nights(tmp_path, 1, 0.08)
    (made,) = accept_slowdown(lab_of(tmp_path), PLAN, ROW, "the new sampler")
    assert made.ratio == pytest.approx(1.08, abs=0.02)
    return tmp_path


def test_an_accepted_slowdown_is_no_alarm_and_stands_on_the_first_lines(accepted: Path) -> None:
    for result in nights(accepted, 3, 0.08):
        (found,) = result.findings
        assert found.verdict is NightVerdict.GOOD
        assert found.ratio == pytest.approx(1.08, abs=0.02)  # beside the last good
        assert found.accepted == pytest.approx(1.08, abs=0.02)
        assert result.exit_status == 0
        (line,) = result.accepted
        assert "was accepted by" in line
        assert line.endswith(": the new sampler")


def test_an_acceptance_lets_the_last_good_move(accepted: Path) -> None:
    farm = SimulatedFarm(7, realistic(0.01), Truth(slow={ROW: 0.08}))
    ((night, _),) = nights_in_a_row(accepted, 1, lambda _: farm)
    assert new_good_runs(night, "llama", [])


def test_another_slowdown_is_an_alarm_and_ends_the_acceptance(accepted: Path) -> None:
    (result,) = nights(accepted, 1, 0.17)
    assert result.findings[0].verdict is NightVerdict.SLOWER
    assert result.exit_status == 1
    assert lab_state(lab_of(accepted)).accepted.list(PLAN) == []


def test_less_than_another_slowdown_to_find_is_no_alarm(accepted: Path) -> None:
    for result in nights(accepted, 3, 0.118):  # 3.5 % on top of it
        assert result.findings[0].verdict in (NightVerdict.GOOD, NightVerdict.SUSPECTED)
        assert result.exit_status != 1
    assert len(lab_state(lab_of(accepted)).accepted.list(PLAN)) == 1


def test_a_row_that_is_faster_again_ends_the_acceptance(accepted: Path) -> None:
    (result,) = nights(accepted, 1, 0.0)
    assert result.findings[0].verdict is NightVerdict.GOOD
    assert lab_state(lab_of(accepted)).accepted.list(PLAN) == []
    (again,) = nights(accepted, 1, 0.08)
    assert again.findings[0].verdict is NightVerdict.SLOWER


def test_the_commit_of_a_slowdown_beyond_an_accepted_one_is_searched_after_it(
    tmp_path: Path,
) -> None:
    nights(tmp_path, 1, 0.08, commits=COMMITS)
    lab = lab_of(tmp_path)
    accept_slowdown(lab, PLAN, ROW, None)
    (made,) = lab_state(lab).accepted.list(PLAN)
    assert made.source == "head"
    # That head is a commit by now, and two more are on it, of which the first is slow.
    accept(lab, "c3", ratio=made.ratio, night=made.night)
    (result,) = nights(tmp_path, 1, 0.17, commits=COMMITS | {"c4": 0.17, "c5": 0.17})
    (search,) = result.searches
    assert search.first == "c4"


def test_the_last_good_program_again_ends_the_acceptance(accepted: Path) -> None:
    (same,) = nights(accepted, 1, 0.08, same=True)
    assert same.findings[0].verdict is NightVerdict.SAME
    assert same.accepted == ()
    (again,) = nights(accepted, 1, 0.08)
    assert again.findings[0].verdict is NightVerdict.SLOWER


def test_a_slowdown_accepted_beside_another_last_good_hides_nothing(tmp_path: Path) -> None:
    # The last good moved without the row, which is not required; then its slowdown was accepted.
    accept(lab_of(tmp_path), "c0", good="an older one")
    (result,) = nights(tmp_path, 1, 0.08)
    (found,) = result.findings
    assert (found.verdict, found.accepted) == (NightVerdict.SLOWER, None)
    assert result.accepted == ()


def test_a_slowdown_that_is_accepted_while_a_night_runs_stays_so(tmp_path: Path) -> None:
    nights(tmp_path, 1, 0.08)
    farm = SimulatedFarm(7, realistic(0.01), Truth(slow={ROW: 0.08}))

    def accept_at_first_run() -> None:
        if not farm.runs:
            accept_slowdown(lab_of(tmp_path), PLAN, ROW, "agreed")

    farm.before_run = accept_at_first_run
    ((_, result),) = nights_in_a_row(tmp_path, 1, lambda _: farm)
    assert result.findings[0].verdict is NightVerdict.SLOWER  # it was planned before
    (line,) = result.accepted
    assert line.endswith(": agreed")
    (later,) = nights(tmp_path, 1, 0.08)
    assert later.findings[0].verdict is NightVerdict.GOOD


def test_an_acceptance_shifts_no_pairs_of_equal_programs(tmp_path: Path) -> None:
    accept(lab_of(tmp_path), "c0", ratio=2.0)
    nights(tmp_path, 1, 0.0, same=True)
    found = same_programs(tmp_path, PLAN, 0.05)
    assert found is not None
    assert found.ratio == pytest.approx(1.0, abs=0.05)


def test_an_accepted_variant_hides_no_commit_of_another(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(6)]
    other = {name: 0.07 * (number >= 2) for number, name in enumerate(names)} | {"head": 0.07}
    accept(lab_of(tmp_path), "c3")
    commits = {name: 0.08 * (number >= 1) for number, name in enumerate(names)}
    truth = Truth(slow={ROW: 0.08}, commits=commits, of_variant={"q4": other})
    farm = SimulatedFarm(0, realistic(0.01), truth)
    ((_, result),) = nights_in_a_row(tmp_path, 1, lambda _: farm, variants=("q8", "q4"))
    verdicts = {one.variant: one.verdict for one in result.findings}
    assert verdicts == {"q8": NightVerdict.GOOD, "q4": NightVerdict.SLOWER}
    (search,) = result.searches
    assert search.first == "c2"


@pytest.mark.parametrize(
    ("row", "slow", "text"),
    [
        (ROW, None, "no night that came to its end"),
        ("llama/r00@b0", 0.08, "did you mean 'llama/r000@b0'"),
        (ROW, 0.0, "was not found slower by night .*good, at most"),
    ],
)
def test_only_a_confirmed_slowdown_of_a_known_row_is_accepted(
    tmp_path: Path, row: str, slow: float | None, text: str
) -> None:
    if slow is not None:
        nights(tmp_path, 1, slow)
    with pytest.raises(ConfigError, match=text):
        accept_slowdown(lab_of(tmp_path), PLAN, row, None)


def test_what_was_accepted_by_mistake_is_taken_back(accepted: Path) -> None:
    lab = lab_of(accepted)
    with pytest.raises(ConfigError, match=f"no accepted row .other.; known: {ROW}"):
        unaccept_slowdown(lab, PLAN, "other")
    (taken,) = unaccept_slowdown(lab, PLAN, ROW)
    assert taken.reason == "the new sampler"
    assert lab_state(lab).accepted.list(PLAN) == []
    (result,) = nights(accepted, 1, 0.08)
    assert result.findings[0].verdict is NightVerdict.SLOWER
