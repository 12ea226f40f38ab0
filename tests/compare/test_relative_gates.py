"""Gates against a baseline and the last good run: nothing is judged that nobody can tell."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nightly_runs import Lab

from labctl.compare.gates import judge_gates, missing_references
from labctl.config.lab import Lab as LabConfig
from labctl.config.lab import LabFile
from labctl.config.recipe import Recipe
from labctl.records import Check, Execution, GateRecord, RunEnd
from labctl.runs.record.directory import RunDirectory
from labctl.state import lab_state

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
        return list(judge_gates(self.file, record, trials, {"q2_k": {"threads": 4}}))

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
    assert re.match("1[123] % slower, 2 % allowed: 95 % interval 1.1", record.detail)
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
    assert re.match("1[123] % slower", record.detail)
    lab.write_gates(record)
    (record,) = lab.judged({**rate, "tolerance": 0.2}, ms=124)
    assert record.passed is False
    assert re.match("2[1-7] % slower, 20 % allowed", record.detail)


def test_what_is_tolerated_is_kept(lab: Nights) -> None:
    lab.nights(range(8), 100)
    (record,) = lab.judged({**LAST, "tolerance": 0.2}, ms=112)
    assert record.passed is True
    assert record.limit == "against last-good, 20 % allowed"


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


def test_an_open_run_is_a_good_one_unless_it_looks_slower_than_allowed(lab: Nights) -> None:
    """Else a few percent a night would pass, or luck alone would choose the reference."""
    good = lab.night(1, 100)
    (unknown,) = lab.judged(LAST, ms=101)
    assert (unknown.passed, unknown.verdict) == (None, "can't tell")
    lab.write_gates(unknown)
    (record,) = lab.judged(LAST, ms=101)
    assert len(record.reference) == 2
    lab.write_gates(
        record.model_copy(update={"passed": None, "verdict": "can't tell", "ratio": 1.03})
    )
    (other,) = lab.judged(LAST, ms=101)
    assert other.reference == record.reference
    assert good in other.reference


def test_runs_of_equal_speed_seldom_miss_and_a_step_is_never_kept(lab: Nights) -> None:
    """Runs differ by 1 % by chance: the last nights of two labs, then 20 % slower."""
    missed = 0
    for seed in (0, 1):
        one = Nights(lab.file.root / str(seed))
        one._sigma, one._chance = 0.01, np.random.default_rng(seed)
        for night in range(26):
            failed = (Check(name="drift", ok=False, detail="fell"),) if night == 20 else ()
            (gate,) = one.judged(LAST, ms=100 if night < 20 else 120, checks=failed)
            one.write_gates(gate)
            missed += 7 <= night < 20 and gate.passed is False
            assert night < 20 or gate.passed is False
    assert missed <= 2


def test_a_run_that_its_checks_contradict_is_no_last_good_one(lab: Nights) -> None:
    """It was throttled: what is slow itself would be faster than that."""
    lab.nights(range(8), 100)
    lab.night(9, 130, checks=(Check(name="drift", ok=False, detail="fell"),))
    (record,) = lab.judged(LAST, ms=120)
    assert record.passed is False
    assert re.match("(19|20|21) % slower", record.detail)


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
