"""Results of a search: its sentence is from the proof alone."""

import io
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from records_made import energy, model, run, timing, trial
from rich.console import Console

from labctl.bundle.verdicts import judge_search
from labctl.compare.comparison import Row, Verdict
from labctl.compare.estimates import estimate_pairs
from labctl.compare.proven import proven
from labctl.compare.thresholds import Thresholds
from labctl.compare.tuned import Tuned, proof_limits, tuned
from labctl.compare.verdicts import judged
from labctl.config.recipe_parts import MOST_VARIANTS
from labctl.figures.trials import OBJECTIVES
from labctl.records.board import Execution
from labctl.records.run import RunRecord
from labctl.records.trial import JobStatus, TrialRecord, TrialState
from labctl.records.tuning import DroppedSetting, TuningRecord, TuningRound
from labctl.report.figures.figure import Figure
from labctl.report.figures.gains import gains
from labctl.report.figures.measured import MeasuredRun
from labctl.report.page.language import Language
from labctl.report.status import Status
from labctl.report.tuning import document, markdown, print_search, sentences, tables
from labctl.runs.inputs.prepare import Prepared
from labctl.stats.power import least_difference

#: Noise of six pairs: their ratios to the mean.
NOISE = (1.01, 0.99, 1.0, 1.005, 0.995, 1.0)


def searched() -> RunRecord:
    return run(
        recipe_resolved={"tune": {}}, variants=("default", "fast", "slow"), models=(model(),)
    )


def record(pairs: int, **changes: Any) -> TuningRecord:
    race = [
        TuningRound(kind="race", first=1 + 3 * n, order=("fast", "default", "slow"))
        for n in range(3)
    ]
    proof = [
        TuningRound(kind="proof", first=10 + 2 * n, order=("default", "fast")) for n in range(pairs)
    ]
    values: dict[str, Any] = {
        "default": "default",
        "objectives": ("decode",),
        "seed": 1,
        "budget_s": 100.0,
        "model": "q2_k",
        "parameters": {"threads": 4, "repack": True},
        "settings": {"fast": {"threads": 3}, "slow": {"repack": False}},
        "rounds": (*race, *proof),
        "dropped": (DroppedSetting(setting="slow", rounds=3, reason="-20 % decode"),),
        "named": {"decode": "fast"},
        "pairs": pairs,
    }
    values |= changes
    return TuningRecord(**{"patches": values["settings"], **values})


def trials(search: TuningRecord, *, proof: float, race: float = 2.0) -> list[TrialRecord]:
    """Trials in which ``fast`` has these gains; the race's is not the truth."""
    return list(_trials(search, proof, race))


def _trials(search: TuningRecord, proof: float, race: float) -> Iterator[TrialRecord]:
    for index, one in enumerate(search.rounds, 1):
        gains_of = {"default": 1.0, "slow": 0.8, "fast": proof if one.kind == "proof" else race}
        for number, variant in enumerate(one.order, one.first):
            noise = NOISE[index % len(NOISE)] if variant == "fast" else 1.0
            gap = 100 / gains_of[variant] * noise
            yield trial(number, variant=variant, slug=f"{variant}-r{index}", repeat=index,
                        parameters={"threads": 3 if variant == "fast" else 4},
                        argv=("/data/llama-completion", "-t", "3"), took_ns=10**9,
                        timing=timing([gap] * 4))  # fmt: skip


def job(peak: float) -> JobStatus:
    return JobStatus(
        outcome="exited",
        exit_status=0,
        start_mono_ns=0,
        end_mono_ns=1,
        wall_ns=1,
        max_rss_bytes=round(1e8 * peak),
        stdout_bytes=1,
        stderr_bytes=1,
        boot_id="b",
        epoch=1,
    )


def text(found: Tuned) -> str:
    (sentence,) = sentences(found, Language("en"))
    return sentence


@pytest.mark.parametrize(
    ("there", "here", "judgement"),
    [(1.1, 1.1, "reproduced"), (1.0, 1.0, "reproduced"), (1.1, 1.0, "not reproduced"),
     (1.0, 1.1, "can't tell")],
)  # fmt: skip
def test_a_search_is_reproduced_by_its_proof(there: float, here: float, judgement: str) -> None:
    search = record(12)
    sides = [tuned(searched(), trials(search, proof=one), search) for one in (there, here)]
    board = searched().facts
    (number,) = judge_search(*sides, (board, board))
    assert number.judgement == judgement, number.reason
    assert (number.variant, number.what) == ("fast", "gain in decode")
    emulated = board.model_copy(update={"execution": Execution.EMULATED})
    (number,) = judge_search(*sides, (board, emulated))
    assert number.judgement == "can't tell"
    assert "EMULATED" in number.reason
    unproven = tuned(searched(), [], record(12, named=None))
    (number,) = judge_search(sides[0], unproven, (board, board))
    assert number.judgement == "can't tell"


