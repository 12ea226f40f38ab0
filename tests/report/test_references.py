"""Published figures: quoted beside a run's own, marked as such, and in no statistic."""

import json
from pathlib import Path

import pytest
from records_made import plan, planned_run, run, trial

from labctl import package_data
from labctl.cli.root import run_cli
from labctl.config.references import known_references
from labctl.errors import ConfigError
from labctl.records.board import Execution, PhoneFacts, PhoneState
from labctl.report.references import reference_rows
from labctl.runs.inputs.prepare import read_recipe

OWN = """\
references:
  other-board:
    device: RK3588
    model: Llama
    value: 250
    unit: ms/token
    source: "somebody <b>&</b> | 2025"
"""
Q8 = "rk3568-llama31-8b-q8-0"


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    (tmp_path / "references.yaml").write_text(OWN)
    return tmp_path


def made(lab: Path, *names: str) -> Path:
    asked = {"name": "q2", "references": list(names)}
    directory = planned_run(lab / "runs", run(recipe_resolved=asked), plan())
    directory.add(trial(1))
    return directory.path


def test_the_shipped_figures_are_those_that_were_published() -> None:
    known = known_references(None)
    assert [(one.value, one.unit) for one in known.values()] == [
        (49.73, "s/token"), (18.18, "s/token"),
        (51.6, "% accuracy"), (70.9, "% accuracy"), (85.6, "% accuracy"),
        (6.7, "tokens/s"), (3.2, "tokens/s"),
    ]  # fmt: skip
    assert all(one.source for one in known.values())
    assert known["8gen2-llama-awq-perfxllm"].token_ns == round(1e9 / 6.7)


def test_a_wrong_file_is_refused_with_its_line(lab: Path) -> None:
    (lab / "references.yaml").write_text(OWN.replace("ms/token", "tokens"))
    with pytest.raises(ConfigError, match=r"references\.yaml:6:\d+: .*unit: must be s/token"):
        known_references(lab)


def test_a_recipe_that_names_an_unknown_figure_is_refused(lab: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    text = (package_data.RECIPES / "q8_latency.yaml").read_text()
    recipe.write_text(f"{text}references: [other-bord]\n")
    with pytest.raises(ConfigError, match="did you mean 'other-board'"):
        read_recipe(recipe, lab_root=lab)
    recipe.write_text(f"{text}references: [other-board, {Q8}]\n")
    assert read_recipe(recipe, lab_root=lab).references == ("other-board", Q8)


@pytest.mark.parametrize("form", ["table", "wide", "md"])
def test_reports_show_what_the_recipe_names_as_quoted(
    form: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--wide"] if form == "wide" else ["--format", form]
    assert run_cli(["report", str(made(lab, Q8, "other-board")), *options]) == 0
    text = capsys.readouterr().out
    assert text.count("QUOTED from publications, not measured by labctl") == 1
    for part in ("HH-SCDAYU200 (RK3568)", "49.73 s/token", "250 ms/token", "ph2"):
        assert part in text
    assert "| 2025" not in text.replace("\\|", "") or form != "md"  # the source makes no cell
    assert "6.7" not in text


def test_figures_of_phones_stand_beside_a_virtual_phone(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    phones = ("8gen2-llama-awq-perfxllm", "8gen2-llama-llama-cpp")
    phone = PhoneFacts(manufacturer="labctl", model="virtual", soc="SM8550", sdk=34)
    known = {"execution": Execution.EMULATED, "phone": phone}
    asked = {"name": "q2", "references": list(phones)}
    made_up = run(recipe_resolved=asked)
    made_up = made_up.model_copy(update={"facts": made_up.facts.model_copy(update=known)})
    directory = planned_run(lab / "runs", made_up, plan())
    battery = PhoneState(level_percent=82, status="charging", power_source="usb")
    directory.add(trial(1, execution=Execution.EMULATED, phone_state=battery))
    assert run_cli(["report", str(directory.path), "--wide"]) == 0
    text = capsys.readouterr().out
    for part in ("EMULATED", "QUOTED", "6.7 tokens/s", "3.2 tokens/s", "Snapdragon 8 Gen 2"):
        assert part in text
    page = lab / "page.html"
    assert run_cli(["report", str(directory.path), "-o", str(page)]) == 0
    for part in ("labctl virtual, SM8550, API level 34", "82%, charging, power: usb", "EMULATED"):
        assert part in page.read_text()


def test_quoted_figures_change_no_number(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made(lab)
    run_cli(["report", str(path), "--json"])
    without = json.loads(capsys.readouterr().out)
    run_cli(["report", str(path), "--json", "--references", "all"])
    shown = json.loads(capsys.readouterr().out)
    quoted = shown.pop("references")
    assert [row["quoted"] for row in quoted] == [True] * 8
    assert quoted[-1]["name"] == "other-board"
    assert quoted[-1]["tokens_per_second"] == 4
    assert shown == without
    run_cli(["report", str(path), "--format", "csv", "--references", "all"])
    assert "49.73" not in capsys.readouterr().out


def test_an_unknown_name_is_refused_and_a_foreign_run_still_reports(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made(lab, Q8, "other-board")
    assert run_cli(["report", str(path), "--references", "other"]) == 2
    assert "no reference 'other'" in capsys.readouterr().err
    (lab / "references.yaml").unlink()
    foreign = run(recipe_resolved={"references": [Q8, "x"]})
    assert [row.name for row in reference_rows(foreign, lab)] == [Q8]


def test_a_lab_may_replace_a_figure(lab: Path) -> None:
    (lab / "references.yaml").write_text(OWN.replace("other-board", Q8))
    assert known_references(lab)[Q8].device == "RK3588"


def test_an_accuracy_is_quoted_without_a_time(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made(lab, "gsm8k-llama31-8b-q2-k")
    assert run_cli(["report", str(path), "--wide"]) == 0
    text = capsys.readouterr().out
    assert "51.6% accuracy" in text
    assert "GSM8K, zero-shot, step by step, no limit of tokens" in text
    run_cli(["report", str(path), "--json"])
    (row,) = json.loads(capsys.readouterr().out)["references"]
    assert (row["value"], row["token_ns"], row["tokens_per_second"]) == (51.6, None, None)
    page = lab / "page.html"
    assert run_cli(["report", str(path), "-o", str(page)]) == 0
    assert 'data-value="51.6"' in page.read_text()


def test_an_accuracy_needs_its_data_set(lab: Path) -> None:
    (lab / "references.yaml").write_text(OWN.replace("ms/token", '"% accuracy"'))
    with pytest.raises(ConfigError, match="dataset: an accuracy needs its dataset"):
        known_references(lab)
