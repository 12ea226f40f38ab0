"""The report as a page: what it says, and that text of others stays text."""

import base64
import hashlib
import html as html_entities
import json
import random
import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from chinese_texts import SAME
from measured_runs import Made, measured
from records_made import BEGAN, model, run, timing, trial
from stored_runs import stored

from labctl.compare.comparison import Verdict
from labctl.compare.sides import run_sides
from labctl.compare.verdicts import compare
from labctl.config.recipe import Recipe
from labctl.errors import ConfigError, printable
from labctl.records.board import Execution
from labctl.records.run import Annotations, Origin
from labctl.records.trial import Check, Failure, TrialBound, TrialState
from labctl.report.figures.measured import MeasuredRun
from labctl.report.page import language
from labctl.report.page.build import build_report
from labctl.report.page.html import columns, embedded, html
from labctl.report.page.language import Language
from labctl.report.page.markdown import markdown
from labctl.report.page.pdf import pdf
from labctl.report.remarks import Remark
from labctl.runs.record.directory import RunDirectory

EN, ZH = Language("en"), Language("zh")
PAGE = Path(language.__file__).parent
#: What a model, a board, a program or a person may be called.
HOSTILE = (
    "</script><script>alert(1)</script><!-- javascript:x =1+1 *b* [l](u) `c` \u202eevil\u2028|"
)


def report_of(tmp_path: Path, made: MeasuredRun, words: Language = EN):  # type: ignore[no-untyped-def]
    return build_report([stored(tmp_path, made)], words)


def answer_of(tmp_path: Path, made: MeasuredRun, words: Language = EN) -> str:
    return words.joined(report_of(tmp_path, made, words).answers)


def test_the_answer_tells_which_is_faster_by_how_much_and_where(tmp_path: Path) -> None:
    found = re.match(
        r"q2_k is ([\d.]+) times as fast as q8_0 on rk1 \(98.33% interval ([\d.]+) to ([\d.]+):"
        r" 95% for all 3 comparisons of variants and figures at once\):"
        r" (\d+) ms a token against (\d+) ms\.",
        answer_of(tmp_path, measured()),
    )
    assert found
    ratio, low, high = map(float, found.groups()[:3])
    assert low < ratio < high
    assert 1.9 < ratio < 2.1
    assert 185 < int(found[4]) < 195
    assert 375 < int(found[5]) < 385


def test_the_answer_claims_no_difference_that_the_interval_does_not_show(tmp_path: Path) -> None:
    alike = [Made("a", 200.0), Made("b", 204.0)]
    text = answer_of(tmp_path, measured(alike, repeats=3, tokens=4))
    assert text.startswith("It is unclear on rk1 which is faster, ")
    assert "interleaved rounds would settle it." in text
    assert "times as fast" not in text


def test_the_answer_says_that_variants_are_equally_fast(tmp_path: Path) -> None:
    text = answer_of(tmp_path, measured([Made("a", 200.0), Made("b", 200.2)], repeats=12))
    assert re.match(r"[ab] \(200 ms a token\) and [ab] \(200 ms\) are equally fast on rk1", text)


def test_the_answer_corrects_its_interval_for_all_variants(tmp_path: Path) -> None:
    made = [Made("a", 400.0), Made("b", 100.0), Made("c", 200.0)]
    text = answer_of(tmp_path, measured(made))
    assert text.startswith(
        "b is the fastest of 3 variants on rk1. The next is c, 200 ms a token. b is "
    )
    level = re.search(r"times as fast as a on rk1 \(([\d.]+)% interval", text)
    assert level
    assert float(level[1]) > 95


def timed_run(*, turns: bool = True, **times: list[float]) -> MeasuredRun:
    """A run with these token times in ms."""
    count = len(times)
    trials = [
        trial(
            round_ * count + place if turns else place * 100 + round_,
            repeat=round_ + 1,
            variant=name,
            timing=timing([value] * 4, ttft_ns=None, prompt_eval_ns=None),
            comparability={"threads": 4},
        )
        for place, (name, values) in enumerate(times.items(), 1)
        for round_, value in enumerate(values)
    ]
    return MeasuredRun(run(variants=tuple(times)), trials)


