"""A run becomes a bundle, and a bundle becomes a run of its own kind in another lab."""

import getpass
import gzip
import json
import platform
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from records_made import BEGAN, plan, planned_run, run, trial

from labctl import process
from labctl.board.lease import Lease
from labctl.board.probe_files import save_probe
from labctl.bundle.form import NotABundle
from labctl.bundle.importing import import_bundle
from labctl.bundle.make import make_bundle, write_zip
from labctl.bundle.reader import open_bundle
from labctl.cli.root import run_cli
from labctl.errors import ConfigError
from labctl.records.board import BoardFacts, Execution
from labctl.records.probe import BoardProbe
from labctl.records.run import PlanRecord, RunEnd
from labctl.runs.record.annotations import set_note
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.journal import Journal
from labctl.runs.record.lookup import find_unfinished
from labctl.runs.record.repository import RunRepository

SERIAL = "7001005458323933"
FACTS = BoardFacts(
    execution=Execution.BOARD, machine="aarch64", kernel="5.10", boot_id="b00t", serial=SERIAL,
    os_version="OpenHarmony 5.0.0.71",
)  # fmt: skip
RECIPE = {
    "name": "q2", "target": "rk3568", "engine": {"name": "llama_cpp"}, "max_time": "1h",
    "models": {"q2_k": {"file": "/srv/nas/models/q2_k.gguf"}}, "prompt_file": "prompt.txt",
}  # fmt: skip
PROMPT = "once upon"
PROMPT_SHA256 = "083312010e07bb538865bd5078eb9580cadc0014791e26403aa6919e635d5a8c"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(getpass, "getuser", lambda: "carol")
    monkeypatch.setattr(platform, "node", lambda: "desk.example.org")
    monkeypatch.setenv("HOME", "/home/carol")
    root = tmp_path / "lab-of-carol"
    root.mkdir()
    (root / "devices.yaml").write_text(
        "boards:\n  rk1:\n    target: rk3568\n"
        '    transport: {kind: hdc, link: tcp, address: "gate.example.org:5555"}\n'
    )
    (root / "prompt.txt").write_text(PROMPT)
    return root


@pytest.fixture
def directory(lab: Path) -> RunDirectory:
    record = run(host="desk", facts=FACTS, recipe_resolved=RECIPE)
    planned = PlanRecord(trials=(), max_seconds=60, prompt_sha256=PROMPT_SHA256)
    found = planned_run(lab / "runs", record, planned)
    found.add(trial(1, argv=("/data/x", f"{lab}/models/q2_k.gguf")))
    folder = found.trial_path(1, "q2_k-r1")
    (folder / "stdout").write_bytes(b"once \xff carol said: /home/carol/x\n")
    (folder / "stderr").write_text(
        f'{{"file": "{lab}/m"}} on desk, gate.example.org:5555, {SERIAL}'
    )
    (folder / "timeline").write_text("labctl-timeline 1 5\n6 1 0 4\n")
    (found.path / "journal.jsonl").write_text(
        '{"schema_version": 1, "event": "lease", "token": "t0ken"}\n'
    )
    (found.path / "notes of mine.txt").write_text("private")
    found.finish(RunEnd(state="finished", finished=BEGAN))
    for days in (-2, -1, 1):
        probe = BoardProbe(
            board="rk1", taken=BEGAN + timedelta(days=days), agent_version="1",
            labctl_version="1", facts=FACTS, storage_device=f"day{days}",
        )  # fmt: skip
        save_probe(lab, probe)
    return found


def everything(path: Path) -> dict[str, bytes]:
    with open_bundle(path) as bundle:
        bundle.verify()
        return {name: bundle.read(name) for name in bundle.names}


