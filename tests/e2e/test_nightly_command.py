"""``labctl nightly`` on a virtual board: real builds, real runs, killed and gone on with."""

import json
from pathlib import Path

import pytest
from labs import LabUnderTest, said
from night_lab import give_ticker, write_source

from labctl import process

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture
def lab(native_lab: LabUnderTest) -> LabUnderTest:
    give_ticker(native_lab.root)
    return native_lab


def night_of(lab: LabUnderTest) -> Path:
    return sorted(lab.root.glob("nights/*/night.json"))[-1].parent


def test_a_slow_head_is_found_after_a_kill_and_the_next_good_one_becomes_the_last_good(
    lab: LabUnderTest,
) -> None:
    planned = lab.run("nightly", "plan.yaml", "--dry-run")
    assert planned.exit_status == 0, said(planned)
    assert "ticker/ticking@vb: 4 pairs to screen" in planned.text
    assert "MDE not known yet" in planned.text

    write_source(lab.root, "head", 60)
    first = lab.start("nightly", "plan.yaml")
    journal = lab.root / "nights"
    first.waiting_for(
        lambda: any(
            path.read_text().count('"measured"') >= 3 for path in journal.glob("*/night.jsonl")
        )
    )
    first.process.kill()
    first.finish()
    before = (night_of(lab) / "night.jsonl").read_text().splitlines()

    done = lab.run("nightly", "plan.yaml", "--junit", "junit.xml", "--write", "summary=night.md")
    assert done.exit_status == 1, said(done)
    assert f"night {night_of(lab).name} goes on" in said(done)
    assert "SLOWER" in done.text
    assert "NATIVE-HOST" in done.text
    entries = (night_of(lab) / "night.jsonl").read_text().splitlines()
    assert entries[: len(before) - 1] == before[:-1]
    measured = [json.loads(line) for line in entries if '"measured"' in line]
    places = [(one["stage"], one["pair"], one["side"]) for one in measured]
    assert len(places) == len(set(places))
    assert "<failure" in (lab.root / "junit.xml").read_text()
    assert "FAILED" in (lab.root / "night.md").read_text()
    page = (night_of(lab) / "report.html").read_text()
    assert "slower" in page
    assert "<script" not in page
    baselines = lab.run("baseline", "list", "--json")
    assert "nightly-ticks" not in baselines.text

    write_source(lab.root, "head", 20)
    good = lab.run("nightly", "plan.yaml")
    assert good.exit_status == 0, said(good)
    assert "GOOD" in good.text
    assert "is head now: baseline nightly-ticks-ticker" in said(good)
    assert "nightly-ticks-ticker" in lab.run("baseline", "list").text
    trend = (lab.root / "nights" / "ticks.html").read_text()
    assert trend.count("<circle") == 2

    again = lab.run("nightly", "plan.yaml")
    assert again.exit_status == 0, said(again)
    assert "head is the last good itself" in again.text


def test_a_head_that_does_not_compile_is_blamed_and_a_board_that_is_gone_is_not(
    lab: LabUnderTest,
) -> None:
    (lab.root / "source" / "head" / "ticker.c").write_text("int main( {")
    done = lab.run("nightly", "plan.yaml", "--json")
    assert done.exit_status == 1, said(done)
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["verdict"], finding["blame"]) == ("does not build", "job")

    write_source(lab.root, "head", 21)
    process.stop(lab.board.process)
    lost = lab.run("nightly", "plan.yaml", "--json")
    assert lost.exit_status == 3, said(lost)
    (finding,) = json.loads(lost.stdout)["findings"]
    assert (finding["verdict"], finding["blame"]) == ("not measured", "infra")