def test_the_answer_is_not_the_other_way_round_than_the_ratio(tmp_path: Path) -> None:
    """More than half of the rounds of b are a little faster, the others much slower.

    The times are those that the ratio is of.
    """
    fast, torn = [100 + n / 100 for n in range(20)], [99.5] * 11 + [120 + n / 10 for n in range(9)]
    made = timed_run(a=fast, b=torn)
    (row,) = compare([tuple(run_sides(made.run, made.trials))]).rows  # type: ignore[list-item]
    assert row.verdict is Verdict.SLOWER
    text = answer_of(tmp_path, made)
    assert text.startswith(
        "a is 1.08 times as fast as b on rk1 (95% interval 1.04 to 1.13): 100 ms a token against"
        " 108 ms."
    )
    three = answer_of(tmp_path / "three", timed_run(c=[300.0] * 20, a=fast, b=torn))
    assert three.startswith(
        "a is the fastest of 3 variants on rk1. The next is b, 108 ms a token."
        " a is 3.00 times as fast as c"
    )


def test_the_answer_names_the_rounds_of_a_ratio_that_the_times_are_not_of(tmp_path: Path) -> None:
    """A round of b is lost: the ratio is of four rounds, the time of a of five."""
    made = timed_run(a=[100.0, 101, 99, 100, 150], b=[150.0, 152, 148, 151])
    text = answer_of(tmp_path, made)
    assert ", of the 4 rounds that have both): " in text
    assert "108 ms a token against 150 ms" in text


def test_the_answer_names_no_fastest_of_variants_that_are_equally_fast(tmp_path: Path) -> None:
    made = {
        "d": [150.0, 150.3, 149.8, 150.1, 149.7],
        "a": [99.8, 100.2, 99.9, 100.4, 100.1],
        "b": [100.3, 100.6, 100.1, 100.4, 100.0],
        "c": [99.8, 100.1, 99.7, 100.0, 100.3],
    }
    text = answer_of(tmp_path, timed_run(**made))
    assert text.startswith(
        "c, a, b are equally fast on rk1 (100 ms a token); none of 4 variants is faster."
        " c is 1.50 times as fast"
    )
    made["a"] = [100.0, 108.0, 97.0, 101.0, 95.0]
    text = answer_of(tmp_path / "noisy", timed_run(**made))
    assert re.match(
        r"It is unclear on rk1 which of [abc], [abc], [abc] is the fastest of 4 variants: they take"
        r" 100 ms a token\.",
        text,
    )


def test_the_answer_names_three_variants_and_counts_the_others(tmp_path: Path) -> None:
    chance = random.Random(1)
    made = {f"v{n}": [chance.gauss(100, 2) for _ in range(3)] for n in range(59)}
    text = answer_of(tmp_path, timed_run(**made, slow=[300.0, 303, 298]))
    assert re.match(
        r"It is unclear on rk1 which of v\d+, v\d+, v\d+ and \d+ more is the fastest of 60"
        r" variants: they take 9\d\.\d ms to 1\d\d ms a token\. v\d+ is 3\.08 times as fast as",
        text,
    )


def test_the_answer_of_many_variants_needs_two_rounds(tmp_path: Path) -> None:
    text = answer_of(tmp_path, timed_run(a=[100.0], b=[101.0], c=[300.0]))
    assert text.startswith(
        "It is unclear on rk1 which of a, b, c is the fastest of 3 variants: they take 100 ms to"
        " 300 ms a token. There are too few rounds for an interval."
    )


def test_the_answer_names_unlike_variants_apart(tmp_path: Path) -> None:
    made = timed_run(a=[100.0, 101, 99], b=[200.0, 203, 199], c=[150.0, 152, 149])
    for differing, begin in (
        ("c", "b is 0.5"),
        ("bc", "a takes 100 ms a token on rk1 (95% interval 97.5 ms to 103 ms)."),
    ):
        trials = [
            one.model_copy(update={"comparability": {"cooling": one.variant in differing}})
            for one in made.trials
        ]
        text = answer_of(tmp_path / differing, MeasuredRun(made.run, trials))
        assert re.search(r"Not compared with a: [bc](, b)? \(cooling: ", text), begin


