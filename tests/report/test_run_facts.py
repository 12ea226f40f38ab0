"""Facts of ``labctl show``: each names the file that it comes from."""

from pathlib import Path

import pytest
from records_made import BEGAN, energy, plan, planned_run, run, trial

from labctl.errors import ConfigError
from labctl.records.run import RunEnd
from labctl.report.facts import run_facts, trial_facts
from labctl.runs.record.annotations import add_tags
from labctl.runs.record.directory import RunDirectory


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    made = planned_run(tmp_path, run(), plan())
    made.add(trial(1, energy=energy(), argv=("llama", "-p", "two words")))
    (made.trial_path(1, "q2_k-r1") / "timeline").write_bytes(b"")
    return made


def test_a_figure_of_a_trial_names_its_raw_file_or_that_it_is_missing(
    directory: RunDirectory,
) -> None:
    facts = {fact.name: fact for fact in trial_facts(directory, 1)}
    record = "trials/001-q2_k-r1/record.json"
    assert facts["timing.ttft_ns"].origin == f"{record} (from timeline)"
    assert facts["timing.ttft_ns"].text == "2.00 s"
    assert facts["timing.prompt_eval_ns"].origin == f"{record} (stdout, stderr: missing here)"
    assert facts["energy.joules"].origin == f"{record} (power.jsonl: missing here)"
    assert facts["model.sha256"].origin == f"{record} (the model file)"
    assert facts["checks.span.detail"].origin == f"{record} (computed from the raw files)"
    assert facts["argv"].value == "llama -p 'two words'"
    assert facts["state"].origin == record
    assert "timing.p99_ns" not in facts, "what was not measured is left out"


def test_facts_of_a_run_come_from_its_files(directory: RunDirectory) -> None:
    facts = {fact.name: fact for fact in run_facts(directory)}
    assert (facts["state"].value, facts["state"].origin) == ("not ended", "no end.json")
    directory.finish(RunEnd(state="finished", finished=BEGAN))
    add_tags(directory, ["nightly"])
    facts = {fact.name: fact for fact in run_facts(directory)}
    assert (facts["state"].value, facts["state"].origin) == ("finished", "end.json")
    assert (facts["tags"].value, facts["tags"].origin) == (["nightly"], "annotations.json")
    assert facts["models.q2_k.quantization"].origin == "run.json (the model files)"
    assert facts["facts.kernel"].origin == "run.json (read on the board)"
    assert facts["verdict"].value == "passed"
    assert facts["token_low_ns"].text == "110 ms"
    files = [path for path in directory.path.rglob("*") if path.is_file()]
    assert facts["size_bytes"].value == sum(path.stat().st_size for path in files)


def test_a_trial_that_is_not_there_is_wrong_use(directory: RunDirectory) -> None:
    with pytest.raises(ConfigError, match="has no finished trial 9") as caught:
        trial_facts(directory, 9)
    assert caught.value.hint == "it has 1 to 1"
