"""The cases of a load test for CI servers."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from load_tests_made import LOST, Load, made_load_test

from labctl.cli.root import run_cli
from labctl.evaluation.serving.directory import LoadTestDirectory
from labctl.evaluation.serving.results import results_of
from labctl.report.ci.cases import Suite
from labctl.report.ci.gitlab import open_metrics
from labctl.report.ci.load_cases import load_test_suite


def suite(tmp_path: Path, *loads: Load, state: Any = "finished", strict: bool = False) -> Suite:
    directory = LoadTestDirectory(made_load_test(tmp_path / "runs", "t", loads, state))
    end = directory.end()
    return load_test_suite(results_of(directory), end.gates if end else (), end, strict=strict)


@pytest.mark.parametrize(
    ("load", "strict", "outcome", "kind"),
    [
        (Load(), False, "passed", ""),
        (Load(failure=LOST), False, "error", "no result"),
        (Load(stop="server-lost", requests=3, failure=LOST), False, "error", LOST.kind),
        (Load(stop="overloaded"), False, "skipped", "overloaded"),
        (Load(stop="overloaded"), True, "failure", "overloaded"),
    ],
)
def test_only_a_measured_load_passes(
    load: Load, strict: bool, outcome: str, kind: str, tmp_path: Path
) -> None:
    first = suite(tmp_path, load, strict=strict).cases[0]
    assert (first.group, first.outcome, first.kind) == ("checked.endpoint.rate 5", outcome, kind)


def test_a_load_that_did_not_begin_is_an_error(tmp_path: Path) -> None:
    (_, missing) = suite(tmp_path, Load(None), state="interrupted").cases
    assert (missing.group, missing.outcome) == ("checked.endpoint.rate 5", "error")
    assert missing.message == "the load did not begin: the run is interrupted"


def test_figures_are_metrics_with_their_load(tmp_path: Path) -> None:
    text = open_metrics(suite(tmp_path, Load()))
    (line,) = [one for one in text.splitlines() if one.startswith("labctl_latency_p50_seconds{")]
    assert 'load="rate 5"' in line
    assert line.endswith(" 0.1")


def test_report_writes_junit_beside_the_table_and_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    run = made_load_test(tmp_path / "runs", "t", [Load(failure=LOST)], "finished").name
    junit, page = tmp_path / "junit.xml", tmp_path / "page.html"
    for more in ((), ("-o", str(page))):
        junit.unlink(missing_ok=True)
        words = ["--lab", str(tmp_path), "report", run, "--junit", str(junit), *more]
        assert run_cli(words) == 0
        root = ElementTree.parse(junit).getroot()
        assert [root.get(name) for name in ("tests", "errors", "failures")] == ["3", "2", "1"]
    assert "No measured request was answered" in page.read_text()
    assert run_cli(["--lab", str(tmp_path), "report", run, "--format", "summary"]) == 0
    assert "no request was answered, 60 failed requests" in capsys.readouterr().out