def test_the_answer_tells_a_small_difference_that_is_certain(tmp_path: Path) -> None:
    """By the ratio, which is the ratio of the times beside it."""
    slower = [100.5, 104.8, 99.9, 103.1, 103.1]
    made = timed_run(a=[100.0, 101.0, 99.0, 100.5, 101.4], b=slower)
    text = answer_of(tmp_path, made)
    assert re.match(
        r"a \(100 ms a token\) is faster than b \(102 ms\) on rk1, but not shown to be so by more"
        r" than 2%: ratio 1\.019 \(95% interval 1\.003 to 1\.035\)\. \d+ interleaved rounds would",
        text,
    )


def test_the_answer_is_judged_as_a_comparison_of_all_figures(tmp_path: Path) -> None:
    """5 % of error over three figures: what is told of one alone is not told of it."""
    made = timed_run(a=[100.0] * 5, b=[102.0, 104.5, 107.5, 101.0, 105.0])
    with_start = [
        one.model_copy(update={"timing": timing([one.timing.token_ns[0] / 1e6] * 4)})
        for one in made.trials
    ]
    rows = compare([tuple(run_sides(made.run, with_start))]).rows  # type: ignore[list-item]
    assert rows[0].verdict is Verdict.CANT_TELL
    assert answer_of(tmp_path, MeasuredRun(made.run, with_start)).startswith("It is unclear")


def test_the_answer_says_that_variants_did_not_take_turns(tmp_path: Path) -> None:
    made = timed_run(turns=False, a=[100.0, 101.0, 99.0], b=[150.0, 151.0, 149.0])
    assert "measured one after the other, so that drift counts" in answer_of(tmp_path, made)
    assert "one after the other" not in answer_of(tmp_path / "turns", measured())


def test_the_answer_says_that_too_few_rounds_have_both(tmp_path: Path) -> None:
    """They took turns: a's last two and b's first two failed."""
    made = timed_run(a=[100.0, 101.0, 99.0, 100.0], b=[150.0, 151.0, 149.0, 150.0])
    kept = [
        one for one in made.trials if (one.repeat <= 2) == (one.variant == made.trials[0].variant)
    ]
    told = answer_of(tmp_path, MeasuredRun(made.run, kept))
    assert "Fewer than two rounds have both, so that drift counts as a difference." in told
    assert "one after the other" not in told


def test_the_answer_compares_no_unlike_variants(tmp_path: Path) -> None:
    made = measured()
    hot = {"q8_0": "inactive", "q2_k": "active"}
    trials = [
        one.model_copy(update={"comparability": {"cooling": hot[one.variant]}})
        for one in made.trials
    ]
    text = answer_of(tmp_path, MeasuredRun(made.run, trials))
    assert "are not compared on rk1: cooling: inactive / active" in text
    assert "times as fast" not in text


def test_the_answer_of_one_round_says_that_it_has_no_interval(tmp_path: Path) -> None:
    text = answer_of(tmp_path, measured(repeats=1))
    assert "too few rounds for an interval, so it is unclear which" in text


def test_the_answer_is_not_that_of_a_board_where_it_was_emulated(tmp_path: Path) -> None:
    made = measured(execution=Execution.EMULATED)
    report = report_of(tmp_path, made)
    assert "rk1 (not the speed of a board)" in report.answers[0]
    assert report.marks[0].startswith("EMULATED")
    text = markdown(report, EN)
    assert "| EMULATED q8_0 |" in text
    page = html(report, EN)
    assert page.count('<strong class="badge">EMULATED</strong>') >= 2


