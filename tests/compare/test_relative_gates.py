"""Gates against a baseline and the last good run: nothing is judged that nobody can tell."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nightly_runs import Lab

from labctl.compare.gates import judge_gates, missing_references
from labctl.config.lab import Lab as LabConfig
from labctl.config.lab import LabFile
from labctl.config.recipe import Recipe
from labctl.records.board import Execution
from labctl.records.run import GateRecord, RunEnd
from labctl.records.trial import Check
from labctl.runs.record.directory import RunDirectory
from labctl.state.state import lab_state

LAST = {"metric": "tpot_ms", "against": "last-good"}
BASE = {"metric": "tpot_ms", "against": "release-1.2"}


class Nights(Lab):
    """A lab on disk, whose last run has gates."""

    def __init__(self, root: Path):
        super().__init__(root / "runs", sigma=0.002)
        self.file = LabFile(root, LabConfig(boards={}))

    def judged(self, *gates: dict[str, Any], ms: float = 100, **changes: Any) -> list[GateRecord]:
        self.night(90, ms, gates=gates, **changes)
        assert self.last is not None
        record, trials = self.last
        parameters = {variant: {"threads": 4} for variant in record.variants}
        return list(judge_gates(self.file, record, trials, parameters))

    def write_gates(self, *gates: GateRecord) -> None:
        """Let the last run end with these."""
        assert self.last is not None
        record, _ = self.last
        end = RunEnd(state="finished", gates=gates, finished=record.started)
        RunDirectory(self.file.root / "runs" / record.id).finish(end)

    def baseline(self, *runs: str, name: str = "release-1.2", variant: str | None = None) -> None:
        lab_state(self.file).baselines.set(name, runs, variant=variant)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    monkeypatch.setattr("os.fsync", lambda _: None)
    return Nights(tmp_path)


@pytest.mark.parametrize("gate", [LAST, BASE], ids=["last-good", "baseline"])
def test_a_slower_run_misses_with_by_how_much(lab: Nights, gate: dict[str, Any]) -> None:
    lab.baseline(lab.night(1, 100))
    lab.nights(range(2, 8), 100)
    (record,) = lab.judged(gate, ms=112)
    assert record.passed is False
    assert record.verdict == "slower"
    assert re.match(r"takes 1\.1[123]\d times as long, 2% allowed: 95% interval 1.1", record.detail)
    assert record.ratio == pytest.approx(1.12, rel=0.02)
    assert record.ratio_low is not None
    assert record.ratio_low > 1.05
    assert record.value == pytest.approx(112, rel=0.02)
    assert len(record.reference) == (5 if gate is LAST else 1)
    assert record.limit == f"against {gate['against']}"


def test_an_equal_and_a_faster_run_keep_it(lab: Nights) -> None:
    lab.nights(range(8), 100)
    assert [one.passed for one in lab.judged(LAST)] == [True]
    (faster,) = lab.judged(LAST, ms=80)
    assert (faster.passed, faster.verdict) == (True, "faster")


def test_a_rate_that_falls_misses_it_too(lab: Nights) -> None:
    lab.nights(range(8), 100)
    rate = {"metric": "tokens_per_second", "against": "last-good"}
    (record,) = lab.judged(rate, ms=112)
    assert record.passed is False
    assert re.match(r"0\.(88|89|90)\d times the rate", record.detail)
    lab.write_gates(record)
    (record,) = lab.judged({**rate, "tolerance": 0.2}, ms=124)
    assert record.passed is False
    assert re.match(r"0\.(79|80|81|82)\d times the rate, 20% allowed", record.detail)


def test_what_is_tolerated_is_kept(lab: Nights) -> None:
    lab.nights(range(8), 100)
    (record,) = lab.judged({**LAST, "tolerance": 0.2}, ms=112)
    assert record.passed is True
    assert record.limit == "against last-good, 20% allowed"


def test_what_cannot_be_told_is_neither(lab: Nights) -> None:
    """One earlier run: nobody knows how much runs on this board differ."""
    lab.night(1, 100)
    (record,) = lab.judged(LAST, ms=112)
    assert (record.passed, record.verdict) == (None, "suspected")
    assert "confirm interleaved" in record.detail


def test_without_a_reference_it_says_what_is_missing(lab: Nights) -> None:
    lab.baseline("x", name="release-1.1")
    last, base = lab.judged(LAST, BASE)
    assert (last.passed, base.passed) == (None, None)
    assert last.detail == "not judged: no earlier run of recipe q2 on rk1 passed"
    assert base.detail == (
        "not judged: no baseline 'release-1.2'; there is release-1.1;"
        " `labctl baseline set release-1.2 RUN` makes it"
    )


def test_a_missing_reference_is_told_before_the_run(lab: Nights) -> None:
    recipe = Recipe.model_validate(
        {
            "name": "q2",
            "target": "rk3568",
            "engine": {"name": "llama_cpp"},
            "models": {"m": {"file": "m.gguf"}},
            "max_time": "1m",
            "gates": [LAST, BASE, {"metric": "tpot_ms", "max": 3}],
        }
    )
    last, base = missing_references(lab.file, recipe, "rk1")
    assert "tpot_ms against last-good will not be judged: no earlier run" in last
    assert "no baseline 'release-1.2'" in base
    lab.baseline(lab.night(1, 100))
    assert list(missing_references(lab.file, recipe, "rk1")) == []


def test_a_baseline_whose_run_is_gone_is_no_pass(lab: Nights) -> None:
    lab.baseline("20200101T000000Z-q2-000000")
    lab.night(1, 100)
    (record,) = lab.judged(BASE)
    assert record.passed is None
    assert "no run '20200101T000000Z-q2-000000'" in record.detail


def test_emulated_records_are_never_judged(lab: Nights) -> None:
    emulated = lab.night(1, 100, execution=Execution.EMULATED)
    lab.baseline(emulated)
    lab.nights(range(2, 8), 100, execution=Execution.EMULATED)
    (against_emulated,) = lab.judged(BASE, ms=200)
    assert (against_emulated.passed, against_emulated.verdict) == (None, "unlike")
    assert "execution: emulated / board" in against_emulated.detail
    (is_emulated,) = lab.judged(BASE, ms=200, execution=Execution.EMULATED)
    assert is_emulated.passed is None
    assert is_emulated.detail == "not judged: emulated, not measured on a board"


def test_the_last_good_run_is_one_that_is_alike(lab: Nights) -> None:
    wanted = [lab.night(n, 100) for n in range(6)]
    lab.night(7, 50, spec="8" * 64)  # another compiler
    lab.night(8, 50, board="rk2")
    (record,) = lab.judged(LAST)
    assert record.reference == tuple(wanted[:0:-1])
    assert record.passed is True


def test_a_run_that_is_suspected_is_no_last_good_one(lab: Nights) -> None:
    """Or each night would be compared with the slow one before it, and keep the gate."""
    good = lab.night(1, 100)
    (suspected,) = lab.judged(LAST, ms=112)
    assert suspected.verdict == "suspected"
    lab.write_gates(suspected)
    (record,) = lab.judged(LAST, ms=112)
    assert record.reference == (good,)


def test_a_run_of_which_nobody_can_tell_is_a_good_one(lab: Nights) -> None:
    """Without those that look slower, luck would choose the reference, and equal runs miss."""
    good = lab.night(1, 100)
    (unknown,) = lab.judged(LAST, ms=101)
    assert (unknown.passed, unknown.verdict) == (None, "can't tell")
    for ratio in (1.03, 0.97):
        lab.write_gates(unknown.model_copy(update={"ratio": ratio}))
        (record,) = lab.judged(LAST, ms=101)
        assert good in record.reference
    assert len(record.reference) == 3


def test_a_rate_is_suspected_where_it_fell_and_a_time_where_it_rose(lab: Nights) -> None:
    """Records of old runs have gates of other metrics, and such without a ratio."""
    good = lab.night(1, 100)
    (seen,) = lab.judged(LAST, ms=112)
    assert seen.verdict == "suspected"
    for metric, ratio, counts in (
        ("tokens_per_second", 0.9, False), ("tokens_per_second", 1.1, True),
        ("tpot_ms", 1.1, False), ("tpot_ms", 0.9, True), ("tpot_ms", None, True),
    ):  # fmt: skip
        lab.write_gates(seen.model_copy(update={"metric": metric, "ratio": ratio}))
        name = lab.last[0].id if lab.last else ""
        (record,) = lab.judged(LAST, ms=100)
        assert (name in record.reference) is counts, (metric, ratio)
    assert good in record.reference


def test_one_slow_variant_leaves_the_others_of_its_run(lab: Nights) -> None:
    names = [lab.night(n, 100, variants=("q2_k", "q8_0")) for n in range(7)]
    assert lab.last is not None
    directory = RunDirectory(lab.file.root / "runs" / names[-1])
    slow = GateRecord(
        variant="q8_0", metric="tpot_ms", limit="against last-good", value=112, passed=None,
        detail="", verdict="suspected", reference=(names[0],), ratio=1.12,
    )  # fmt: skip
    directory.finish(RunEnd(state="finished", gates=(slow,), finished=lab.last[0].started))
    found = {one.variant: one for one in lab.judged(LAST, variants=("q2_k", "q8_0"))}
    assert found["q2_k"].reference == tuple(names[:1:-1])
    assert found["q8_0"].reference == tuple(names[-2:0:-1])


def test_a_good_run_behind_many_that_do_not_count_is_found(lab: Nights) -> None:
    """They are read in windows; the reference is looked for in the last ones only."""
    good = lab.night(1, 100)
    failed = (Check(name="drift", ok=False, detail="fell"),)
    lab.nights(range(2, 34), 100, checks=failed)
    (record,) = lab.judged(LAST)
    assert record.reference == (good,)
    (only,) = lab.judged(LAST, board="rk2")
    assert "no earlier run of recipe q2 on rk2 passed" in only.detail
    lab.nights(range(3), 100, board="rk3", checks=failed)
    (left,) = lab.judged(LAST, board="rk3")
    assert left.detail.endswith("(3 left out: checks failed, or suspected slower)")


def test_a_step_stays_missed_since_runs_that_missed_are_no_noise(lab: Nights) -> None:
    lab.nights(range(9), 100)
    for _ in range(9):
        (record,) = lab.judged(LAST, ms=106)
        assert record.passed is False
        lab.write_gates(record)


def missed_nights(root: Path, seeds: Iterable[int], sigma: float) -> tuple[int, int]:
    """How many of the equal nights of labs miss, and of those after a step of 20 %."""
    equal = after = 0
    for seed in seeds:
        one = Nights(root / str(seed))
        one._sigma, one._chance = sigma, np.random.default_rng(seed)
        for night in range(26):
            failed = (Check(name="drift", ok=False, detail="fell"),) if night == 20 else ()
            (gate,) = one.judged(LAST, ms=100 if night < 20 else 120, checks=failed)
            one.write_gates(gate)
            equal += 7 <= night < 20 and gate.passed is False
            after += night >= 20 and gate.passed is False
    return equal, after


def test_runs_of_equal_speed_seldom_miss_and_a_step_always_does(lab: Nights) -> None:
    """Runs differ by 1 % by chance: the last nights of two labs, then 20 % slower."""
    equal, after = missed_nights(lab.file.root, (0, 1), 0.01)
    assert equal <= 2
    assert after == 12


@pytest.mark.soak
def test_equal_runs_seldom_miss_where_runs_differ_much(lab: Nights) -> None:
    """By 2 %, as much as the gate allows; 10 % of them missed when slow nights were left out."""
    equal, after = missed_nights(lab.file.root, range(40), 0.02)
    assert equal <= 0.07 * 40 * 13
    assert after >= 0.98 * 40 * 6


def test_a_run_that_its_checks_contradict_is_no_last_good_one(lab: Nights) -> None:
    """It was throttled: what is slow itself would be faster than that."""
    lab.nights(range(8), 100)
    lab.night(9, 130, checks=(Check(name="drift", ok=False, detail="fell"),))
    (record,) = lab.judged(LAST, ms=120)
    assert record.passed is False
    assert re.match(r"takes 1\.(19|20|21)\d times as long", record.detail)


def test_where_none_is_alike_the_difference_is_named(lab: Nights) -> None:
    lab.nights(range(6), 100)
    (record,) = lab.judged(LAST, spec="8" * 64)
    assert (record.passed, record.verdict) == (None, "unlike")
    assert "build_spec" in record.detail


def test_a_result_that_its_checks_contradict_keeps_nothing(lab: Nights) -> None:
    lab.nights(range(8), 100)
    (record,) = lab.judged(LAST, checks=(Check(name="span", ok=False, detail="0.9"),))
    assert record.passed is False
    assert "checks failed: span" in record.detail


def test_it_speaks_of_the_variants_it_names(lab: Nights) -> None:
    lab.nights(range(8), 100)
    (idle,) = lab.judged({**LAST, "where": {"threads": 8}})
    assert (idle.variant, idle.passed) == ("no variant", None)
    (meant,) = lab.judged({**LAST, "where": {"threads": 4}}, ms=200)
    assert meant.passed is False


def test_gates_with_bounds_are_not_its_matter(lab: Nights) -> None:
    assert lab.judged({"metric": "tpot_ms", "max": 1}) == []
