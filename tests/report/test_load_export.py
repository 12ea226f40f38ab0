"""Requests and loads of a load test in the formats of other programs."""

import io
import json
from pathlib import Path

import pytest
from load_tests_made import LOST, Load, made_load_test
from pyarrow import parquet

from labctl.evaluation.serving.directory import LoadTestDirectory
from labctl.records.serving import LatencyLimits
from labctl.report.load_export import REQUEST_COLUMNS, load_test_exports
from labctl.report.serving import LOAD_COLUMNS


def exported(path: Path, form: str) -> dict[str, str | bytes]:
    found = load_test_exports(LoadTestDirectory(path), form)
    return {name: content for name, (content, _) in found.items()}


def test_a_request_has_its_load_its_times_and_its_failure(tmp_path: Path) -> None:
    loads = [Load(5.0, requests=3), Load(None, requests=2, failure=LOST)]
    limits = LatencyLimits(latency_ns=200_000_000)
    path = made_load_test(tmp_path / "runs", "t", loads, "finished", limits)
    text = exported(path, "jsonl")["requests"]
    assert isinstance(text, str)
    rows = [json.loads(line) for line in text.splitlines()]
    assert [(row["load"], row["number"], row["good"]) for row in rows] == [
        *(("rate 5", number, True) for number in (1, 2, 3)),
        *(("concurrency 1", number, False) for number in (1, 2)),
    ]
    assert [row["latency_ns"] for row in rows] == [100_000_000] * 3 + [None] * 2
    assert (rows[0]["failure"], rows[4]["message"]) == (None, "the server is gone")
    for row in rows:
        assert list(row) == list(REQUEST_COLUMNS)


@pytest.mark.parametrize("loads", [[], [Load(5.0, requests=3), Load(None, requests=2)]])
def test_columns_of_parquet_do_not_depend_on_the_rows(loads: list[Load], tmp_path: Path) -> None:
    path = made_load_test(tmp_path / "runs", "t", loads, "finished")
    found = exported(path, "parquet")
    columns = {"requests": REQUEST_COLUMNS, "loads": LOAD_COLUMNS}
    for name, content in found.items():
        assert isinstance(content, bytes)
        table = parquet.read_table(io.BytesIO(content))
        assert table.column_names == list(columns[name])
        assert "null" not in {str(kind) for kind in table.schema.types}
    requests = found["requests"]
    assert isinstance(requests, bytes)
    schema = parquet.read_table(io.BytesIO(requests)).schema
    assert schema.field("ttft_ns").metadata == {b"unit": b"ns"}
