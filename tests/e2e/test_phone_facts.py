"""A virtual board that answers as a phone: its facts and battery reach the records."""

import json
from pathlib import Path

import pytest
from labs import TALKING, LabUnderTest, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PROPERTIES = "[ro.product.model]: [Phone]\n[ro.soc.model]: [SM8550]\n"
BATTERY = "  AC powered: false\n  USB powered: true\n  status: 2\n  level: 82\n  scale: 100\n"


def program(path: Path, prints: str) -> None:
    path.write_text(f"#!/bin/sh\ncat <<'end'\n{prints}end\n")
    path.chmod(0o755)


def test_battery_and_source_of_power_are_recorded(talking: LabUnderTest) -> None:
    programs = talking.board.directory / "system/bin"
    program(programs / "getprop", PROPERTIES)
    program(programs / "dumpsys", BATTERY)
    done = talking.run("run", talking.recipe(TALKING), "--set", "tokens=12", "--json")
    assert done.exit_status == 0, said(done)
    (trial,) = json.loads(done.stdout)["trials"]
    state = trial["phone_state"]
    assert (state["level_percent"], state["status"]) == (82, "charging")
    assert trial["comparability"]["power_source"] == "usb"
    assert trial["conditions"] == []
    probed = talking.run("boards", "probe").text
    assert "phone: Phone, SM8550" in probed
    assert "battery: 82%, charging, power: usb" in probed