def test_a_gain_is_that_of_the_fresh_pairs() -> None:
    search = record(6)
    found = tuned(searched(), trials(search, proof=1.1), search)
    assert text(found).startswith("threads 4 → 3: decode +10.0 % (95 %: ")
    assert text(found).endswith("from 6 fresh pairs.")
    (proof,) = found.proofs
    assert proof.is_shown
    assert proof.row is not None
    assert proof.row.left_repeats == 6  # the race's +100 % is not in it
    assert found.patch("fast") == "parameters: {threads: 3}"
    assert document(found)["sentences"] == [text(found)]
    assert any("llama-completion -t 3" in line for line in markdown(found))


@pytest.mark.parametrize("gain", [1.0, 1.005, 0.9])
def test_nothing_is_shown_of_a_lucky_race(gain: float) -> None:
    search = record(6)
    found = tuned(searched(), trials(search, proof=gain), search)
    assert text(found).startswith("Nothing is shown to be better than the defaults for decode.")
    assert not found.shown


def _measured(objective: str, search: TuningRecord, gain: float) -> list[TrialRecord]:
    """Trials in which one figure of ``fast`` is better by this factor."""
    found = []
    for one in _trials(search, 1.0, 1.0):
        by = gain if one.variant == "fast" else 1.0
        changed = timing([100 / by, 100 / by], prompt_eval_ns=round(5e8 / by))
        noise = NOISE[one.repeat % len(NOISE)] if one.variant == "fast" else 1.0
        found.append(
            one.model_copy(
                update={
                    "timing": changed,
                    "job": job(1 / by),
                    "energy": energy(joules_per_token=noise / by),
                }
            )
        )
    return found


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_each_objective_is_judged(objective: str) -> None:
    search = record(6, objectives=(objective,), named={objective: "fast"})
    found = tuned(searched(), _measured(objective, search, 1.25), search)
    gain = "+25.0 %" if OBJECTIVES[objective].better == "higher" else "-20.0 %"
    assert text(found).startswith(f"threads 4 → 3: {objective} {gain}")
    assert [one.is_shown for one in found.proofs] == [True]
    worse = tuned(searched(), _measured(objective, search, 0.8), search)
    assert [one.is_shown for one in worse.proofs] == [False]


def test_a_further_finalist_joins_the_family_with_a_simultaneous_interval() -> None:
    both = {"decode": "fast", "energy": "fast"}
    search = record(6, objectives=tuple(both), named=both)
    found = tuned(searched(), _measured("decode", search, 1.25), search)
    assert [one.is_shown for one in found.proofs] == [True, True]
    levels = [one.row.interval.level for one in found.proofs if one.row and one.row.interval]
    assert levels == [0.975, 0.975]
    assert all("(97.5 %: " in one for one in sentences(found, Language("en")))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_plan_names_what_was_proven_for_any_objective(
    objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, done = record(6, objectives=(objective,), named={objective: "fast"}), searched()
    directory = SimpleNamespace(
        path=tmp_path / "runs" / "r1",
        is_imported=False,
        end=lambda: SimpleNamespace(state="finished"),
        run=lambda: done,
        tuning=lambda: search,
        trials=lambda: _measured(objective, search, 1.25),
        plan=lambda: SimpleNamespace(program_sha256=None),
    )
    directory.path.mkdir(parents=True)
    (directory.path / "tuning.json").touch()
    monkeypatch.setattr("labctl.compare.proven.RunDirectory", lambda _path: directory)
    wanted = SimpleNamespace(
        comparability={"build_key": None},
        program=None,
        models={"q": SimpleNamespace(identity=done.models[0])},
    )
    found = proven(tmp_path, done.board, cast("Prepared", wanted), done.facts.execution)
    assert [f"threads 4 → 3: {objective} " in one for one in found] == [True]


def test_what_follows_from_a_setting_forbids_no_comparison() -> None:
    search = record(6, settings={"fast": {"mlock": True}, "slow": {"repack": False}})
    measured = [
        _with(one, mlock=one.variant == "fast",
              **({"memlock_bytes": "unlimited"} if one.variant == "fast" else {}))
        for one in trials(search, proof=1.1)
    ]  # fmt: skip
    assert text(tuned(searched(), measured, search)).endswith("from 6 fresh pairs.")


def test_pairs_of_another_state_are_left_out_and_said() -> None:
    search = record(6)
    measured = [
        _with(one, cooling="active" if one.number == 12 else "inactive")
        for one in trials(search, proof=1.1)
    ]
    found = tuned(searched(), measured, search)
    assert text(found).startswith("threads 4 → 3: decode +10.0 %")
    assert text(found).endswith(
        "from 5 fresh pairs. Left out, as their trials differ in cooling: 1 of the pairs."
    )
    always = [_with(one, cooling=one.variant) for one in measured]
    assert text(tuned(searched(), always, search)) == (
        "threads 4 → 3 is no result for decode: in all 6 pairs, the trials differ in cooling."
    )


def _with(one: TrialRecord, **keys: Any) -> TrialRecord:
    return one.model_copy(update={"comparability": {**one.comparability, **keys}})


@pytest.mark.parametrize(("noise", "pairs"), [(0.001, 3), (0.002, 10), (0.005, 20), (0.02, 15)])
def test_a_proof_shows_the_gain_that_was_promised(noise: float, pairs: int) -> None:
    limits = proof_limits(Thresholds.of_recipe({}))
    gain = least_difference(noise, pairs, threshold=limits.practical_log)
    chance, verdicts = random.Random(3), []
    row = Row("default", "fast", "tokens_per_second", "", True, Verdict.CANT_TELL, "")
    for _ in range(400):
        own = [math.exp(gain + chance.gauss(0, noise)) for _ in range(pairs)]
        base = [math.exp(chance.gauss(0, noise)) for _ in range(pairs)]
        verdicts.append(judged([(row, estimate_pairs(own, base))], limits)[0].verdict)
    assert verdicts.count(Verdict.FASTER) == pytest.approx(0.9 * 400, abs=25)


def test_a_long_record_is_read_in_time() -> None:
    many = {f"s{number}": {"poll": number} for number in range(MOST_VARIANTS - 2)}
    short = record(6)
    rounds = [TuningRound(kind="race", first=22 + n, order=("slow",)) for n in range(20_000)]
    search = record(6, settings={**short.settings, **many}, rounds=(*short.rounds, *rounds))
    began = time.process_time()
    tuned(searched(), trials(short, proof=1.1), search)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {f"s{number}": {} for number in range(MOST_VARIANTS + 1)}},
        {"rounds": ({"kind": "race", "first": 1, "order": ()},)},
        {"rounds": ({"kind": "race", "first": 1, "order": ("fast",)},) * 2},
    ],
)
def test_a_record_beyond_all_bounds_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"at most 1000|at least 1|does not follow"):
        record(1, **{"named": None, **changes})