def test_the_answer_names_the_bound_and_failed_checks(tmp_path: Path) -> None:
    made = measured([Made("a")])
    bound = TrialBound(
        measured=True,
        kind="dram",
        share=0.71,
        bytes_per_token=1,
        bytes_per_second=1.0,
        sentence="s",
    )
    checks = (Check(name="clock", ok=False, detail="it jumped"),)
    trials = [one.model_copy(update={"bound": bound, "checks": checks}) for one in made.trials]
    text = answer_of(tmp_path, MeasuredRun(made.run, trials))
    assert "a is bound by memory (DRAM): at 71% of what the measured rate" in text
    assert "Checks failed, see the table: clock." in text


def test_the_answer_names_the_variants_whose_trials_have_no_result(tmp_path: Path) -> None:
    made = measured([Made("a"), Made("b")], repeats=2)
    failure = Failure(kind="ProgramFailed", blame="job", message="it crashed")
    failed = {"state": TrialState.FAILED, "timing": None, "failure": failure, "checks": ()}
    trials = [t.model_copy(update=failed if t.variant == "b" else {}) for t in made.trials]
    text = answer_of(tmp_path, MeasuredRun(made.run, trials))
    assert "Trials without a result: 2, of b." in text


@pytest.mark.parametrize(("words", "shown"), [(EN, "ok; not judged: drift"), (ZH, "未评判")])
def test_a_check_that_was_not_judged_is_listed_with_its_reason(
    tmp_path: Path, words: Language, shown: str
) -> None:
    made = measured([Made("a")])
    checks = (
        Check(name="tokens", ok=True, detail="4 of 4"),
        Check(name="drift", ok=None, detail="not judged: emulated"),
    )
    trials = [one.model_copy(update={"checks": checks}) for one in made.trials]
    text = markdown(report_of(tmp_path, MeasuredRun(made.run, trials), words), words)
    assert shown in text
    assert re.search(r"\| drift \| 0 \| 0 \| \d+ \| .*not judged: emulated", text)


@pytest.mark.parametrize("words", [EN, ZH])
def test_a_bound_by_an_expected_rate_is_not_called_measured(
    tmp_path: Path, words: Language
) -> None:
    made = measured([Made("a")])
    bound = TrialBound(
        kind="storage", share=0.9, bytes_per_token=1, bytes_per_second=1.0, measured=False,
        sentence="s",
    )  # fmt: skip
    trials = [one.model_copy(update={"bound": bound}) for one in made.trials]
    text = answer_of(tmp_path, MeasuredRun(made.run, trials), words=words)
    assert ("if the board is as expected" if words is EN else "若开发板符合预期") in text
    assert "the measured rate" not in text
    assert "实测速率" not in text


def test_a_run_without_a_result_says_why(tmp_path: Path) -> None:
    failure = Failure(kind="ProgramFailed", blame="job", message="it crashed")
    failed = trial(1, state=TrialState.FAILED, timing=None, failure=failure, checks=())
    made = measured()
    answer = answer_of(tmp_path, MeasuredRun(made.run, [failed]))
    assert "no result" in answer
    assert "it crashed" in answer


def test_damaged_runs_are_named_and_the_others_are_reported(tmp_path: Path) -> None:
    good = stored(tmp_path, measured())
    bad = stored(tmp_path, measured(run_id="20261121T223000Z-q2-012345"))
    next(bad.path.glob("trials/*/record.json")).write_text("{")
    report = build_report([good, bad], EN)
    assert [name for name, _ in report.damaged] == ["20261121T223000Z-q2-012345"]
    for text in (html(report, EN), markdown(report, EN)):
        assert "Left out, damaged: 20261121T223000Z-q2-012345" in text
    with pytest.raises(ConfigError, match="is not a record"):
        build_report([bad], EN)


def test_several_runs_share_a_table_with_a_column_for_the_run(tmp_path: Path) -> None:
    runs = [stored(tmp_path, measured(run_id=f"20261120T22300{n}Z-q2-abcde{n}")) for n in range(2)]
    report = build_report([*runs, runs[0]], EN)
    experiment = report.tables[0]
    assert [column.heading for column in experiment.columns[:2]] == ["Variant", "Run"]
    assert [row[1].text for row in experiment.rows] == ["abcde0", "abcde0", "abcde1", "abcde1"]
    assert len(report.runs) == 2
    compared = report.tables[1]
    assert compared.caption == "Runs compared"
    assert [[row[n].text for n in (0, 1, 7)] for row in compared.rows] == [
        ["abcde1:q8_0", "abcde0:q8_0", "can't tell"],
        ["abcde1:q2_k", "abcde0:q2_k", "can't tell"],
    ]
    assert "the run-to-run variation on this board is unknown" in compared.rows[0][-1].text