def test_a_bundle_has_what_a_stranger_needs_and_nobody_in_it(
    directory: RunDirectory, lab: Path, tmp_path: Path
) -> None:
    path = tmp_path / "x.labctl.zip"
    set_note(directory, "the fan was off")
    made = make_bundle(directory, path)
    assert "the note on the run is left out" in made.notes
    assert [note for note in made.notes if "user and place" in note]  # a journal of before
    found = everything(path)
    for needed in (
        "README.txt", "recipe.resolved.yaml", "models.json", "probe.json", "report.md",
        "report.txt",
        "report.html",
        "inputs/prompt.txt", "run/run.json", "run/plan.json", "run/end.json", "run/records.jsonl",
        "run/trials/001-q2_k-r1/record.json", "run/trials/001-q2_k-r1/stdout",
    ):  # fmt: skip
        assert needed in found
    assert not [name for name in found if "journal" in name or "notes" in name or "lock" in name]
    for name, raw in found.items():
        assert b"the fan" not in raw, name
        for secret in ("carol", "desk", "lab-of", str(lab), SERIAL, "gate.ex", "/srv/nas", "b00t"):
            assert secret.encode() not in raw, (name, secret)
    stdout = found["run/trials/001-q2_k-r1/stdout"]
    assert stdout == b"once \xff xxxxx said: <homexxxxx>/x\n"  # as long as before
    assert b"labctl-bundle-" not in found["report.html"]
    assert b"q2_k" in found["report.html"]
    assert found["inputs/prompt.txt"] == PROMPT.encode()
    assert json.loads(found["probe.json"])["storage_device"] == "day-1"
    assert b"5.0.0.71" in found["run/run.json"]  # a version is no address
    (model,) = json.loads(found["models.json"])["models"]
    assert (model["source"], model["public"]) == ({"file": "q2_k.gguf"}, False)
    kinds = {one.kind for one in made.left_out}
    assert kinds == {"address", "boot", "home", "host", "lab", "path", "serial", "user"}


