"""Exported trials: every value comes back, and no spreadsheet computes one."""

import csv
import io
import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from records_made import BEGAN, model, plan, planned_run, run, trial

from labctl.errors import ConfigError
from labctl.index.entry import entry_of
from labctl.index.index import IndexedTrial
from labctl.records.run import Annotations
from labctl.report.trial_export import trials_csv, trials_jsonl
from labctl.report.trial_parquet import trials_parquet
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


def test_parquet_has_typed_columns_and_nested_parameters(exported: list[IndexedTrial]) -> None:
    table = parquet.read_table(io.BytesIO(trials_parquet(exported)))
    schema = table.schema
    assert schema.field("ttft_ns").type == pyarrow.int64()
    assert schema.field("ttft_ns").metadata == {b"unit": b"ns"}
    assert schema.field("tokens_per_second").type == pyarrow.float64()
    assert schema.field("started").type == pyarrow.timestamp("us", tz="UTC")
    assert schema.field("tags").type == pyarrow.list_(pyarrow.string())
    assert schema.field("parameters").type.field("threads").type == pyarrow.int64()
    assert "conditions" not in schema.names  # nothing was asked for
    first, second = table.to_pylist()
    assert first["parameters"] == {
        "threads": 4, "offset": -3, "prefix": "-n", "list": '["a", "b"]', "batch": None,
    }  # fmt: skip
    assert (second["parameters"]["batch"], second["ttft_ns"]) == (512, None)
    assert first["model_file"] == "=cmd|'/c calc'!A0.gguf"
    assert first["started"] == BEGAN + timedelta(minutes=1)
    assert first["tags"] == ["nightly", "v1"]


def test_parameters_of_several_kinds_are_texts_in_parquet(exported: list[IndexedTrial]) -> None:
    values: list[object] = [4, 4.5, True, None, "x", 1 << 70]
    trials = [
        replace(one, trial=replace(one.trial, parameters={"mixed": v, "large": 1 << 70, "n": n}))
        for n, (one, v) in enumerate(zip(exported * 3, values, strict=True))
    ]
    table = parquet.read_table(io.BytesIO(trials_parquet(trials)))
    found = [row["parameters"] for row in table.to_pylist()]
    assert [one["mixed"] for one in found] == ["4", "4.5", "true", None, "x", str(1 << 70)]
    assert found[0]["large"] == str(1 << 70)
    assert [one["n"] for one in found] == list(range(6))
    assert [one.trial.parameters["mixed"] for one in trials] == values  # not changed


def test_no_trials_are_columns_without_rows_in_parquet() -> None:
    table = parquet.read_table(io.BytesIO(trials_parquet([])))
    assert (table.num_rows, table.schema.field("run").type) == (0, pyarrow.string())


def test_without_pyarrow_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match="pyarrow is not installed") as caught:
        trials_parquet([])
    assert "labctl-boards[parquet]" in str(caught.value.hint)


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
