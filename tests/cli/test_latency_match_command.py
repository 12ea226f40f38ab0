"""``labctl latency-match``: what a person sees."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from matched_lab import EVALUATION, MODELS, TIMING, evaluation, matched_lab, timing_run
from records_made import model, plan, planned_run, run, trial

from labctl.cli.root import run_cli
from labctl.records.board import Execution
from labctl.records.evaluation import EndpointRecord
from labctl.records.timing import Measure, TimingRecord
from labctl.records.trial import Check

Printed = pytest.CaptureFixture[str]
#: 0.5 / 0.9 of the answers of q8_0, of 10 to 400 tokens, take so long
CROSSING = (10 + 0.5 / 0.9 * 390) * 0.273


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return matched_lab(tmp_path_factory.mktemp("matched") / "lab")


@pytest.fixture
def lab(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab of a test's own, with a timing run."""
    root = tmp_path / "lab"
    root.mkdir()
    (root / "devices.yaml").write_text(
        "boards: {rk1: {target: rk3568, transport: {kind: local}, workdir: w}}\n"
    )
    timing_run(root)
    monkeypatch.chdir(root)
    return root


def test_one_command_says_which_model_to_use(lab: Path, capsys: Printed) -> None:
    assert run_cli(["latency-match", "--deadline", "30s", "--deadline", "100s"]) == 0
    text = capsys.readouterr().out
    assert "At a deadline of 30.0 s use q2_k/steps:" in text
    assert "At a deadline of 100 s use q8_0/steps:" in text
    assert "shown to be more than all others" in text
    found = re.findall(r"Use q2_k/steps for (\w+) below about ([0-9.]+) s and q8_0/steps", text)
    assert [axis for axis, _ in found] == ["budgets", "deadlines"]
    for _, seconds in found:
        assert float(seconds) == pytest.approx(CROSSING, rel=0.25)
    assert "q8_0 takes 2.730 times as long a token as q2_k (0.2730 / 0.1000 s)" in text
    assert re.search(r"^100 +37 +10\.0 s", text, re.MULTILINE)
    assert "model as declared" not in text
    assert "EMULATED" not in text