def test_a_gain_that_would_need_more_pairs_says_how_many() -> None:
    search = record(2)
    found = tuned(searched(), trials(search, proof=1.01), search)
    assert "A gain of 3% would need " in text(found)
    assert " pairs: " in text(found)


def test_a_setting_that_failed_in_its_proof_is_no_result() -> None:
    why = DroppedSetting(setting="fast", rounds=3, reason="in the proof: failed: killed")
    search = record(6, dropped=(why,))
    found = tuned(searched(), trials(search, proof=1.1), search)
    assert text(found) == "threads 4 → 3 is no result for decode: in the proof: failed: killed."


@pytest.mark.parametrize(("peak", "shown"), [(0.9, True), (0.99, False), (1.1, False)])
def test_memory_is_judged_from_one_peak_of_each(peak: float, *, shown: bool) -> None:
    search = record(1, objectives=("memory",), named={"memory": "fast"})
    measured = [
        one.model_copy(update={"job": job(peak if one.variant == "fast" else 1)})
        for one in trials(search, proof=1.0)
    ]
    found = tuned(searched(), measured, search)
    assert [proof.is_shown for proof in found.proofs] == [shown]
    if shown:
        assert text(found) == "threads 4 → 3: memory -10.0 %, from one peak of each."


def test_a_record_that_names_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="a search without the setting 'other' names it"):
        record(1, named={"decode": "other"})


def test_a_search_without_a_winner_or_without_its_end_says_so() -> None:
    search = record(0, named={})
    assert "the race named no setting" in text(tuned(searched(), [], search))
    assert "not come to its proof" in text(tuned(searched(), [], record(0, named=None)))


def test_the_chapter_names_the_fate_of_each_setting() -> None:
    search = record(6)
    measured = trials(search, proof=1.1)
    found = tuned(searched(), measured, search)
    (table,) = tables(found, Language("en"))
    fates = {row[0].text: row[-1].text for row in table.rows}
    assert fates == {"default": "", "fast": "named for the proof", "slow": "-20 % decode"}
    front = {row.setting for row in found.rows if row.on_front}
    assert "slow" not in front
    assert "fast" in front
    written = io.StringIO()
    status = Status("x", "passed", 1, 1, None)
    print_search(Console(file=written, width=120), searched(), found, status)
    assert "threads 4 → 3" in written.getvalue()
    (figure,) = gains([MeasuredRun(searched(), measured, tuned=found)], Language("en"))
    assert isinstance(figure, Figure)
    assert [row["kind"] for row in figure.rows] == ["proof", "race", "race"]
    assert all(one.state is TrialState.OK for one in measured)