def test_who_measured_is_left_out_of_a_moved_lab_that_another_bundles(
    directory: RunDirectory, lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Journal(directory.path, "r").leased(Lease("1ab", 1, "bench.example.org", "", ""))
    stderr = directory.trial_path(1, "q2_k-r1") / "stderr"
    stderr.write_text(f"carol of /home/carol on bench, at {lab}/models")
    moved = tmp_path / "elsewhere"
    lab.rename(moved)
    monkeypatch.setattr(getpass, "getuser", lambda: "root")
    monkeypatch.setenv("HOME", "/root")
    path = tmp_path / "x.labctl.zip"
    made = make_bundle(RunDirectory(moved / "runs" / directory.path.name), path)
    for name, raw in everything(path).items():
        for secret in ("carol", "bench", "lab-of"):
            assert secret.encode() not in raw, (name, secret)
    assert not [note for note in made.notes if "user and place" in note]


def test_the_same_run_gives_the_same_bytes(directory: RunDirectory, tmp_path: Path) -> None:
    paths = [tmp_path / "1.labctl.zip", tmp_path / "2.labctl.zip"]
    for path in paths:
        make_bundle(directory, path)
        (directory.path / "trials").touch()
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_compressed_records_are_published_as_they_were(
    directory: RunDirectory, tmp_path: Path
) -> None:
    paths = [tmp_path / "1" / "x.labctl.zip", tmp_path / "2" / "x.labctl.zip"]
    make_bundle(directory, paths[0])
    assert directory.compress() > 0
    make_bundle(directory, paths[1])
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_with_identity_nothing_is_left_out(directory: RunDirectory, tmp_path: Path) -> None:
    made = make_bundle(directory, tmp_path / "x", with_identity=True)
    assert made.with_identity
    assert not made.left_out
    folder = directory.path / "trials" / "001-q2_k-r1"
    found = everything(tmp_path / "x")
    assert found["run/trials/001-q2_k-r1/stderr"] == (folder / "stderr").read_bytes()


def test_a_changed_prompt_is_not_passed_off_as_the_measured_one(
    directory: RunDirectory, lab: Path, tmp_path: Path
) -> None:
    (lab / "prompt.txt").write_text("something else")
    made = make_bundle(directory, tmp_path / "x")
    assert "inputs/prompt.txt" not in made.entries
    assert "the prompt_file of the recipe: it was changed since the run" in made.notes


def test_what_cannot_be_published_is_refused(directory: RunDirectory, tmp_path: Path) -> None:
    with (
        directory.held(),
        pytest.raises(ConfigError, match="is in progress"),
    ):
        make_bundle(directory, tmp_path / "x")
    empty = planned_run(tmp_path / "runs", run(), plan())
    with pytest.raises(ConfigError, match="no finished trial"):
        make_bundle(empty, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_an_imported_bundle_is_a_run_of_its_own_kind(
    directory: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory.path / "end.json").unlink()  # one that was never finished
    make_bundle(directory, tmp_path / "x.labctl.zip")
    runs = tmp_path / "other" / "runs"
    (runs / ".import-new-killed").mkdir(parents=True)
    with open_bundle(tmp_path / "x.labctl.zip") as bundle:
        imported = import_bundle(bundle, runs)
        with pytest.raises(ConfigError, match="was imported before"):
            import_bundle(bundle, runs)
    origin = imported.origin()
    assert origin is not None
    assert (origin.kind, origin.run, origin.file) == ("bundle", directory.path.name, "x.labctl.zip")
    assert imported.path.name.startswith("20261120T223000Z-q2-")
    assert [one.timing for one in imported.trials()] == [one.timing for one in directory.trials()]
    assert [found.run.id for found in RunRepository(runs).query()] == [imported.path.name]
    with pytest.raises(ConfigError, match=r"no unfinished|no run"):
        find_unfinished(runs)
    with pytest.raises(ConfigError, match=r"was imported from x\.labctl\.zip"):
        make_bundle(imported, tmp_path / "y")
    assert run_cli(["report", str(imported.path)]) == 0
    assert "q2_k" in capsys.readouterr().out
    assert [path.name for path in runs.glob(".import*")] == [".import-lock"]


@pytest.mark.parametrize(
    ("entry", "old", "new"),
    [
        ("run/run.json", b'"board": "rk1"', b'"board": "../x"'),
        ("run/run.json", b'"id": "2026', b'"id": "2025'),
        ("run/trials/001-q2_k-r1/record.json", b'"slug": "q2_k-r1"', b'"slug": "../../../x"'),
        ("run/trials/001-q2_k-r1/record.json", b'"number": 1', b'"number": -1'),
        ("run/run.json", b'"schema_version": 1', b'"schema_version": 9'),
        ("run/run.json", b'"epoch": 1', b'"epoch": 99999999999999999999'),
        ("run/run.json", b"T22:30:00Z", b"T22:30:00"),
        ("run/run.json", b"2026-11-20T22:30:00Z", b"0001-01-01T00:00:00+14:00"),
        ("run/run.json", b"2026-11-20T22:30:00Z", b"9999-12-31T23:59:59-14:00"),
        ("run/end.json", b'"finished": "2026-', b'"finished": "0001-'),
        ("run/trials/001-q2_k-r1/record.json", b'"size_bytes": 8', b'"size_bytes": 1e999, "x": 8'),
        ("run/trials/001-q2_k-r1/record.json", b'"size_bytes": 8', b'"size_bytes": NaN, "x": 8'),
    ],
)
def test_records_that_lead_elsewhere_are_not_imported(
    directory: RunDirectory, tmp_path: Path, entry: str, old: bytes, new: bytes
) -> None:
    make_bundle(directory, tmp_path / "x")
    with open_bundle(tmp_path / "x") as bundle:
        manifest = bundle.manifest
    found = everything(tmp_path / "x")
    assert old in found[entry]
    found[entry] = found[entry].replace(old, new, 1)
    write_zip(
        tmp_path / "y", found.items(), lambda made: manifest.model_copy(update={"entries": made})
    )
    with open_bundle(tmp_path / "y") as bundle, pytest.raises(NotABundle):
        import_bundle(bundle, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me", "-f", str(tmp_path / "key")]
    assert process.run(words, timeout=30).exit_status == 0
    return tmp_path / "key"


def test_a_signature_says_who_made_it_and_holds_for_this_bundle_alone(
    directory: RunDirectory, tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, allowed = tmp_path / "x.labctl.zip", tmp_path / "allowed"
    public = key.with_suffix(".pub").read_text()
    assert run_cli(["bundle", str(directory.path), "-o", str(path), "--sign", str(key)]) == 0
    assert "left out: names of users (" in capsys.readouterr().err
    assert run_cli(["show", str(path)]) == 0
    assert "not verified: no --allowed-signers given" in capsys.readouterr().out
    allowed.write_text(f"me@example.org {public}")
    assert run_cli(["show", str(path), "--allowed-signers", str(allowed), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["signed"]) == ["key", "name"]
    assert found["signed"]["name"] == "me@example.org"
    assert list(found)[:5] == ["file", "sha256", "signed", "labctl_bundle", "run"]
    assert run_cli(["bundle", str(directory.path), "-o", str(tmp_path / "z"), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (list(made)[:3], made["file"]) == (["file", "labctl_bundle", "run"], str(tmp_path / "z"))
    assert made["entries"] == found["entries"]
    allowed.write_text(f'me@example.org namespaces="file" {public}')
    assert run_cli(["show", str(path), "--allowed-signers", str(allowed)]) == 2
    assert "does not allow" in capsys.readouterr().err
    # The signature of another bundle does not fit.
    with open_bundle(path) as bundle:
        signature, manifest = bundle.signature, bundle.manifest
    assert signature is not None
    other = manifest.model_copy(update={"recipe": "other"})
    write_zip(
        tmp_path / "y.labctl.zip", everything(path).items(),
        lambda made: other.model_copy(update={"entries": made}), lambda _: signature,
    )  # fmt: skip
    assert run_cli(["show", str(tmp_path / "y.labctl.zip")]) == 2
    assert "does not match the bundle" in capsys.readouterr().err
    make_bundle(directory, path)
    assert run_cli(["show", str(path), "--allowed-signers", str(allowed)]) == 2
    assert "it is not signed" in capsys.readouterr().err


def test_a_key_that_cannot_sign_leaves_no_bundle(
    directory: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nokey").write_text("nothing")
    words = ["bundle", str(directory.path), "-o", str(tmp_path / "x"), "--sign"]
    assert run_cli([*words, str(tmp_path / "nokey")]) == 2
    assert "ssh-keygen cannot sign" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_an_entry_is_printed_without_control_characters(
    directory: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory.trial_path(1, "q2_k-r1") / "stdout").write_bytes(b"\x1b[2Jgone")
    make_bundle(directory, tmp_path / "x.labctl.zip")
    assert run_cli(["show", f"{tmp_path}/x.labctl.zip/run/trials/001-q2_k-r1/stdout"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "gone" in shown


def test_no_compressed_file_waits_to_be_unpacked(directory: RunDirectory, tmp_path: Path) -> None:
    make_bundle(directory, tmp_path / "x")
    with open_bundle(tmp_path / "x") as bundle:
        manifest = bundle.manifest
    found = everything(tmp_path / "x")
    found["run/trials/001-q2_k-r1/record.json.gz"] = gzip.compress(bytes(10_000_000))
    write_zip(
        tmp_path / "y", found.items(), lambda made: manifest.model_copy(update={"entries": made})
    )
    with (
        open_bundle(tmp_path / "y") as bundle,
        pytest.raises(NotABundle, match=r"record\.json\.gz is compressed"),
    ):
        import_bundle(bundle, tmp_path / "runs")


def test_raw_files_of_a_stranger_break_no_command(
    directory: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is in them, it is read as a damaged log is, by every command that reads logs."""
    make_bundle(directory, tmp_path / "x")
    with open_bundle(tmp_path / "x") as bundle:
        manifest = bundle.manifest
    found = everything(tmp_path / "x")
    folder = "run/trials/001-q2_k-r1"
    for name in ("telemetry", "timeline", "started.json", "status.json", "meter.jsonl", "stdout"):
        found[f"{folder}/{name}"] = b"\x00\xff" + b"labctl-telemetry 1 9\n1 -1 nan " + b"{" * 9000
    found["run/events.jsonl"] = b"{]\n" * 9
    write_zip(
        tmp_path / "y", found.items(), lambda made: manifest.model_copy(update={"entries": made})
    )
    with open_bundle(tmp_path / "y") as bundle:
        imported = import_bundle(bundle, tmp_path / "lab" / "runs")
    page = str(tmp_path / "r.html")
    for words in (
        ["report"], ["report", "--wide"], ["report", "-o", page], ["show"],
        ["export", "--format", "jsonl"],
    ):  # fmt: skip
        status = run_cli([words[0], str(imported.path), *words[1:]])
        said = capsys.readouterr().err
        assert status in (0, 2), said
        assert "bug:" not in said
