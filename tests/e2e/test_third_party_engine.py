"""Somebody else's engine, installed from a wheel, runs a recipe; nothing of labctl is edited."""

import json
import os
from pathlib import Path

import pytest
from agent_builds import HOST
from labs import LabUnderTest, blamed, said
from third_party import install_abacus

pytestmark = pytest.mark.e2e

RECIPE = f"""\
name: beads
target: {HOST}
engine:
  name: abacus
  program: {{file: tools/abacus}}
  frame: {{rods: 13}}
models:
  wood: {{file: models/wood.bin}}
parameters: {{n_beads: 5, n_at_once: 3}}
matrix: {{n_workers: [1, 2]}}
max_time: 5m
"""
ABACUS = """\
#!/bin/sh
echo "$2 beads by $3 workers on $1 rods, $4 at once"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_abacus(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def lab(native_lab: LabUnderTest, site: Path, monkeypatch: pytest.MonkeyPatch) -> LabUnderTest:
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(site), before))))
    (native_lab.root / "tools").mkdir()
    (native_lab.root / "tools" / "abacus").write_text(ABACUS)
    (native_lab.root / "models" / "wood.bin").write_bytes(b"wood")
    return native_lab


def test_a_recipe_runs_with_the_engines_own_keys_threads_and_checks(lab: LabUnderTest) -> None:
    recipe = lab.recipe(RECIPE, "beads")
    planned = lab.run("plan", recipe, "--json")
    assert planned.exit_status == 0, said(planned)
    done = lab.run("run", recipe, "--json")
    assert done.exit_status == 0, said(done)
    trials = json.loads(done.stdout)["trials"]
    assert [trial["workload"] for trial in trials] == [
        {"threads": workers, "tokens": 5, "batch": 3, "prompt_tokens": None} for workers in (1, 2)
    ]
    assert [trial["parameters"]["n_workers"] for trial in trials] == [1, 2]
    checks = {check["name"]: (check["ok"], check["detail"]) for check in trials[1]["checks"]}
    assert checks["workers"] == (True, "2 of 2 workers")
    (run,) = lab.root.glob("runs/*/run.json")
    engine = json.loads(run.read_text())["recipe_resolved"]["engine"]
    assert engine["frame"] == {"rods": 13}
    planned_trials = json.loads((run.parent / "plan.json").read_text())["trials"]
    assert {trial["tokens"] for trial in planned_trials} == {5}
    assert "workers" in lab.run("report").text


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (("rods: 13", "rods: 0"), "beads.yaml:6:17: engine.frame.rods: must be at least 1, not 0"),
        (("rods: 13", "rod: 1"), "6:11: engine.frame.rod: unknown key (did you mean 'rods'?)"),
        (("  frame:", "  frames:"), "6:3: engine.frames: unknown key (did you mean 'frame'?)"),
        (("name: abacus", "name: abacuss"), "4:9: engine.name: no engine 'abacuss' (did you mean"),
        (("n_beads: 5,", "n_beads: 0,"), "9:23: parameters.n_beads: must be at least 1, not 0"),
        (("[1, 2]", "[1, 0]"), "beads.yaml:10:25: matrix.n_workers[1]: must be at least 1, not 0"),
    ],
)
def test_mistakes_are_told_with_their_place(
    lab: LabUnderTest, change: tuple[str, str], because: str
) -> None:
    blamed(lab.run("run", lab.recipe(RECIPE.replace(*change), "beads")), 2, "config", because)


def test_the_schema_has_its_keys(lab: LabUnderTest) -> None:
    schema = json.loads(lab.run("schema", "recipe").stdout)
    block = schema["$defs"]["abacus_count"]
    assert set(block["required"]) == {"name", "program", "frame"}
    assert block["properties"]["frame"]["description"] == "What it is made of."
    assert {"$ref": "#/$defs/abacus_count"} in schema["properties"]["engine"]["anyOf"]
