"""Exported trials: every value comes back, and no spreadsheet computes one."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records_made import model, plan, planned_run, run, trial

from labctl.index import IndexedTrial
from labctl.index.entry import entry_of
from labctl.records import Annotations
from labctl.report.trial_export import trials_csv, trials_jsonl
from labctl.runs.record.annotations import add_tags
from labctl.runs.record.repository import RunRepository


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> list[IndexedTrial]:
    runs: Path = tmp_path_factory.mktemp("runs")
    directory = planned_run(runs, run(), plan())
    directory.add(
        trial(
            1,
            model=model(file="=cmd|'/c calc'!A0.gguf", name="@SUM(1)"),
            parameters={"threads": 4, "offset": -3, "prefix": "-n", "list": ["a", "b"]},
            comparability={"+key": "\tx"},
        )
    )
    directory.add(trial(2, parameters={"batch": 512}, timing=None))
    add_tags(directory, ["nightly", "v1"])
    return RunRepository(runs).trials()


def test_csv_has_a_line_a_trial_and_a_column_for_each_parameter(
    exported: list[IndexedTrial],
) -> None:
    first, second = csv.DictReader(io.StringIO(trials_csv(exported)))
    assert (first["run"], first["number"], first["tags"]) == (run().id, "1", "nightly v1")
    assert (first["ttft_ns"], second["ttft_ns"]) == ("2000000000", "")
    assert (first["parameters.threads"], second["parameters.threads"]) == ("4", "")
    assert (first["parameters.batch"], second["parameters.batch"]) == ("", "512")
    assert first["parameters.list"] == "a b"
    assert (first["recipe"], first["quantization"], first["board"]) == ("q2", "Q2_K", "rk1")


def test_no_text_in_csv_is_a_formula_and_numbers_stay_numbers(exported: list[IndexedTrial]) -> None:
    (first, _) = csv.DictReader(io.StringIO(trials_csv(exported)))
    assert first["model_file"] == "'=cmd|'/c calc'!A0.gguf"
    assert first["model_name"] == "'@SUM(1)"
    assert first["parameters.prefix"] == "'-n"
    assert first["parameters.offset"] == "-3"
    assert first["comparability.+key"] == "'\tx"


def test_json_lines_have_every_value_as_it_is(exported: list[IndexedTrial]) -> None:
    first, second = map(json.loads, trials_jsonl(exported).splitlines())
    assert first["model_file"] == "=cmd|'/c calc'!A0.gguf"
    assert first["parameters"] == {"threads": 4, "offset": -3, "prefix": "-n", "list": ["a", "b"]}
    assert (first["tags"], second["p50_ns"]) == (["nightly", "v1"], None)


def test_no_trials_are_a_heading_alone() -> None:
    assert trials_csv([]).startswith("run,number,")
    assert trials_csv([]).count("\n") == 1
    assert trials_jsonl([]) == ""


@settings(max_examples=50)
@given(st.text(), st.text(min_size=1))
def test_any_text_comes_back_from_csv(exported_text: str, key: str) -> None:
    record = run()
    entry = entry_of(record.id, record, [trial(1)], None, annotations=Annotations(), stamp="")
    row = replace(entry.trials[0], slug=exported_text, parameters={key: exported_text})
    text = trials_csv([IndexedTrial(row, entry.run, ())])
    (line,) = csv.DictReader(io.StringIO(text, newline=""))
    for found in (line["slug"], line[f"parameters.{key}"]):
        assert found in (exported_text, f"'{exported_text}")
        assert not found.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
