"""The page of an evaluation: what it says is what the grades say."""

import json
import re
from pathlib import Path

import pytest
import vl_convert
from evaluations_made import made_evaluation

from labctl.records.board import Execution
from labctl.report.page.evaluation import evaluation_report
from labctl.report.page.html import html
from labctl.report.page.language import Language
from labctl.report.page.markdown import markdown

EN, ZH = Language("en"), Language("zh")
HOSTILE = "</script><script>alert(1)</script>\x1b[2J\u202e"
RIGHT = {"q2_k/step": (0.1, 0.3, 0.45, 0.5), "q8_0/step": (0.05, 0.4, 0.6, 0.9)}


def test_the_answer_names_the_best_and_the_difference_on_the_same_questions(tmp_path: Path) -> None:
    report = evaluation_report(made_evaluation(tmp_path, right=RIGHT, questions=200), EN)
    best, difference = report.answers
    found = re.match(r"Most right answers, no limit: q8_0/step, ([\d.]+)% \(", best)
    assert found
    assert 84 < float(found[1]) < 95
    told = re.match(
        r"q8_0/step is better than q2_k/step by ([\d.]+) points \(95% interval ([\d.]+) to"
        r" ([\d.]+), on the same 200 questions\)\.",
        difference,
    )
    assert told
    assert float(told[2]) < float(told[1]) < float(told[3])


def test_models_are_held_against_each_other_at_the_limits_of_one_time(tmp_path: Path) -> None:
    made = made_evaluation(
        tmp_path,
        right={"q2_k/step": (0.1, 0.4), "q8_0/step": (0.3, 0.8)},
        model_budgets={"q2_k": (150, 300), "q8_0": (55, 110)},
        questions=200,
    )
    report = evaluation_report(made, EN)
    best, difference = report.answers
    assert best.startswith("Most right answers, the tokens of 60.0 s: q8_0/step, ")
    assert difference.startswith("q8_0/step is better than q2_k/step by ")
    graded = {answer.grade.text for shown in report.transcripts for answer in shown.answers}
    assert "not graded" not in graded


def test_equal_models_are_not_told_apart_and_share_the_lead(tmp_path: Path) -> None:
    alike = {"a/p": (0.2, 0.3, 0.4, 0.5), "b/p": (0.2, 0.3, 0.4, 0.5)}
    best, difference = evaluation_report(made_evaluation(tmp_path, right=alike), EN).answers
    assert "no limit: a/p, b/p, " in best
    assert difference.startswith("It is unclear which is better, ")


def test_many_pairs_are_judged_more_strictly(tmp_path: Path) -> None:
    right = {f"{model}/{prompt}": (0.1, 0.2, 0.3, 0.5) for model in "ab" for prompt in "pqrs"}
    answers = evaluation_report(made_evaluation(tmp_path, right=right), EN).answers
    assert len(answers) == 5  # prompts are not held against each other
    assert all("98.75% interval" in text for text in answers[1:])


def test_the_table_is_that_of_the_experiment(tmp_path: Path) -> None:
    made = made_evaluation(tmp_path, right=RIGHT)
    by_boxed, by_numeric, details, disagreements = evaluation_report(made, EN).tables
    assert [column.heading for column in by_boxed.columns] == [
        *("Variant", "100 tokens", "200 tokens", "300 tokens", "no limit")
    ]
    cell = made.table.cell("q2_k/step", 200, "boxed")
    assert cell
    assert cell.interval
    assert by_boxed.rows[0][2].text.startswith(f"{cell.right / 60 * 100:.1f}% (")
    assert by_boxed.rows[0][2].text != by_numeric.rows[0][2].text
    assert details.rows[1][2].text == str(cell.right)
    assert details.rows[1][4].text == str(sum(not grade.complete for grade in cell.grades))
    assert {row[0].text for row in disagreements.rows} == {"q-0060"}


def test_questions_on_which_the_variants_differ_come_first(tmp_path: Path) -> None:
    report = evaluation_report(made_evaluation(tmp_path, right=RIGHT), EN)
    tones = [{answer.grade.tone for answer in one.answers} for one in report.transcripts]
    differ = [len(tone) > 1 for tone in tones]
    assert any(differ)
    assert differ == sorted(differ, reverse=True)


@pytest.mark.parametrize(
    ("execution", "mark"), [(Execution.EMULATED, "EMULATED: "), (None, "AS DECLARED: ")]
)
def test_doubts_stay_with_the_page(tmp_path: Path, execution: Execution | None, mark: str) -> None:
    made = made_evaluation(tmp_path, right=RIGHT, execution=execution)
    (shown,) = evaluation_report(made, EN).marks
    assert shown.startswith(mark)


def test_text_of_a_model_stays_text(tmp_path: Path) -> None:
    made = made_evaluation(tmp_path, right={f"m{HOSTILE}/p": (0.5,) * 4}, text=f"{HOSTILE}%s")
    page = html(evaluation_report(made, EN), EN)
    assert "alert(1)</script>" not in page
    assert "\x1b" not in page + markdown(evaluation_report(made, EN), EN)


def test_figures_compile_and_show_every_accuracy(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = made_evaluation(tmp_path, right=RIGHT)
    report = evaluation_report(made, ZH)
    assert [one.name for one in report.figures] == ["accuracy", "accuracy-numeric", "lengths"]
    for one in report.figures:
        for chart in (one.chart("light"), one.chart("dark", 340)):
            vl_convert.vegalite_to_vega(json.loads(json.dumps(chart)), show_warnings=True)
    assert "".join(capfd.readouterr()) == ""
    shown = {(row["series"], row["budget"]): row["share"] for row in report.figures[0].rows}
    for cell in made.table.cells:
        if cell.grader == "boxed":
            budget = "无限制" if cell.budget is None else str(cell.budget)
            assert shown[cell.variant, budget] == pytest.approx(cell.share, abs=1e-5)


def test_one_limit_alone_is_no_curve(tmp_path: Path) -> None:
    made = made_evaluation(tmp_path, right={"a/p": (0.5,)}, budgets=(None,), graders=("boxed",))
    report = evaluation_report(made, EN)
    assert [one.name for one in report.missing] == ["accuracy"]


def test_no_right_answer_makes_no_winner(tmp_path: Path) -> None:
    report = evaluation_report(made_evaluation(tmp_path, right={"a/p": (0.0,) * 4}), EN)
    assert report.answers == ["None of the 60 answers of any variant is right, no limit."]
