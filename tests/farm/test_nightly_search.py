"""The search for a slow commit: right, or a range that holds it, and hardly ever a wrong one."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_comparisons import realistic
from simulated_farm import SimulatedFarm, Truth, night_of, plan_rows, simulate_searches

from labctl import process
from labctl.config.lab import Lab, LabFile
from labctl.errors import ConfigError, ProgramFailed
from labctl.farm.nightly.bisection import Bisection
from labctl.farm.nightly.executor import Built
from labctl.farm.nightly.plan_file import NightPlan
from labctl.farm.nightly.search import search_commits
from labctl.farm.nightly.sources import Sources
from labctl.records.night import NightVerdict, Stage


def farm_with(slow_from: int, count: int = 16, **truth: object):  # type: ignore[no-untyped-def]
    farm = SimulatedFarm(3, realistic(0.01), Truth(**truth))  # type: ignore[arg-type]
    (row,) = plan_rows(farm, 1)
    farm.truth.slow = {row.name: 0.05}
    names = [f"c{n:02d}" for n in range(count - 1)]
    farm.truth.commits = {name: 0.05 * (n >= slow_from) for n, name in enumerate(names)}
    return farm, row


@pytest.mark.parametrize(("slow_from", "first"), [(0, "c00"), (7, "c07"), (15, "head")])
def test_the_first_slow_commit_is_named_wherever_it_is(
    tmp_path: Path, slow_from: int, first: str
) -> None:
    farm, row = farm_with(slow_from)
    night = night_of(tmp_path, farm, [row])
    night.run()
    (found,) = search_commits(night)
    assert found.first == first
    assert "measured alternately" in found.reason


def test_a_commit_that_does_not_build_makes_a_range_of_it(tmp_path: Path) -> None:
    farm, row = farm_with(7, unbuildable=frozenset({"c06"}))
    night = night_of(tmp_path, farm, [row])
    night.run()
    (found,) = search_commits(night)
    assert found.first is None
    assert found.candidates == ("c06", "c07")
    assert "one of 2, c06 and c07, because 1 of them does not build or run (" in found.reason


def test_several_commits_that_share_a_slowdown_are_all_told(tmp_path: Path) -> None:
    farm = SimulatedFarm(0, realistic(0.004), Truth())
    (row,) = plan_rows(farm, 1)
    farm.truth.slow = {row.name: 0.09}
    farm.truth.commits = {f"c{n}": 0.018 * (n + 1) for n in range(4)}
    night = night_of(tmp_path, farm, [row])
    night.run()
    (found,) = search_commits(night)
    assert (found.outcome, found.first) == ("range", None)
    assert found.candidates == ("c0", "c1", "c2", "c3", "head")
    assert found.reason.startswith("no commit of 5, from c0 to head, is named: none is slower by")


class CrashingFarm(SimulatedFarm):
    """A build that crashes when it is run."""

    crashing = ""

    def measure(self, row, board, built, *, began, queued):  # type: ignore[no-untyped-def]
        if built.version == self.crashing:
            began("run-crash")
            raise ProgramFailed("it was killed by signal 11")
        return super().measure(row, board, built, began=began, queued=queued)


@pytest.mark.parametrize(
    ("crashing", "complete", "text"),
    [
        ("c06", True, "one of 2, c06 and c07, because 1 of them does not build or run ("),
        ("good", False, "because the last good fails again and again by now (0 pairs)"),
    ],
)
def test_a_program_that_crashes_in_the_search_is_no_want_of_time(
    tmp_path: Path, crashing: str, complete: bool, text: str
) -> None:
    farm = CrashingFarm(3, realistic(0.01), Truth())
    (row,) = plan_rows(farm, 1)
    farm.truth.slow = {row.name: 0.05}
    farm.truth.commits = {f"c{n:02d}": 0.05 * (n >= 7) for n in range(15)}
    night_of(tmp_path, farm, [row]).run()
    farm.crashing = crashing
    (found,) = search_commits(night_of(tmp_path, farm, [row]))
    assert text in found.reason
    assert found.complete is complete
    journal = tmp_path / "night.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    assert search_commits(night_of(tmp_path, farm, [row])) == [found]


def test_a_good_night_searches_nothing(tmp_path: Path) -> None:
    farm, row = farm_with(7)
    farm.truth.slow = {}
    night = night_of(tmp_path, farm, [row])
    night.run()
    assert search_commits(night) == []


def test_a_board_that_dies_in_the_search_leaves_the_verdict_and_a_range(tmp_path: Path) -> None:
    farm, row = farm_with(7)
    night = night_of(tmp_path, farm, [row])
    night.run()
    farm.truth.dead = {row.board: farm.runs[row.board] + 4}
    (found,) = search_commits(night)
    assert found.first is None
    assert "c07" in found.candidates
    assert "is gone" in found.reason
    (finding,) = night.findings()
    assert finding.verdict is NightVerdict.SLOWER


def test_a_search_that_was_killed_goes_on_and_measures_nothing_twice(tmp_path: Path) -> None:
    farm, row = farm_with(7)
    night_of(tmp_path, farm, [row]).run()
    kills = iter([5, 9, 10_000])
    left = next(kills)

    def die() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            left = next(kills)
            raise KeyboardInterrupt

    farm.before_run = die
    while True:
        night = night_of(tmp_path, farm, [row])
        try:
            (found,) = search_commits(night)
        except KeyboardInterrupt:
            continue
        break
    assert found.first == "c07"
    measured = [one for one in night.state.entries if one.event == "measured"]
    assert len(measured) == sum(farm.measured.values())


def test_a_search_that_goes_on_sees_each_pair_as_it_was_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm, row = farm_with(7)
    night_of(tmp_path, farm, [row]).run()
    observe, seen = Bisection.observe, list[tuple[int, float, int]]()

    def noted(self: Bisection, place: int, change: float, before: int = -1) -> None:
        seen.append((place, change, before))
        observe(self, place, change, before)

    monkeypatch.setattr(Bisection, "observe", noted)
    found = search_commits(night_of(tmp_path, farm, [row]))
    before, runs = list(seen), dict(farm.runs)
    seen.clear()
    journal = tmp_path / "night.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    assert '"searched"' in lines[-1]
    journal.write_text("".join(lines[:-1]))  # it was killed before it could note the end
    assert search_commits(night_of(tmp_path, farm, [row])) == found
    assert (seen, farm.runs) == (before, runs)


def test_without_measurements_all_commits_are_possible() -> None:
    search = Bisection(8, slowdown=0.05, noise=0.02)
    assert search.likely() is None
    assert (search.range().first, search.range().last) == (0, 7)
    assert search.next() == 3


def test_searches_with_noise_are_right(tmp_path: Path) -> None:
    found = simulate_searches(tmp_path, 8, sigma=0.02, seed=4)
    assert found.wrong == found.missed == 0
    assert found.right >= 7


def git(folder: Path, *words: str) -> str:
    who = {
        f"GIT_{role}_{what}": "x@x"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    done = process.run(["git", "-C", folder, *words], timeout=60, env={**os.environ, **who})
    assert done.exit_status == 0, done.tail()
    return done.text.strip()


def test_commits_follow_the_first_parents_without_both_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "-q", "-b", "main")
    commits = []
    for number in range(4):
        git(source, "commit", "-q", "--allow-empty", "-m", str(number))
        commits.append(git(source, "rev-parse", "HEAD"))
    git(source, "checkout", "-q", "-b", "side", commits[1])
    git(source, "commit", "-q", "--allow-empty", "-m", "side")
    git(source, "checkout", "-q", "main")
    git(source, "merge", "-q", "--no-ff", "-m", "merge", "side")
    head = git(source, "rev-parse", "HEAD")
    plan = NightPlan.model_validate(
        {
            "name": "n",
            "builds": {
                "b": {"head": {"git": str(source), "ref": "main"}, "good": {"version": "new"}}
            },
            "rows": [{"recipes": ["r"], "boards": ["b"]}],
            "time": "1h",
        }
    )
    sources = Sources(LabFile(tmp_path, Lab(boards={})), plan, {})
    sides = {"good": Built("k", "v", commits[0]), "head": Built("k2", "v", head)}
    with monkeypatch.context() as hook:
        hook.setenv("GIT_DIR", str(tmp_path))
        assert list(sources.commits("b/t", sides)) == commits[1:]
    side = git(source, "rev-parse", "side")
    with pytest.raises(ConfigError, match="is not among the first parents"):
        sources.commits("b/t", {**sides, "good": Built("k", "v", side)})
    with pytest.raises(ConfigError, match="is not a commit"):
        sources.commits("b/t", {**sides, "good": Built("k", "v", "content 1234")})


def test_a_commit_that_changes_no_byte_of_the_program_is_never_named(tmp_path: Path) -> None:
    """As of documents only: no pair is needed to clear it."""

    class Documents(SimulatedFarm):
        """The first slow commit, c07, is told to be the program of the one before it."""

        def build(self, name: str, side: str) -> Built:
            built = super().build(name, side)
            return replace(built, program="llama-c06") if side == "c07" else built

    farm = Documents(3, realistic(0.01), Truth())
    (row,) = plan_rows(farm, 1)
    farm.truth.slow = {row.name: 0.05}
    farm.truth.commits = {f"c{n:02d}": 0.05 * (n >= 7) for n in range(15)}
    night = night_of(tmp_path, farm, [row])
    night.run()
    (found,) = search_commits(night)
    assert (found.outcome, found.first) == ("range", None)
    pairs: dict[int | None, set[str | None]] = {}
    for entry in night.state.entries:
        if entry.stage is Stage.PROVE:
            pairs.setdefault(entry.pair, set()).add(entry.side)
    assert {"c06", "c07"} not in pairs.values()