def test_all_of_it_as_json(lab: Path, capsys: Printed) -> None:
    assert run_cli(["latency-match", TIMING, EVALUATION, "--json", "--deadline", "60s"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["questions"] == 300
    assert found["evaluations"] == [EVALUATION]
    assert {one["axis"] for one in found["curves"]} == {"budget", "deadline"}
    for one in found["crossings"]:
        assert one["kind"] == "crossing"
        assert one["low"] < CROSSING < one["high"]
    assert found["grids"][0]["ratio"] == pytest.approx(2.73)
    assert [one["longest_position"] for one in found["timings"]] == [576, 576]
    assert found["choices"][0]["seconds"] == 60
    assert any(one["on_front"] for one in found["points"])


def test_the_points_of_the_curves_as_csv(lab: Path, tmp_path: Path, capsys: Printed) -> None:
    out = tmp_path / "curves.csv"
    assert run_cli(["latency-match", "-o", str(out)]) == 0
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    limits = [row for row in rows if row["axis"] == "budget" and row["model"] == "q8_0"]
    assert [row["budget"] for row in limits] == ["50", "100", "200", "300", "400"]
    # The geometric mean of the trials' times per token.
    assert float(limits[0]["seconds"]) == pytest.approx(50 * 0.273, rel=1e-5)
    assert all(float(row["low"]) <= float(row["accuracy"]) <= float(row["high"]) for row in rows)
    assert run_cli(["latency-match", "-o", str(tmp_path / "curves.xlsx")]) == 2
    assert "unknown file type .xlsx" in capsys.readouterr().err


def test_published_figures_alone_make_no_curve(lab: Path, capsys: Printed) -> None:
    assert run_cli(["latency-match", "--references", "all"]) == 0
    text = capsys.readouterr().out
    assert "49.73 / 18.18 = 2.7354: 2.73 when cut" in text
    for small, large in ((100, 37), (200, 73), (300, 110)):
        assert re.search(rf"^{small} +{large} ", text, re.MULTILINE)
    for share in ("51.6%", "70.9%", "85.6%"):
        assert re.search(rf"{re.escape(share)}, no limit", text)
    assert "no published curve" in text
    assert "QUOTED" in text
    assert run_cli(["latency-match", "--references", "all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["curves"] == []


def test_a_reference_that_nobody_knows(lab: Path, capsys: Printed) -> None:
    assert run_cli(["latency-match", "--references", "rk3568-llama31-8b-q2k"]) == 2
    assert "did you mean 'rk3568-llama31-8b-q2-k'" in capsys.readouterr().err


def test_a_declared_model_has_no_file_that_is_known(own: Path, capsys: Printed) -> None:
    declared = tuple(one.model_copy(update={"file": "", "sha256": ""}) for one in MODELS)
    evaluation(own, questions=1, models=declared)
    assert run_cli(["latency-match", TIMING, EVALUATION]) == 2
    assert "the evaluation's file is not known, the timing's q2_k.gguf" in capsys.readouterr().err


def test_another_file_of_the_model_is_refused(own: Path, capsys: Printed) -> None:
    other = tuple(one.model_copy(update={"sha256": "f" * 64}) for one in MODELS)
    evaluation(own, questions=40, models=other)
    assert run_cli(["latency-match"]) == 2
    assert "measured the time of q2_k, q8_0 (by its SHA-256)" in capsys.readouterr().err
    assert run_cli(["latency-match", TIMING, EVALUATION]) == 2
    told = capsys.readouterr().err
    assert "do not belong together" in told
    assert f"the evaluation's file is q2_k.gguf {'f' * 12}, the timing's q2_k.gguf" in told
    assert run_cli(["latency-match", TIMING, EVALUATION, "--assume-same-model"]) == 0
    assert "ASSUMED SAME MODEL: model q2_k: the evaluation's file" in capsys.readouterr().out
    assert run_cli(["latency-match", TIMING, EVALUATION, "--assume-same-model", "-o", "x.csv"]) == 0
    with (own / "x.csv").open() as file:
        assert all("ASSUMED SAME MODEL" in row["heading"] for row in csv.DictReader(file))


def test_a_newer_run_that_measured_no_token_is_passed_over(own: Path, capsys: Printed) -> None:
    """A perplexity of the same files, for instance."""
    evaluation(own, questions=40)
    newer = "20991231T235959Z-perplexity-abcdef"
    directory = planned_run(own / "runs", run(newer, models=MODELS), plan())
    measure = Measure(name="perplexity", unit="1", values=(9.0,), value=9.0)
    for number, one in enumerate(MODELS, 1):
        directory.add(trial(number, model=one, timing=TimingRecord(measures=(measure,))))
    assert run_cli(["latency-match", "--json"]) == 0
    assert newer not in capsys.readouterr().out


def test_what_differs_is_listed(own: Path, capsys: Printed) -> None:
    def server(name: str) -> EndpointRecord:
        return EndpointRecord(
            name=name, api="llama-server", model=name, sha256_proven=True, board=None,
            execution=Execution.NATIVE_HOST, parameters={"cache_type_k": "q8_0"},
        )  # fmt: skip

    record = evaluation(own, questions=40, endpoints=(server("q2_k"), server("q8_0")))
    sampling = record.sampling.model_copy(update={"temperature": 0.8})
    path = own / "runs" / EVALUATION / "evaluation.json"
    path.write_text(record.model_copy(update={"sampling": sampling}).model_dump_json())
    assert run_cli(["latency-match"]) == 2
    told = capsys.readouterr().err
    assert "KV type of q2_k: evaluated with q8_0/f16, timed with f16" in told
    assert "temperature of q8_0: evaluated with 0.8, timed with 0" in told


def test_a_server_that_others_started_is_as_declared(own: Path, capsys: Printed) -> None:
    endpoints = tuple(
        EndpointRecord(name=one.key, api="openai-chat", model=one.key, sha256_proven=False)
        for one in MODELS
    )
    evaluation(own, questions=40, endpoints=endpoints)
    assert run_cli(["latency-match"]) == 0
    text = capsys.readouterr().out
    assert "model as declared, not proven: q2_k, q8_0" in text
    assert "KV type (the server does not report it)" in text


def with_layout(root: Path, layout: str, **changes: Any) -> None:
    """An evaluation whose prompts are laid out so."""
    record = evaluation(root, questions=40, **changes)
    prompts = [one.model_copy(update={"layout": layout}) for one in record.prompts]
    path = root / "runs" / EVALUATION / "evaluation.json"
    path.write_text(record.model_copy(update={"prompts": tuple(prompts)}).model_dump_json())


@pytest.mark.parametrize(
    ("proven", "layout", "headed"),
    [(True, "chat", False), (False, "chat", True), (False, "raw-chatml", False)],
)
def test_the_template_is_the_files_where_the_server_is_proven(
    own: Path, capsys: Printed, proven: bool, layout: str, headed: bool
) -> None:
    endpoints = tuple(
        EndpointRecord(name=one.key, api="llama-server", model=one.key, sha256_proven=proven)
        for one in MODELS
    )
    with_layout(own, layout, endpoints=endpoints)
    assert run_cli(["latency-match"]) == 0
    told = "chat template (a declared server may not use the file's)"
    assert (told in capsys.readouterr().out) is headed


def test_servers_of_a_model_with_unlike_templates_are_refused(own: Path, capsys: Printed) -> None:
    endpoints = tuple(
        EndpointRecord(
            name=f"{one.key}-{digit}", api="llama-server", model=one.key, sha256_proven=False,
            template_sha256=digit * 64,
        )
        for one in MODELS
        for digit in "ab"
    )  # fmt: skip
    with_layout(own, "chat", endpoints=endpoints)
    assert run_cli(["latency-match"]) == 2
    assert "chat template of q2_k: its servers have" in capsys.readouterr().err


def test_emulated_times_are_said_to_be(own: Path, capsys: Printed) -> None:
    timing_run(own, "20261121T223000Z-q8-q2-222222", execution=Execution.EMULATED)
    evaluation(own, questions=40)
    assert run_cli(["latency-match"]) == 0
    assert capsys.readouterr().out.startswith("EMULATED timing, not the speed of a board")


def test_a_model_timed_in_several_variants(own: Path, capsys: Printed) -> None:
    several = "20261121T223000Z-threads-333333"
    timing_run(own, several, variants=({"threads": 2}, {"threads": 4}))
    evaluation(own, questions=40)
    assert run_cli(["latency-match", several, EVALUATION]) == 2
    assert f"{several}:q2_k, {several}:q2_k-1" in capsys.readouterr().err
    names = [f"{several}:q2_k-1", f"{several}:q8_0-1", EVALUATION]
    assert run_cli(["latency-match", *names]) == 0
    assert run_cli(["latency-match", f"{several}:q9", EVALUATION]) == 2
    assert "no variant 'q9'" in capsys.readouterr().err


OTHER = "20261121T223000Z-other-777777"


def other_run(own: Path, *names: str, **changes: Any) -> None:
    """Measure these models once more, ten times as fast."""
    chosen = [one for one in MODELS if one.key in names]
    timing_run(own, OTHER, models=chosen, speed=10.0, **changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"board": "rk9"}, f"board: {TIMING}:q2_k rk1 (board), {OTHER}:q2_k rk9 (board)"),
        ({"execution": Execution.EMULATED}, f"{OTHER}:q2_k rk1 (emulated)"),
        ({"variants": ({"cache_type_k": "q4_0", "cache_type_v": "q4_0"},)}, "KV type: "),
        ({"variants": ({"threads": 2},)}, f"threads: {TIMING}:q2_k not set, {OTHER}:q2_k 2"),
        ({"comparability": {"governor": "powersave"}}, "governor: "),
    ],
)
def test_runs_under_different_conditions_are_not_pooled(
    own: Path, capsys: Printed, changes: dict[str, Any], says: str
) -> None:
    other_run(own, "q2_k", "q8_0", **changes)
    evaluation(own, questions=40)
    assert run_cli(["latency-match", EVALUATION, TIMING, OTHER]) == 2
    told = capsys.readouterr().err
    assert "model q2_k was measured under different conditions" in told
    assert says in told
    assert f"labctl latency-match … {TIMING}:q2_k" in told
    assert run_cli(["latency-match", EVALUATION, TIMING]) == 0


def test_runs_that_differ_in_length_alone_are_pooled(own: Path, capsys: Printed) -> None:
    timing_run(own, OTHER, tokens=128, comparability={"model_cache": "warm", "tokens": 128})
    evaluation(own, questions=40)
    assert run_cli(["latency-match", EVALUATION, TIMING, OTHER, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["repeats"] for one in found["timings"]] == [6, 6]


def test_every_pooled_trial_must_agree_with_the_evaluation(own: Path, capsys: Printed) -> None:
    timing_run(own, OTHER, variants=({"temperature": 1.0},))
    evaluation(own, questions=40)
    assert run_cli(["latency-match", EVALUATION, TIMING, OTHER]) == 2
    assert "temperature of q2_k: evaluated with 0, timed with 0, 1" in capsys.readouterr().err


def test_models_timed_on_different_boards_are_refused(own: Path, capsys: Printed) -> None:
    other_run(own, "q8_0", board="rk9")
    evaluation(own, questions=40)
    assert run_cli(["latency-match"]) == 2
    assert "board: q2_k rk1 (board), q8_0 rk9 (board)" in capsys.readouterr().err
    assert run_cli(["latency-match", "--assume-same-model"]) == 0
    assert capsys.readouterr().out.startswith("DIFFERENT BOARDS: board: q2_k rk1 (board), q8_0 rk9")


def test_models_timed_with_different_settings_are_headed(own: Path, capsys: Printed) -> None:
    other_run(own, "q8_0", variants=({"threads": 2},))
    evaluation(own, questions=40)
    assert run_cli(["latency-match"]) == 0
    text = capsys.readouterr().out
    assert "timed under different conditions: threads: q2_k not set, q8_0 2" in text


def test_times_that_their_own_checks_contradict_are_headed(own: Path, capsys: Printed) -> None:
    other_run(own, "q8_0", checks=(Check(name="frequency", ok=False, detail="down"),))
    evaluation(own, questions=40)
    assert run_cli(["latency-match"]) == 0
    told = f"CHECKS FAILED in 3 of 3 trials of q8_0 ({OTHER}): frequency"
    assert told in capsys.readouterr().out


def test_the_newest_run_of_each_model_alone_is_taken(own: Path, capsys: Printed) -> None:
    other_run(own, "q8_0")  # the older run has q8_0, too
    evaluation(own, questions=40)
    assert run_cli(["latency-match", "--json"]) == 0
    timings = {one["model"]: one for one in json.loads(capsys.readouterr().out)["timings"]}
    assert timings["q8_0"]["runs"] == [OTHER]
    assert timings["q2_k"]["runs"] == [TIMING]


def test_short_timing_recommends_nothing_beyond_it(own: Path, capsys: Printed) -> None:
    short = "20261121T223000Z-short-444444"
    timing_run(own, short, tokens=16)
    evaluation(own, questions=100)
    assert run_cli(["latency-match", short, EVALUATION, "--deadline", "100s"]) == 0
    text = capsys.readouterr().out
    assert "At a deadline of 100 s every time is extrapolated: nothing is recommended." in text
    assert "extrapolated" in text
    assert "below about" not in text
    # prompts of 60 tokens, answers and limits of up to 400; timed were a prompt of 64 and 16 tokens
    note = (
        "q8_0: times are measured to position 80, answers reach 460:"
        " measure with a prompt of 60 tokens and 400 tokens to avoid extrapolation"
    )
    assert note in text


def test_what_the_note_says_to_measure_leaves_nothing_extrapolated(
    own: Path, capsys: Printed
) -> None:
    enough = "20261121T223000Z-enough-888888"
    timing_run(own, enough, tokens=460 - 64)  # of matched_lab: a prompt of 64 tokens
    evaluation(own, questions=100)
    assert run_cli(["latency-match", enough, EVALUATION, "--deadline", "100s"]) == 0
    assert "extrapolated:" not in (text := capsys.readouterr().out)
    assert "to avoid extrapolation" not in text
    assert run_cli(["latency-match", enough, EVALUATION, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not any(one["extrapolated"] for curve in found["curves"] for one in curve["points"])
    assert not any(one["extrapolated"] for one in found["points"])


def test_a_timing_run_that_has_not_ended_says_so(own: Path, capsys: Printed) -> None:
    evaluation(own, questions=40)
    (own / "runs" / TIMING / "end.json").unlink()
    assert run_cli(["latency-match"]) == 0
    assert capsys.readouterr().out.count(f"timing run {TIMING} has not ended") == 1


def test_a_choice_names_what_is_left_out_of_it(own: Path, capsys: Printed) -> None:
    short = "20261121T223000Z-short-444444"
    timing_run(own, short, tokens=100)  # position 164: q2_k gets there after 10 s, q8_0 after 27 s
    evaluation(own, questions=100)
    assert run_cli(["latency-match", short, EVALUATION, "--deadline", "20s"]) == 0
    text = capsys.readouterr().out
    assert "At a deadline of 20.0 s use q8_0/steps:" in text
    assert "nothing else can be compared there. Extrapolated there, and left out: q2_k/st" in text


def test_an_evaluation_that_has_not_ended_says_so(own: Path, capsys: Printed) -> None:
    evaluation(own, questions=40, unfinished=True)
    grades = own / "runs" / EVALUATION / "grades.jsonl"
    lines = grades.read_text().splitlines(keepends=True)
    grades.write_text("".join(lines[:-20]) + lines[-1][:30])  # killed in the middle of a line
    assert run_cli(["latency-match"]) == 0
    text = capsys.readouterr().out
    assert f"evaluation {EVALUATION} has not ended" in text
    assert "questions have a missing grade: left out" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--deadline", "60"], "'60': must be a duration such as 90s"),
        (["--grader", "boxd"], "did you mean 'boxed'"),
        ([EVALUATION, "nothing"], "no run 'nothing'"),
        ([f"{EVALUATION}:q2_k"], "matched with all its variants"),
    ],
)
def test_mistakes(lab: Path, capsys: Printed, words: list[str], says: str) -> None:
    assert run_cli(["latency-match", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_lab_without_an_evaluation(own: Path, capsys: Printed) -> None:
    assert run_cli(["latency-match"]) == 2
    assert "no graded evaluation in" in capsys.readouterr().err


def test_energy_gives_right_answers_per_joule(own: Path, capsys: Printed) -> None:
    from records_made import energy

    timing_run(own, "20261121T223000Z-power-555555", energy=energy(joules_per_token=0.5))
    evaluation(own, questions=40)
    assert run_cli(["latency-match"]) == 0
    text = capsys.readouterr().out
    assert "right per kJ" in text
    assert model().key in text