def runs_of(tmp_path: Path, count: int, *variants: Made) -> list[RunDirectory]:
    return [
        stored(
            tmp_path,
            measured(variants, run_id=f"202611{10 + n}T223000Z-q2-abcde{n}", repeats=4, seed=n + 1),
        )
        for n in range(count)
    ]


def test_the_answer_of_several_runs_is_their_comparison(tmp_path: Path) -> None:
    before, after = runs_of(tmp_path, 2, Made("a"), Made("b", 190.0))
    found = build_report([before, after], EN).answers
    assert len(found) == 2
    for text, name in zip(found, "ab", strict=True):
        assert re.match(
            rf"It is unclear on rk1 which is faster, abcde[01]:{name} \(\d+ ms a token\) or"
            rf" abcde[01]:{name} \(\d+ ms\): the run-to-run variation on this board is unknown",
            text,
        )
    board = stored(tmp_path, measured(run_id="20261121T223000Z-q2-fedcba"))
    emulated = measured(run_id="20261122T223000Z-q2-abcdef", execution=Execution.EMULATED)
    mixed = build_report([stored(tmp_path, emulated), board], EN)
    assert mixed.marks == []
    assert "(not the speed of a board)" not in mixed.answers[0]
    assert mixed.answers[0].startswith("fedcba: q2_k is ")
    told = "Not compared with run fedcba on rk1: 2 of 2 (abcdef:q8_0, abcdef:q2_k)."
    assert mixed.answers[-2] == told
    assert mixed.answers[-1].startswith("abcdef:q8_0: execution: board / emulated: results of a")


def test_the_answer_of_many_pairs_counts_the_verdicts(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, 6, Made("a"), Made("b", 190.0))
    slower = measured([Made("a", 500.0), Made("b", 190.0)], run_id="20261130T223000Z-q2-abcdef")
    found = build_report([*runs[1:], stored(tmp_path, slower)], EN).answers
    assert found[0].startswith("Slower than in run abcde1 on rk1: 1 of 10 (abcdef:a ")
    assert re.match(
        r"As fast as in run abcde1 on rk1: \d of 10 \((\S+ .\S+, ){2}\S+ .\S+ and \d more; ",
        found[1],
    )


def test_the_answer_of_more_runs_mixes_no_variants(tmp_path: Path) -> None:
    found = build_report(runs_of(tmp_path, 7, Made("a"), Made("b", 190.0)), EN).answers
    for text, name, ms in zip(found, "ab", ("3[78]", "1[89]"), strict=False):
        assert re.match(
            rf"{name} takes {ms}\d ms \(run abcde\d\) to {ms}\d ms \(run abcde\d\) a token on rk1,"
            r" in 7 runs\.",
            text,
        )
    assert found[2:] == ["Whether these runs differ is not judged here: labctl compare does it."]


def hostile_run(tmp_path: Path) -> RunDirectory:
    """A run in which everything that others name is hostile."""
    made = measured(
        [Made(HOSTILE), Made(f"=cmd|{HOSTILE}", 200.0)], board=HOSTILE, execution=Execution.EMULATED
    )
    facts = made.run.facts.model_copy(update={"os_version": HOSTILE, "emulator": HOSTILE})
    run = made.run.model_copy(
        update={
            "recipe": HOSTILE,
            "facts": facts,
            "plan_notes": (HOSTILE,),
            "recipe_resolved": {"name": HOSTILE, "prompt": f"{HOSTILE}\n````\n# x"},
        }
    )
    checks = (Check(name=HOSTILE, ok=False, detail=HOSTILE),)
    odd = model(HOSTILE, HOSTILE, file=HOSTILE)
    trials = [one.model_copy(update={"checks": checks, "model": odd}) for one in made.trials]
    directory = stored(tmp_path, MeasuredRun(run, trials, (), made.telemetry))
    notes = Annotations(tags=(HOSTILE,), note=HOSTILE)
    (directory.path / "annotations.json").write_text(notes.model_dump_json())
    return directory


