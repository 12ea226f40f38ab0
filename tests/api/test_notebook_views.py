"""Tables with fixed columns, HTML and figures, as a notebook shows them."""

import re
from pathlib import Path

import pandas
import pytest
from evaluations import boxed, evaluate, number_of, recipe_of, recipe_text, sums_lab
from load_tests_made import Load, made_load_test
from measured_lab import RUNS, measured_lab
from scripted_endpoint import scripted_endpoint

import labctl
from labctl.errors import ConfigError
from labctl.figures.trials import FIGURES

OLD, NEW = RUNS


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> labctl.Lab:
    return labctl.open_lab(measured_lab(tmp_path_factory.mktemp("lab")))


@pytest.fixture(scope="module")
def load_test(tmp_path_factory: pytest.TempPathFactory) -> labctl.Run:
    root = tmp_path_factory.mktemp("loads")
    (root / "devices.yaml").write_text("boards: {}\n")
    made_load_test(root / "runs", "loads", [Load(), Load(rate=2.0)], "finished")
    return labctl.open_lab(root).run()


def same_begin(empty: pandas.DataFrame, full: pandas.DataFrame) -> bool:
    """True if an empty table has the columns and types with which a full one begins."""
    own = full.dtypes.iloc[: len(empty.columns)]
    return empty.empty and empty.dtypes.to_dict() == own.to_dict()


def test_an_empty_table_has_its_columns(lab: labctl.Lab, load_test: labctl.Run) -> None:
    nothing = lab.runs(board="nobody").to_pandas()
    assert same_begin(nothing, lab.runs().to_pandas())
    assert nothing.dtypes.to_dict() == lab.runs().to_pandas().dtypes.to_dict()
    assert same_begin(lab.trials(board="nobody").to_pandas(), lab.trials().to_pandas())
    trial = lab.trials()[0]
    full = trial.telemetry.to_pandas()
    assert full["rss_bytes"].dtype == full["temperatures_mc.soc"].dtype == "Int64"
    (trial.folder / "telemetry").rename(trial.folder / "gone")
    assert same_begin(labctl.open_lab(lab.root).trials()[0].telemetry.to_pandas(), full)
    (trial.folder / "gone").rename(trial.folder / "telemetry")
    compared = lab.compare(OLD, figures=["tpot_ms"]).to_pandas()
    assert {"ratio": "Float64", "interval_low": "Float64", "verdict": "string"}.items() <= {
        name: str(dtype) for name, dtype in compared.dtypes.items()
    }.items()
    assert load_test.to_pandas()["concurrency"].dtype == "Int64"


def test_the_columns_are_the_declared_figures(lab: labctl.Lab) -> None:
    table = lab.run(OLD).to_pandas()
    assert table["variant"].tolist() == ["q8_0", "q2_k"]
    assert table["token_ns"].dtype == "Int64"
    assert {one.name for one in FIGURES if one.over} <= set(table.columns)
    assert {one.column for one in FIGURES} <= set(lab.trials(board="nobody").to_pandas().columns)


def test_a_load_test_is_a_table_of_its_loads(load_test: labctl.Run) -> None:
    table = load_test.to_pandas()
    assert len(table) == 2
    assert table["latency_p50_ns"].notna().all()
    assert table["completed"].tolist() == [60, 60]
    assert "<table>" in load_test._repr_html_()


def test_an_evaluation_is_a_table_of_accuracies_and_one_of_answers(tmp_path: Path) -> None:
    lab = sums_lab(tmp_path / "lab", 4)
    with scripted_endpoint(lambda asked: boxed(2 * number_of(asked), words=1)) as server:
        text = recipe_text({"good": [server.address]}, budgets=[3, "unlimited"])
        evaluate(lab, recipe_of(text))
    run = labctl.open_lab(lab.root).run()
    table = run.to_pandas()
    assert table["variant"].tolist() == ["good/plain"] * 2
    assert table["budget"].tolist() == [3, pandas.NA]
    assert table["accuracy"].tolist() == [1.0, 1.0]
    answers = run.answers_to_pandas()
    assert answers["correct"].all()
    assert len(answers) == 8
    assert "good/plain" in run._repr_html_()


def test_a_notebook_shows_the_answer_and_the_table(lab: labctl.Lab) -> None:
    run = lab.run(OLD)
    page = run._repr_html_()
    assert "q2_k" in page
    assert page.count("<table>") == 1
    assert OLD in lab.runs()._repr_html_()
    trials = lab.trials()._repr_html_()
    assert "per token" in trials
    assert "failed" in trials
    assert ">44500<" in lab.trials()[0].telemetry._repr_html_()
    assert "<0 runs>" not in lab.runs(board="nobody")._repr_html_()
    compared = lab.compare(OLD, figures=["tpot_ms"])
    assert repr(compared) == "<comparison, 1 rows>"
    assert "faster" in compared._repr_html_()


def test_text_of_strangers_is_no_html(tmp_path: Path) -> None:
    lab = labctl.open_lab(measured_lab(tmp_path))
    record = tmp_path / "runs" / OLD / "run.json"
    record.write_text(record.read_text().replace('"q8-q2"', '"<script>x</script>\\u001b[2J"'))
    for shown in (lab.run(OLD), lab.runs(), lab.trials()):
        page = shown._repr_html_()
        assert "<script" not in page
        assert "\x1b" not in page


def test_the_figures_are_those_of_the_report(lab: labctl.Lab) -> None:
    run = lab.run(OLD)
    assert run.plot().name == "estimates"
    picture = run.plot("token-times")._repr_html_()
    assert re.match(r'<div style="background:#fff\w*"><svg ', picture)
    assert "q8_0" in picture
    assert lab.runs().plot("estimates").rows
    newest = lab.runs()[0]
    compared = lab.compare(OLD, newest)
    assert [path.name for path in compared.runs] == [OLD, newest.id]
    drawn = compared.plot("estimates").rows
    assert len(drawn) == len(run.plot("estimates").rows) + len(newest.plot("estimates").rows)
    assert run.trials[2].plot().name == "timeline-abcdef-3"
    with pytest.raises(ConfigError, match="it failed, or has no telemetry"):
        lab.trials()[-1].plot()
    with pytest.raises(ConfigError, match="no figure 'tokens'") as refused:
        run.plot("tokens")
    assert "token-times" in str(refused.value.hint)
