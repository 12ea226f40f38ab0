"""Health checks of a board as a user types them."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from cli_calls import LabctlIn
from labs import LabUnderTest, blamed, said

from labctl.board.probe_files import probe_path
from labctl.records.probe import BoardProbe
from labctl.virtual.control import Control
from labctl.virtual.fault_script import HangUp

#: The board's key in devices.yaml.
NAME = "vb"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]


def give_history(lab: LabUnderTest, factor: float, count: int = 8) -> None:
    """Let the last probe's board have had so many before, with rates that are so much higher."""
    newest = max(lab.root.glob("boards/*/probe-*.json"))
    now = json.loads(newest.read_text())
    for number in range(1, count + 1):
        document = json.loads(newest.read_text())
        for part in ("memory", "storage"):
            for rate in document[part]:
                rate["bytes_per_second"] = round(
                    rate["bytes_per_second"] * factor * (1 + 0.001 * (number % 3))
                )
        document["memory_others_share"] = document["storage_others_share"] = None
        probe = BoardProbe.model_validate(document)
        earlier = probe.model_copy(update={"taken": probe.taken - timedelta(hours=number)})
        path: Path = probe_path(lab.root, earlier)
        path.write_text(earlier.model_dump_json())
    assert now["board"] == newest.parent.name


def checked(lab: LabUnderTest, *words: str) -> tuple[int, dict[str, object]]:
    done = lab.run("boards", "check", "--json", *words)
    (result,) = json.loads(done.stdout)
    return done.exit_status, result


@pytest.mark.soak  # three probes; the verdicts are tried in tests/farm
def test_a_board_is_checked_against_its_own_history(native_lab: LabUnderTest) -> None:
    due = native_lab.run("boards", "check", "--due")
    assert due.exit_status == 0, said(due)
    assert f"{NAME}: no health check yet" in said(due)
    events = json.loads(native_lab.run("boards", "history", NAME, "--json").stdout)
    events = [event for event in events if event["kind"] != "state"]
    assert [event["kind"] for event in events][:2] == ["firmware", "check"]
    again = native_lab.run("boards", "check", "--due")
    if events[1]["value"] == "short history":
        assert "no check is due" in said(again)
        assert "0 of 8 earlier checks" in due.text

    # As if the board had been three times as fast: sick, and out of work.
    give_history(native_lab, 3.0)
    status, found = checked(native_lab)
    if found["finding"] == "disturbed":  # a busy host: no verdict, and the board keeps its health
        assert status == 0
        return
    assert (status, found["finding"]) == (3, "slow"), found
    assert "memory read 6" in str(found["reason"])
    listed = native_lab.run("boards", "history")
    assert "health    bad" in listed.text
    native_lab.run("boards", "good", NAME, "--reason", "new fan")
    listed = native_lab.run("boards", "history")
    assert listed.text.splitlines()[-1].split("  ")[2].startswith("good: new fan")


def test_a_board_that_is_gone_is_bad_with_the_evidence(
    native_lab: LabUnderTest, measuring_briefly: LabctlIn
) -> None:
    devices = native_lab.root / "devices.yaml"
    text = devices.read_text()
    devices.write_text(text.replace("    workdir:", "    switches: {wait: 100ms}\n    workdir:"))
    control = Control(native_lab.board.directory)
    control.add(HangUp(times=None))
    status, found = checked(native_lab, NAME)
    assert (status, found["finding"]) == (3, "failing"), found
    assert "nothing helped (tried: reconnect)" in str(found["reason"])
    assert found["recovery"] == [
        {**step, "helped": False}
        for step in found["recovery"]  # type: ignore[attr-defined]
    ]
    control.clear()
    measuring_briefly(native_lab.root, "boards", "check", "--json", NAME)


def test_people_decide_and_it_is_kept(native_lab: LabUnderTest) -> None:
    assert native_lab.run("boards", "maintenance", NAME).exit_status == 2
    empty = native_lab.run("boards", "maintenance", NAME, "--reason", " ")
    assert empty.exit_status == 2
    done = native_lab.run("boards", "maintenance", NAME, "--reason", "new fan")
    assert done.text == f"{NAME} is maintenance: new fan\n"
    assert "no check is due" in said(native_lab.run("boards", "check", "--due"))
    refused = native_lab.run("run", native_lab.recipe())
    blamed(refused, 3, "infra", "the health of board vb is maintenance: new fan", "labctl hold vb")
    unknown = native_lab.run("boards", "retire", "nobody", "--reason", "x")
    assert unknown.exit_status == 2
    history = native_lab.run("boards", "history", NAME)
    assert "health    maintenance: new fan" in history.text