def test_a_hostile_text_is_no_markup_script_or_direction(tmp_path: Path) -> None:
    page = html(build_report([hostile_run(tmp_path)], EN), EN)
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "\u2028" not in re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.S)
    assert len(scripts) == 1
    for data in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S):
        json.loads(data)
        assert "<" not in data
    assert "&lt;/script&gt;" in page
    assert "javascript:x" in html_entities.unescape(page)
    assert not re.search(r"""(href|src|on\w+)=["']?javascript""", page)


def test_a_hostile_text_is_no_markup_in_markdown(tmp_path: Path) -> None:
    text = markdown(build_report([hostile_run(tmp_path)], EN), EN)
    outside = re.sub(r"^(`{3,})\n.*?^\1$", "", text, flags=re.S | re.M)
    for markup in (r"(?<!\\)<", r"(?<!\\)\*b", r"(?<!\\)\[l", r"(?<!\\)`c", "\u202e", "\u2028"):
        assert not re.search(markup, outside), markup
    tables = [line for line in outside.splitlines() if line.startswith("|")]
    for above, line in pairwise(tables):
        if ":--" in line:
            assert len(re.findall(r"(?<!\\)\|", above)) == len(re.findall(r"(?<!\\)\|", line))


def test_an_imported_run_is_marked_and_is_unlike_a_run_of_the_lab(tmp_path: Path) -> None:
    own = stored(tmp_path, measured())
    other = stored(tmp_path, measured(run_id="20261121T223000Z-q2-012345"))
    other.mark_imported(
        Origin(kind="llama-bench", file="their.json", sha256="0" * 64, imported=BEGAN)
    )
    report = build_report([own, other], EN)
    text = "IMPORTED from their.json: not measured by this lab."
    assert [text in {one.text for one in run.remarks} for run in report.runs] == [False, True]
    assert report.marks == []  # above the answer, it would say so of both
    assert build_report([other], EN).marks == [text]
    assert [row[0].mark for row in report.tables[0].rows] == ["", "", "IMPORTED", "IMPORTED"]
    verdict = [one.heading for one in report.tables[1].columns].index("Verdict")
    assert {row[verdict].text for row in report.tables[1].rows} == {"unlike"}
    assert [len(run.commands) for run in report.runs] == [2, 1]


def test_commands_can_be_pasted_whatever_a_board_is_called(tmp_path: Path) -> None:
    (run,) = build_report([hostile_run(tmp_path)], EN).runs
    assert shlex.split(run.commands[0]) == ["labctl", "run", "recipe.yaml", "--board", HOSTILE]


def test_the_recipe_in_a_report_is_one(tmp_path: Path) -> None:
    """Saved as recipe.yaml, it makes the same run."""
    asked = Recipe.model_validate(
        {
            "name": "q2",
            "target": "rk3568",
            "engine": {"name": "llama_cpp"},
            "models": {"m": {"file": "m.gguf"}},
            "prompt": "a: b # c\n- d",
            "max_time": "1m",
            "repeats_until": {"metric": "tpot_ms", "confidence_interval": 0.02},
        }
    )
    made = measured([Made("m")])
    run = made.run.model_copy(update={"recipe_resolved": asked.resolved()})
    (section,) = report_of(tmp_path, MeasuredRun(run, made.trials)).runs
    assert Recipe.model_validate(yaml.safe_load(section.recipe)) == asked


def test_the_policy_names_all_that_may_run_and_no_more(tmp_path: Path) -> None:
    page = html(report_of(tmp_path, measured()), EN)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    told = html_entities.unescape(policy[1])
    assert "unsafe" not in told
    assert told.startswith("default-src 'none';")
    for kind in ("script", "style"):
        for text in re.findall(rf"<{kind}>(.*?)</{kind}>", page, flags=re.S):
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in told
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r"<[^>]+ (style|on\w+)=", outside)
    assert not re.search(r"https?:", re.sub(r"<style.*?</style>", "", outside, flags=re.S))


