"""What is not to be believed of a measurement: sensors, and hosts that do something else."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from labs import TALKING, LabUnderTest, blamed, said

from labctl import process
from labctl.virtual import fault_script as f
from labctl.virtual.control import Control

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SHORT = ("--set", "tokens=12")
COOL = "conditions: {max_start_temperature: 60, max_wait: 5s}\n"
NAMED = "thermal_zone0 soc-thermal: 78, perhaps whole degrees"


def document(done: process.Completed) -> dict[str, Any]:
    assert done.exit_status == 0, said(done)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def busy_host() -> Iterator[None]:
    """Keep all CPUs busy."""
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            words = [sys.executable, "-c", "while True: pass"]
            spinning = process.start(words, stdout=subprocess.DEVNULL, stderr=None)
            stack.callback(process.stop, spinning)
        yield


def test_a_zone_in_whole_degrees_is_named_and_never_passes_as_cold(talking: LabUnderTest) -> None:
    Control(talking.board.directory).add(f.ThermalZone(on="now", reads="78"))
    recipe = talking.recipe(TALKING + COOL, "cool")
    done = talking.run("run", recipe, *SHORT, "--json")
    (trial,) = document(done)["trials"]
    (condition,) = trial["conditions"]
    assert condition["ok"] is None
    assert NAMED in condition["had"]
    assert f"temperature <= 60 °C cannot be checked: {condition['had']}" in said(done)
    assert trial["evidence"]["untrusted_zones"] == dict([NAMED.split(": ")])
    assert trial["evidence"]["start_temperature_mc"] is None
    shown = " ".join(talking.run("report").text.split())
    assert f"temperature ({NAMED})" in shown.partition("not judged: ")[2]
    refused = talking.run("run", recipe, *SHORT, "--set", "conditions.strict=true")
    blamed(refused, 2, "config", "temperature <= 60 °C cannot be checked: ", NAMED)
    assert f"conditions.temperature.had: {condition['had']}" in talking.run("show", "latest/1").text


def test_a_busy_host_and_what_is_not_judged_there_are_told(talking: LabUnderTest) -> None:
    recipe = talking.recipe(TALKING)
    with busy_host():
        done = talking.run("run", recipe, *SHORT, "--json")
        document(talking.run("run", recipe, *SHORT, "--json"))
    (row,) = document(done)["rows"]
    assert "quiet" in row["checks_failed"]
    assert "memory" in row["checks_open"]
    (trial,) = document(done)["trials"]
    checks = {check["name"]: check for check in trial["checks"]}
    assert checks["memory"]["detail"] == "not judged: native-host, the memory is that of its host"
    shown = " ".join(talking.run("report").text.split())
    assert "quiet failed in 1 of 1 trials; trial 1: everything else used " in shown
    assert "memory (native-host, the memory is that of its host)" in shown
    first, second = sorted(path.name for path in talking.root.glob("runs/2*"))
    compared = " ".join(talking.run("compare", first, second).text.split())
    assert "checks failed in 1 of 1 repeats of" in compared
    assert "checks not judged in 1 of 1 repeats of" in compared
