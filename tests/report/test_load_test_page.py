"""The page of a load test whose records, all of them, have text of strangers."""

import html as html_entities
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from load_tests_made import Load, made_load_test
from simulated_servers import stage_of

from labctl.errors import Blame
from labctl.evaluation.serving.directory import LoadTestDirectory
from labctl.evaluation.serving.results import make_results
from labctl.records.board import Execution
from labctl.records.evaluation import DatasetRecord
from labctl.records.run import GateRecord, RunEnd
from labctl.records.serving import ServerCounters
from labctl.records.trial import Failure, ModelIdentity
from labctl.report.page.html import html
from labctl.report.page.language import Language
from labctl.report.page.load_test import MeasuredLoadTest, load_test_report
from labctl.report.page.markdown import markdown

HOSTILE = (
    "</script><script>alert(1)</script><!-- \"'&amp;<img src=x onerror=alert(1)> {0} {recipe}"
    " \x1b]0;owned\x07\x00\r\n\u202eevil\u2066\u2028\ud800|`"
)


def hostile(tmp_path: Path, text: str, state: Any) -> MeasuredLoadTest:
    """A load test with this text in every field that a server or a stranger may write."""
    directory = LoadTestDirectory(made_load_test(tmp_path / "runs", "t", [Load()], None))
    failure = Failure(kind=text, blame=Blame.INFRA, message=text, hint=text, details=text)
    counters = ServerCounters(gap="slow", samples=1, requests_sent=60, running_max=1)
    (stage,) = directory.stages
    rows = [row.model_copy(update={"finish": text}) for row in directory.requests]
    rows[0] = rows[0].model_copy(update={"failure": failure})
    stages = [
        stage.model_copy(update={"server": counters, "name": text, "failure": failure}),
        stage_of(None, number=2).model_copy(update={"name": text}),
    ]
    record = directory.serving()
    texts = ("name", "api", "address", "server", "model", "served_name", "board", "template_sha256")
    endpoint = record.endpoint.model_copy(
        update={
            **dict.fromkeys(texts, text),
            "execution": Execution.EMULATED,
            "parameters": {text: text},
        }
    )
    dataset = DatasetRecord(
        name=text, source=text, sha256=text, split=text, size=1, questions=(text,)
    )
    record = record.model_copy(
        update={
            "recipe": text,
            "recipe_resolved": {**record.recipe_resolved, "name": text, text: [text]},
            "settings": (text,),
            "endpoint": endpoint,
            "model": ModelIdentity.model_construct(name=text, file=text, sha256=text),
            "workload": record.workload.model_copy(
                update={"dataset": dataset, "extra_body": {text: {text: [text]}}}
            ),
            "host": text,
            "labctl_version": text,
            "lab_revision": text,
        }
    )
    gate = GateRecord(variant=text, metric=text, limit=text, value=1, passed=False, detail=text)
    end = RunEnd(state=state, failure=failure, gates=(gate,), finished=datetime.now(UTC))
    return MeasuredLoadTest(directory.path, make_results(record, stages, rows), end)


def outside_of_scripts(page: str) -> str:
    return re.sub(r"(?s)(<script>).*?</script>", r"\1", page)


@pytest.mark.parametrize("words", [Language("en"), Language("zh")], ids=["en", "zh"])
@pytest.mark.parametrize("state", ["finished", "failed"])
def test_a_hostile_text_is_no_markup_script_or_direction(
    tmp_path: Path, words: Language, state: str
) -> None:
    page = html(load_test_report(hostile(tmp_path, HOSTILE, state), words), words)
    page.encode()
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "onerror=alert(1)&gt;" in page
    outside = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.S)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2028\u2029\u2066-\u2069]", outside)
    allowed = re.findall(r"script-src ([^;]*);", html_entities.unescape(page))[0].split()
    assert len(re.findall(r"<script>", outside_of_scripts(page))) <= len(allowed)
    for data in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S):
        json.loads(data)
    for attributes in re.findall(r"<\w+((?:\s[^<>]*)?)>", outside):
        assert not re.search(r"""\son\w+\s*=""", re.sub(r'"[^"]*"', "", attributes))
    assert "alert(1)" in html_entities.unescape(page)


@pytest.mark.parametrize("words", [Language("en"), Language("zh")], ids=["en", "zh"])
@pytest.mark.parametrize("character", ["x", "\x1b", "&", "字"])
def test_texts_of_a_megabyte_do_not_make_a_big_page(
    tmp_path: Path, words: Language, character: str
) -> None:
    report = load_test_report(hostile(tmp_path, character * 1_000_000, "failed"), words)
    assert len(html(report, words)) < 2_000_000
    assert len(markdown(report, words)) < 2_000_000
