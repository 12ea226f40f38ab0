"""``labctl nightly``: files and pages of a night that could not begin, and the plan's total."""

import json
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path

import agent_builds
import pytest
from labs import write_devices
from night_lab import PLAN, give_ticker

from labctl.cli.root import run_cli
from labctl.farm.webhooks import LabEvent
from labctl.locks import locked
from labctl.records.night import NightResult


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    give_ticker(tmp_path)
    write_devices(tmp_path, "127.0.0.1:1", "/w", target=agent_builds.HOST)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def nightly(plan: str, *words: str) -> int:
    files = ["--junit", "j.xml", "--write", "summary=s.md", "--write", "github=g.txt"]
    files += ["--write", "gitlab-code-quality=q.json"]
    for name in ("j.xml", "s.md", "g.txt", "q.json"):
        Path(name).write_text("yesterday's")
    return run_cli(["nightly", plan, *files, *words])


def the_case() -> tuple[str, str]:
    ((case,),) = ET.parse("j.xml").getroot()
    return case[0].tag, case[0].get("message", "")


@pytest.mark.parametrize("words", [(), ("--detach",)])
@pytest.mark.parametrize(
    ("text", "because"),
    [
        (PLAN.replace("[vb]", "[vc]"), "no board 'vc'"),
        (PLAN.replace("time: 1h", "tim: 1h"), "unknown key"),
        (None, "plan.yaml: no such file"),
    ],
)
def test_a_night_that_cannot_begin_writes_its_files(
    lab: Path, text: str | None, because: str, words: tuple[str, ...]
) -> None:
    if text is None:
        (lab / "plan.yaml").unlink()
    else:
        (lab / "plan.yaml").write_text(text)
    assert nightly("plan.yaml", *words) == 2
    tag, message = the_case()
    assert tag == "error"
    assert because in message
    assert "(blame: config)" in message
    for name in ("s.md", "g.txt", "q.json"):
        assert because in (lab / name).read_text().replace("\\", ""), name
    assert not [*lab.glob("nights/2*")]


def test_the_plans_page_says_that_the_night_could_not_begin(lab: Path) -> None:
    (lab / "plan.yaml").write_text(PLAN.replace("[vb]", "[vc]"))
    assert nightly("plan.yaml") == 2
    page = (lab / "nights" / "ticks.html").read_text()
    assert "NO NIGHT: " in page
    assert "no board &#39;vc&#39;" in page


def test_infrastructure_keeps_its_exit_status_and_a_second_night_no_page(lab: Path) -> None:
    with locked(lab / "nights" / ".ticks.lock", timeout=0, holder="test"):
        assert nightly("plan.yaml") == 3
    tag, message = the_case()
    assert tag == "error"
    assert "another night of this plan" in message
    assert not (lab / "nights" / "ticks.html").exists()


def test_a_plan_has_a_total(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["nightly", "plan.yaml", "--dry-run", "--junit", "j.xml"]) == 0
    assert "in all: time unknown; it ends at the latest 20" in capsys.readouterr().out
    assert not Path("j.xml").exists()
    assert run_cli(["nightly", "plan.yaml", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["total"]["board_seconds"], document["total"]["unknown"]) == (0.0, 1)
    assert document["total"]["deadline"] == document["deadline"]


def test_a_night_that_is_broken_off_leaves_no_file_of_the_night_before(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_off(_: object) -> object:
        assert the_case() == (
            "error",
            "the night has not come to its end: it still runs, or it was interrupted",
        )
        raise KeyboardInterrupt

    monkeypatch.setattr("labctl.farm.nightly.run.run_night", broken_off)
    assert nightly("plan.yaml") == 130
    assert the_case()[0] == "error"


def test_a_webhook_is_told_the_name_of_the_plan(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = "webhooks: {desk: {form: standard, host: example.org, address: 'env:HOOK'}}\n"
    devices = lab / "devices.yaml"
    devices.write_text(devices.read_text() + hook)
    (lab / "tonight.yaml").write_text(PLAN)
    now = datetime.now(UTC)
    found = NightResult(id="n", plan="ticks", started=now, finished=now, exit_status=0, findings=())
    told: list[LabEvent] = []
    monkeypatch.setattr("labctl.farm.nightly.run.run_night", lambda _: (found, lab))
    monkeypatch.setattr("labctl.farm.webhooks.notify", lambda _lab, event, **_: told.append(event))
    assert nightly("tonight.yaml") == 0
    (event,) = told
    assert event.title == "night ticks: good"
