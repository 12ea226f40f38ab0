"""A run on a virtual board becomes a bundle, and another empty lab makes it again."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from labs import RECIPE, LabUnderTest, blamed, lab_with_board, said

from labctl.bundle.reader import open_bundle

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


@pytest.fixture
def stranger(tmp_path: Path, private_state: Path, rk3568: None) -> Iterator[LabUnderTest]:
    """Another lab with a board of the same kind, and nothing else."""
    root = tmp_path / "stranger"
    root.mkdir()
    with lab_with_board(root, "--target", "rk3568") as lab:
        shutil.rmtree(root / "models")
        yield lab


def test_a_stranger_makes_a_run_again(
    lab: LabUnderTest, stranger: LabUnderTest, tmp_path: Path
) -> None:
    done = lab.run("run", lab.recipe(f"# with care\n{RECIPE}"), "--set", "tokens=8")
    assert done.exit_status == 0, said(done)
    file = str(tmp_path / "x.labctl.zip")
    done = lab.run("bundle", "-o", file)
    assert done.exit_status == 0, said(done)
    with open_bundle(Path(file)) as bundle:
        entries = {name: bundle.read(name) for name in bundle.names}
    assert entries["recipe.yaml"].startswith(b"# with care\nname: tiny")
    assert [name for name, raw in entries.items() if str(lab.root).encode() in raw] == []

    # The model is nowhere but in the first lab: that is said, with its hash.
    blamed(stranger.run("reproduce", file, "--yes"), 2, "config", "has no public source", "--model")
    other = tmp_path / "other.gguf"
    other.write_bytes((lab.root / "models" / "tiny.gguf").read_bytes() + b"\0")
    done = stranger.run("reproduce", file, "--yes", "--model", f"tiny={other}")
    blamed(done, 2, "config", "is not the measured file: its SHA-256 is")
    assert not (stranger.root / "runs").exists()

    # Without --yes it asks, after it has said what it would do.
    model = f"tiny={lab.root}/models/tiny.gguf"
    done = stranger.run("reproduce", file, "--model", model)
    blamed(done, 2, "config", "cannot ask for confirmation", "--yes")
    for part in ("commit 0c1e570", "zig", "'once upon'", "-n 8", "not signed"):
        assert part in done.text
    assert not (stranger.root / "runs").exists()

    done = stranger.run("reproduce", file, "--yes", "--model", model, "--json")
    assert done.exit_status == 0, said(done)
    found = json.loads(done.text)
    judged = {
        number["what"]: (number["judgement"], number["reason"]) for number in found["numbers"]
    }
    assert judged["per token"][0] == "can't tell"
    assert judged["per token"][1].startswith("EMULATED")
    assert judged["generated text"] == ("reproduced", "the same bytes")
    # Both runs are in the list; the bundle's is no run of this lab.
    listed = {run["id"] for run in json.loads(stranger.run("runs", "--json").text)}
    assert listed == {found["there"], found["here"]}
    origin = json.loads((stranger.root / "runs" / found["there"] / "origin.json").read_text())
    assert origin["kind"] == "bundle"
    blamed(stranger.run("resume", found["there"]), 2, "config", "was imported")