def test_each_printed_page_names_its_run(tmp_path: Path) -> None:
    def foot(page: str) -> str:
        (told,) = re.findall(
            r'@page\{@bottom-left\{content:"((?:\\[0-9a-f]+ )+)"\}\}</style>', page
        )
        return "".join(chr(int(code, 16)) for code in told.replace("\\", "").split())

    made = measured()
    assert foot(html(report_of(tmp_path, made), EN)) == made.run.id
    other = stored(tmp_path, measured(run_id="20261121T223000Z-q2-012345"))
    report = build_report([hostile_run(tmp_path / "hostile"), other], EN)
    assert foot(html(report, EN)) == printable(report.title)


def test_rows_by_columns_are_the_rows() -> None:
    rows = [{"a": "x", "b": 1.5}, {"a": "y", "c": True}, {"a": "x"}]
    found = columns(rows)
    assert found["a"] == {"names": ["x", "y"], "values": [0, 1, 0]}
    assert found["b"] == {"values": [1.5, None, None]}
    assert found["c"] == {"values": [None, True, None]}
    assert json.loads(embedded({"a": "</script>\u2028"})) == {"a": "</script>\u2028"}


def test_the_chinese_page_has_no_english_heading(tmp_path: Path) -> None:
    page = html(report_of(tmp_path, measured(), ZH), ZH)
    assert '<html lang="zh">' in page
    assert "q2_k 的速度是 q8_0 的" in page
    page = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    headings = re.findall(r"<(?:h2|h4|th scope=\"col\")[^>]*>(?:<button[^>]*>)?([^<]+)<", page)
    assert headings
    untranslated = {text for text in headings if text.isascii()} - SAME
    assert not untranslated, "no Chinese in labctl.po, and not in SAME of chinese_texts.py"


def test_a_pdf_without_a_browser_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="no Chromium or Chrome") as caught:
        pdf("<p>")
    assert "apt install chromium" in str(caught.value.hint)


def test_axe_is_of_the_pinned_version() -> None:
    """`scripts/javascript/make` was run after the last change of its version."""
    folder = Path(__file__).parents[2]
    wanted = json.loads((folder / "scripts/javascript/package.json").read_text())
    axe = (folder / "tests/fixtures/axe-core.min.js").read_text()[:100]
    assert wanted["devDependencies"]["axe-core"] in axe


def test_markdown_has_all_tables_and_words(tmp_path: Path) -> None:
    report = report_of(tmp_path, measured())
    text = markdown(report, EN)
    for table in [*report.tables, *report.runs[0].tables]:
        assert f"#### {table.caption}" in text
    for figure in report.figures:
        assert f"### {figure.title}" in text
    assert "recipe.yaml --board rk1" in text


def test_the_answer_says_how_sure_it_is(tmp_path: Path) -> None:
    alike = [Made("a", 200.0), Made("b", 300.0)]
    (said,) = [
        text
        for text in report_of(tmp_path, measured(alike, repeats=5)).answers
        if text.startswith("How sure: ")
    ]
    found = re.fullmatch(
        r"How sure: 5 repeats of each variant, the slowest of one at most ([\d.]+)% above its"
        r" fastest\.",
        said,
    )
    assert found
    assert 0 < float(found[1]) < 20


def test_many_remarks_are_folded_and_what_went_wrong_is_not(tmp_path: Path) -> None:
    report = report_of(tmp_path, measured())
    notes = [Remark(f"note {number}") for number in range(20)]
    run = replace(report.runs[0], remarks=[*notes, Remark("missed", "gate: ", "bad")])
    page = html(replace(report, runs=[run]), EN)
    opened, _, folded = page.partition("<summary>More remarks (9)</summary>")
    assert ("missed" in opened, "note 10<" in opened, "note 11<" in opened) == (True, True, False)
    assert "note 19<" in folded
