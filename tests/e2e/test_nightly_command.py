"""``labctl nightly`` on a virtual board: real builds and real runs.

A slow head and a night that is killed: test_nightly_hosts.py.
"""

import json

import pytest
from labs import LabUnderTest, said
from night_lab import give_ticker, write_source

from labctl import process

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture
def lab(native_lab: LabUnderTest) -> LabUnderTest:
    give_ticker(native_lab.root)
    return native_lab


def test_a_good_head_becomes_the_last_good(lab: LabUnderTest) -> None:
    planned = lab.run("nightly", "plan.yaml", "--dry-run")
    assert planned.exit_status == 0, said(planned)
    assert "ticker/ticking@vb: 4 pairs to screen" in planned.text
    assert "MDE unknown" in planned.text

    good = lab.run("nightly", "plan.yaml")
    assert good.exit_status == 0, said(good)
    assert "GOOD" in good.text
    assert "is head now: baseline nightly-ticks-ticker" in said(good)
    assert "nightly-ticks-ticker" in lab.run("baseline", "list").text
    trend = (lab.root / "nights" / "ticks.html").read_text()
    assert trend.count("<circle") == 1

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
