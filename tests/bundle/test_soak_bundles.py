"""Thousands of damaged bundles: each is refused, or is a run that every reader takes."""

import random
from pathlib import Path

import pytest
from records_made import plan, planned_run, run, trial

from labctl.bundle.importing import import_bundle
from labctl.bundle.make import make_bundle, write_zip
from labctl.bundle.reader import open_bundle
from labctl.errors import ConfigError
from labctl.report.formats import result_text
from labctl.runs.record.repository import RunRepository

pytestmark = pytest.mark.soak

PIECES = (b"-", b"9" * 30, b"null", b'"', b"{", b"true", b"../", b"\\u0000", b"1e400", b"")
COUNT = 10_000


def damaged(rnd: random.Random, raw: bytes) -> bytes:
    """Some bytes changed, lost, put in, or copied from elsewhere."""
    made = bytearray(raw)
    for _ in range(rnd.randint(1, 6)):
        at, other = rnd.randrange(len(made)), rnd.randrange(len(made))
        piece = rnd.choice(PIECES)
        cut = rnd.randint(0, 30)
        change = rnd.choice((bytes([rnd.randrange(256)]), piece, bytes(made[other : other + cut])))
        made[at : at + rnd.choice((0, 1, cut))] = change
    return bytes(made)


def test_damaged_bundles_surprise_nobody(tmp_path: Path) -> None:
    record = run(recipe_resolved={
        "name": "q2", "target": "rk3568", "engine": {"name": "llama_cpp"}, "max_time": "1h",
        "models": {"q2_k": {"file": "q2_k.gguf"}}, "prompt": "once upon",
    })  # fmt: skip
    directory = planned_run(tmp_path / "lab" / "runs", record, plan())
    directory.add(trial(1))
    whole, path = tmp_path / "whole", tmp_path / "damaged"
    make_bundle(directory, whole)
    with open_bundle(whole) as bundle:
        manifest = bundle.manifest
        files = {name: bundle.read(name) for name in bundle.names if name != "report.html"}
    write_zip(whole, files.items(), lambda made: manifest.model_copy(update={"entries": made}))
    rnd, taken = random.Random(1), 0
    for number in range(COUNT):
        if number % 2:
            path.write_bytes(damaged(rnd, whole.read_bytes()))
        else:  # whole as a zip, damaged inside
            name = rnd.choice(sorted(name for name in files if name.startswith("run/")))
            changed = {**files, name: damaged(rnd, files[name])}
            write_zip(
                path, changed.items(), lambda made: manifest.model_copy(update={"entries": made})
            )
        runs = tmp_path / f"{number}" / "runs"
        try:
            with open_bundle(path) as bundle:
                imported = import_bundle(bundle, runs)
        except ConfigError:
            continue
        taken += 1
        assert [one.run.id for one in RunRepository(runs).query()] == [imported.path.name]
        end = imported.end()
        gates = end.gates if end else ()
        result_text("md", imported.run(), imported.trials(), gates, imported.path)
    print(f"{COUNT} damaged bundles: {taken} taken")
    assert 0 < taken < COUNT
