"""Results of others become runs of their own kind: kept with their file, like nothing of labctl."""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from records_made import BEGAN, plan, planned_run, run, trial

from labctl.cli.root import run_cli
from labctl.compare.sides import match_sides, run_sides
from labctl.compare.verdicts import compare
from labctl.engines.llama_cpp.bench_results import json_text, sql_text
from labctl.errors import ConfigError
from labctl.exchange.llama_bench_import import import_results
from labctl.records.run import RunEnd
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.repository import RunRepository

RECORDED = Path(__file__).parents[1] / "fixtures" / "llama_cpp" / "bench" / "new.jsonl"


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


@dataclass
class Lab:
    root: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str, status: int = 0) -> tuple[str, str]:
        assert run_cli(["--lab", str(self.root), *words]) == status
        return self.capsys.readouterr()

    def file(self, content: str | bytes | list[dict[str, Any]], name: str = "bench.json") -> str:
        path = self.root / name
        text = json_text(content) if isinstance(content, list) else content
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)


@pytest.fixture
def lab(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Lab:
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    return Lab(tmp_path, capsys)


def database(rows: list[dict[str, Any]], path: Path) -> bytes:
    made = sqlite3.connect(path)
    made.executescript(sql_text(rows))
    made.close()
    return path.read_bytes()


@pytest.mark.parametrize("form", ["json", "jsonl", "sql", "sqlite"])
def test_a_file_of_llama_bench_is_a_run_whatever_its_name(lab: Lab, form: str) -> None:
    content: dict[str, str | bytes] = {
        "json": json_text(rows()),
        "jsonl": RECORDED.read_text(),
        "sql": sql_text(rows()),
        "sqlite": database(rows(), lab.root / "made"),
    }
    out = lab("import", lab.file(content[form], "results of friends.txt"))[0]
    (found,) = json.loads(lab("runs", "--json")[0])
    assert out == f"{found['id']}: 2 trials\n"
    assert found["id"].startswith("20261121T140958Z-import-results-of-friends-")
    assert found["imported_from"] == "results of friends.txt"
    assert (found["board"], found["target"], found["execution"]) == (None, None, "unknown")
    assert (found["state"], found["verdict"], found["trials_ok"]) == ("finished", None, 2)
    assert found["models"][0] == {
        "run": found["id"], "key": "tiny", "file": "tiny.gguf", "sha256": None,
        "name": "llama ?B all F32", "quantization": "F32",
    }  # fmt: skip
    directory = RunDirectory(lab.root / "runs" / found["id"])
    kept = (directory.path / f"imported.{form}").read_bytes()
    assert kept == (lab.root / "results of friends.txt").read_bytes()
    prompt, tokens = directory.trials()
    assert (prompt.variant, tokens.variant) == ("tiny-pp16", "tiny-tg8")
    assert prompt.timing is not None
    assert tokens.timing is not None
    samples = rows()[1]["samples_ns"]
    if form in ("json", "jsonl"):
        assert tokens.timing.tests[0].samples_ns == tuple(samples)
        assert tokens.timing.mean_ns == round(sorted(samples)[1] / 8)
        assert tokens.timing.measures == ()
    else:  # SQL has no samples: the mean is all that is known
        assert tokens.timing.tests == ()
        assert tokens.timing.mean_ns == round(rows()[1]["avg_ns"] / 8)
        (mean,) = tokens.timing.measures
        assert (mean.name, mean.value) == ("tg8 mean", rows()[1]["avg_ts"])


@pytest.mark.parametrize("form", ["sql", "sqlite"])
def test_a_table_of_before_august_2025_is_read(lab: Lab, form: str) -> None:
    older = [{k: v for k, v in row.items() if k != "n_depth"} for row in rows()]
    text = sql_text(older).replace("llama_bench", "test")
    made = sqlite3.connect(lab.root / "made")
    made.executescript(text)
    made.close()
    content = text if form == "sql" else (lab.root / "made").read_bytes()
    lab("import", lab.file(content, "older"))
    (found,) = json.loads(lab("runs", "--json")[0])
    assert (found["trials_ok"], found["models"][0]["file"]) == (2, "tiny.gguf")


def test_a_database_with_both_tables_is_read_whole(lab: Lab) -> None:
    text = sql_text(rows()) + sql_text(rows()).replace("llama_bench", "test")
    assert "4 trials" in lab("import", lab.file(text, "both.sql"))[0]


@pytest.mark.parametrize(
    ("described", "quantization"),
    [
        ("llama 8B Q8_0", "Q8_0"),
        ("llama 8B Q2_K - Medium", "Q2_K"),
        ("llama 8B Q2_K - Small", "Q2_K_S"),
        ("llama 8B Q4_K - Medium", "Q4_K_M"),
        ("llama 8B Q3_K - Large", "Q3_K_L"),
        ("llama 8B (guessed) Q8_0", "Q8_0"),
        ("llama 8B Q8_0 (guessed)", "Q8_0"),
        ("llama 7B mostly Q4_0", "Q4_0"),
        ("llama ?B all F32", "F32"),
        ("qwen3 4B BF16", "BF16"),
        ("qwen3 4B IQ2_XXS - 2.0625 bpw", "IQ2_XXS"),
        ("qwen3 4B IQ3_S mix - 3.66 bpw", "IQ3_M"),
        ("qwen3 4B (guessed) IQ4_NL - 4.5 bpw", "IQ4_NL"),
        ("bitnet 2B TQ1_0 - 1.69 bpw ternary", "TQ1_0"),
        ("bitnet 2B TQ2_0 - 2.06 bpw ternary", "TQ2_0"),
        ("gpt-oss 20B MXFP4 MoE", "MXFP4_MOE"),
        ("qwen3 4B NVFP4", "NVFP4"),
    ],
)
def test_a_quantization_is_found_by_its_name_in_gguf(
    lab: Lab, described: str, quantization: str
) -> None:
    lab("import", lab.file([{**row, "model_type": described} for row in rows()]))
    assert len(lab("runs", "--quantization", quantization)[0].splitlines()) == 2


LOG = "ggml_vulkan: Found 1 Vulkan devices:\n0.00.412.001 I device 0 | uma: 0\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (LOG + json_text(rows()), "line 1 is not JSON but a line of a log: ggml_vulkan: Found"),
        ("\n" + LOG + RECORDED.read_text(), "line 2 is not JSON but a line of a log"),
        (LOG[37:] + RECORDED.read_text(), "line 1 is not JSON but a line of a log: 0.00.412"),
        (json_text(rows()) + "build: abc (1)\n", "is not JSON but a line of a log: build: abc"),
        (RECORDED.read_text().replace("\n", "\nwarning: x\n", 1), "line 2 is not JSON but"),
        (
            "[INFO] load\n" + json_text(rows()),
            "line 1 is not JSON but a line of a log: [INFO] load",
        ),
        ("[12:00:01] load\n" + json_text(rows()), "line 1 is not JSON but a line of a log"),
        ("[  0.412] load\n" + RECORDED.read_text(), "line 1 is not JSON but a line of a log"),
        ("{cuda} load\n" + RECORDED.read_text(), "line 1 is not JSON but a line of a log: {cuda}"),
        ("[1] load\n" + RECORDED.read_text(), "line 1 is not JSON but a line of a log"),
        (json_text(rows()) + "[INFO] done\n", "is not JSON but a line of a log: [INFO] done"),
        (json_text(rows()).rstrip() + "build: abc\n", "is not JSON but a line of a log: ]build"),
        (LOG + sql_text(rows()), "line 1 is not SQL but a line of a log: ggml_vulkan"),
        (json_text(rows()).encode("utf-16"), "is in UTF-16, as PowerShell writes it"),
        (json_text(rows()).encode("utf-16-be"), "is in UTF-16, as PowerShell writes it"),
        (sql_text(rows()).encode("utf-16-le"), "is in UTF-16, as PowerShell writes it"),
    ],
)
def test_what_a_redirection_spoils_is_said(lab: Lab, content: str | bytes, words: str) -> None:
    said = lab("import", lab.file(content), status=2)[1]
    assert words in said
    assert ("UTF-8" if "UTF-16" in words else "`llama-bench -o json > FILE`") in said


def test_numbers_on_lines_of_their_own_are_no_log(lab: Lab) -> None:
    assert "2 trials" in lab("import", lab.file(json.dumps(rows(), indent=1)))[0]


def test_it_is_found_shown_and_exported_as_it_came(lab: Lab) -> None:
    lab("import", lab.file(rows()))
    _heading, line = lab("runs")[0].splitlines()
    assert line.endswith("IMPORTED")
    for words in (
        ("--param", "threads=2", "--param", "tokens=8"),
        ("--model", "tiny.gguf"),
        ("--build", "0c1e570"),
        ("--quantization", "f32", "--state", "finished"),
        ("--since", "2026-11-21", "--until", "2026-11-22"),
    ):
        assert lab("runs", *words)[0].splitlines()[1:] == [line], words
    shown = lab("show", "latest")[0]
    assert "origin.json (the import)\n  kind: llama-bench\n  file: bench.json" in shown
    assert "devices.yaml" not in shown
    assert "timing.tests.tg8.samples_ns: 40182344, 24212270, 11785836" in lab("show", "latest/2")[0]
    assert "IMPORTED: measured elsewhere, the machine is not known" in lab("report", "latest")[0]
    exported = json.loads(lab("export", "--format", "llama-bench-json")[0])
    assert [{k: v for k, v in row.items() if k != "labctl"} for row in exported] == rows()
    first = json.loads(lab("export", "--format", "jsonl")[0].splitlines()[0])
    assert (first["board"], first["model_sha256"], first["model_bytes"]) == (None, None, None)
    assert "cannot be resumed here" in lab("resume", "latest", status=2)[1]


def test_a_database_without_samples_is_exported_too(lab: Lab) -> None:
    lab("import", lab.file(sql_text(rows())))
    exported = json.loads(lab("export", "--format", "llama-bench-json")[0])
    assert [(row["n_gen"], row["avg_ns"]) for row in exported] == [(0, 47846937), (8, 25393483)]


def test_a_further_setting_hides_none_that_labctl_knows(lab: Lab) -> None:
    lab("import", lab.file([{**row, "threads": "77"} for row in rows()]))
    assert len(lab("runs", "--param", "threads=2")[0].splitlines()) == 2
    assert json.loads(lab("runs", "--param", "threads=77", "--json")[0]) == []


def test_a_terminal_gets_no_control_characters_of_others(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab("import", lab.file([{**row, "model_filename": "\x1b]0;x\x07.gguf"} for row in rows()]))
    for form in ("csv", "jsonl", "llama-bench-sql"):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        out = lab("export", "--format", form)[0]
        assert ".gguf" in out
        assert not [c for c in out if not c.isprintable() and c != "\n"]


def test_a_pipe_is_not_waited_for(lab: Lab) -> None:
    os.mkfifo(lab.root / "pipe")
    assert "not a regular file" in lab("import", str(lab.root / "pipe"), status=2)[1]


def test_a_rebuild_keeps_it_with_its_tags(lab: Lab) -> None:
    lab("import", lab.file(rows()))
    lab("runs", "tag", "latest", "friends")
    before = lab("runs", "--json")[0]
    (lab.root / "runs" / "index.sqlite").unlink()
    assert lab("runs", "--json", "--tag", "friends")[0] == before
    (lab.root / "runs" / "index.sqlite").unlink()
    assert lab("runs", "--json")[0] == before
    assert "imported before" in lab("import", lab.file(rows()))[1]


def test_the_same_file_is_recognised_under_any_name(lab: Lab) -> None:
    first = lab("import", lab.file(rows()))[0]
    again, said = lab("import", lab.file(rows(), "other.json"), "--json")
    (found,) = json.loads(again)
    assert (found["earlier"], f"{found['run']}: 2 trials\n") == (True, first)
    assert list(found) == ["file", "run", "trials", "earlier"]
    assert found["file"] == str(lab.root / "other.json")
    assert "other.json was imported before" in said
    assert len(json.loads(lab("runs", "--json")[0])) == 1
    changed = [{**row, "build_commit": "4227c9b"} for row in rows()]
    lab("import", lab.file(changed))
    assert len(json.loads(lab("runs", "--json")[0])) == 2


def test_settings_tell_variants_apart_and_the_same_ones_are_repeats(lab: Lab) -> None:
    slower = [{**row, "n_threads": 1} for row in rows()]
    other = [{**row, "model_filename": "/elsewhere/tiny.gguf", "model_size": 9} for row in rows()]
    lab("import", lab.file([*rows(), *slower, *rows(), *other]))
    (found,) = RunRepository(lab.root / "runs").query()
    trials = RunDirectory(lab.root / "runs" / found.run.id).trials()
    assert [trial.slug for trial in trials] == [
        "tiny-pp16-r1", "tiny-tg8-r1", "tiny-pp16-2-r1", "tiny-tg8-2-r1",
        "tiny-pp16-r2", "tiny-tg8-r2", "tiny-2-pp16-r1", "tiny-2-tg8-r1",
    ]  # fmt: skip


def test_it_is_like_nothing_that_labctl_measured(lab: Lab) -> None:
    """Whatever it says of itself: equal settings do not make an equal machine."""
    runs = lab.root / "runs"
    imported = import_results(runs, Path(lab.file(rows())))
    theirs = RunDirectory(runs / imported.run).trials()[1]
    own = trial(1, variant=theirs.variant, parameters=theirs.parameters, timing=theirs.timing)
    planned_run(runs, run(), plan()).add(own)
    directories = [RunDirectory(runs / run_id) for run_id in (run().id, imported.run)]
    left, right = (run_sides(one.run(), one.trials()) for one in directories)
    compared = compare(match_sides(left, right))
    assert {str(row.verdict) for row in compared.rows} == {"unlike"}
    named = {one.key for row in compared.rows for one in row.differences}
    assert {"execution", "imported"} <= named


GOOD = rows()[1]
SQL = sql_text(rows())
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("hello", "labctl cannot import"),
        ("", "labctl cannot import"),
        ("[]", "has no tests"),
        ("[" * 100_000, "recursion limit exceeded"),
        ('{"a":' * 5_000, "recursion limit exceeded"),
        ("[1]", "test 1 of 1 is not an object"),
        ('{"a": 1}', "build_commit: Field required"),
        (json_text([GOOD, {**GOOD, "avg_ns": 0}]), "test 2 of 2 is not a llama-bench test: avg_ns"),
        (json_text([{**GOOD, "n_gen": True}]), "n_gen: Value error, a truth value"),
        (json_text([{**GOOD, "n_gen": 0}]), "nothing was measured"),
        (json_text([{**GOOD, "samples_ns": [1, -1]}]), "samples_ns"),
        (json_text([{**GOOD, "n_gen": 1 << 64}]), "n_gen"),
        (json_text([{**GOOD, "model_filename": "x" * 2_000}]), "model_filename"),
        (json_text([{**GOOD, "test_time": "yesterday"}]), "test_time"),
        (json_text([{**GOOD, "test_time": "0001-01-01T00:00:00Z"}]), "not a year from 1000"),
        (json_text([{**GOOD, "test_time": "9999-12-31T23:59:59-14:00"}]), "not a year from 1000"),
        (json_text([{**GOOD, **{f"x{n}": n for n in range(200)}}]), "values"),
        (json.dumps([{**GOOD, "avg_ts": float("inf")}]), "is not JSON"),
        (f"[{', '.join(['{}'] * 5_001)}]", "has 5001 tests"),
        ('[{"n_gen": ' + "9" * 5_000 + "}]", "number out of range"),
        (f"{SQL}DROP TABLE llama_bench;", "not authorized"),
        (f"{SQL}ATTACH 'stolen' AS x;", "not authorized"),
        (f"{SQL}CREATE TABLE other (x);", "not authorized"),
        (f"{SQL}UPDATE llama_bench SET n_gen = 4;", "not authorized"),
        (f"{SQL}VACUUM INTO 'stolen';", "authorization denied"),
        (f"{SQL}PRAGMA writable_schema = 1;", "not authorized"),
        (f"{SQL}INSERT INTO llama_bench (n_gen) VALUES (load_extension('x'));", "not authorized"),
        (f"{SQL}INSERT INTO llama_bench (n_gen) SELECT n_gen FROM llama_bench;", "not authorized"),
        (
            f"{SQL}INSERT INTO llama_bench (n_gen) {ENDLESS};",
            "not authorized",
        ),
        ("CREATE TABLE llama_bench (x TEXT); -- no more", "has no tests"),
        ("INSERT INTO llama_bench VALUES (1);", "no such table"),
        (
            f"{SQL}CREATE TRIGGER t AFTER INSERT ON llama_bench BEGIN SELECT 1; END;",
            "not authorized",
        ),
    ],
)
def test_what_is_no_such_file_is_refused_and_leaves_nothing(
    lab: Lab, content: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.root)
    err = lab("import", lab.file(content, "x.txt"), status=2)[1]
    assert reason in err
    assert "x.txt" in err
    assert "Traceback" not in err
    assert not (lab.root / "stolen").exists()
    assert json.loads(lab("runs", "--json")[0]) == []
    left = (
        [path.name for path in (lab.root / "runs").glob("*")]
        if (lab.root / "runs").exists()
        else []
    )
    assert [name for name in left if not name.startswith((".import-lock", "index"))] == []


def test_views_and_other_tables_of_a_database_are_not_read(lab: Lab, tmp_path: Path) -> None:
    made = sqlite3.connect(tmp_path / "x")
    made.execute("CREATE VIEW llama_bench AS SELECT randomblob(1000000000) AS build_commit")
    made.close()
    err = lab("import", str(tmp_path / "x"), status=2)[1]
    assert "has no table llama_bench" in err
    damaged = database(rows(), tmp_path / "y")
    (tmp_path / "y").write_bytes(damaged[:100] + b"\xa5" * 4000 + damaged[4100:])
    assert "not SQL of llama-bench" in lab("import", str(tmp_path / "y"), status=2)[1]


def test_a_file_that_is_too_large_is_not_read(lab: Lab) -> None:
    with (lab.root / "large.json").open("wb") as file:
        file.truncate((64 << 20) + 1)
    assert "is larger than 64 MiB" in lab("import", str(lab.root / "large.json"), status=2)[1]


def test_hostile_texts_stay_texts(lab: Lab) -> None:
    hostile = {
        "model_filename": "../../../etc/\x1b[2J=cmd|'/c calc'!A0.gguf",
        "model_type": "</script><script>alert(1)</script>",
        "cpu_info": "\x1b]0;title\x07 ' OR 1=1 --",
        "split_mode": "=1+1",
        "x'); DROP TABLE run; --": 1,
    }
    lab("import", lab.file([{**GOOD, **hostile}], "..=cmd.json"))
    for words in (("runs", "--wide"), ("show", "latest"), ("show", "latest/1"), ("report",)):
        out, err = lab(*words)
        assert "\x1b" not in out + err
        assert "\x07" not in out + err
    (found,) = RunRepository(lab.root / "runs").query()
    folders = [path for path in (lab.root / "runs").rglob("*") if path.is_dir()]
    inside = [path.resolve().is_relative_to(lab.root / "runs") for path in folders]
    assert all(inside)
    assert found.models[0].file == "c calc'!A0.gguf"
    csv = lab("export")[0]
    assert ",=1+1" not in csv
    assert "'=1+1" in csv
    lab("export", "-o", str(lab.root / "x.sql"))
    made = sqlite3.connect(":memory:")
    made.executescript((lab.root / "x.sql").read_text())
    (name,) = made.execute("SELECT model_filename FROM llama_bench").fetchone()
    made.close()
    assert name == hostile["model_filename"]


def test_a_kill_leaves_no_half_run(lab: Lab) -> None:
    """The directory gets its name when it is whole."""
    script = (
        "import os, sys; from pathlib import Path\n"
        "from labctl.runs.record.directory import RunDirectory\n"
        "from labctl.exchange.llama_bench_import import import_results\n"
        "RunDirectory.finish = lambda *_: os._exit(9)\n"
        "import_results(Path(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    file = lab.file(rows())
    words = [sys.executable, "-c", script, str(lab.root / "runs"), file]
    assert subprocess.run(words, check=False, cwd=lab.root).returncode == 9
    assert json.loads(lab("runs", "--json")[0]) == []
    lab("import", file)
    assert len(json.loads(lab("runs", "--json")[0])) == 1
    assert not list((lab.root / "runs").glob(".import-new-*"))
    shutil.rmtree(lab.root / "runs")


def test_a_file_that_is_not_there_is_wrong_use(lab: Lab) -> None:
    assert "cannot read nothing.json" in lab("import", "nothing.json", status=2)[1]
    assert "cannot read" in lab("import", str(lab.root), status=2)[1]
    with pytest.raises(ConfigError, match="labctl cannot import"):
        import_results(lab.root / "runs", Path(lab.file("PK")))


def test_a_bundle_is_imported_by_its_content_and_once(lab: Lab, tmp_path: Path) -> None:
    recipe = {
        "name": "q2", "target": "rk3568", "engine": {"name": "llama_cpp"}, "max_time": "1h",
        "models": {"q2_k": {"file": "q2_k.gguf"}}, "prompt": "x",
    }  # fmt: skip
    planned = plan().model_copy(update={"prompt_sha256": hashlib.sha256(b"x").hexdigest()})
    directory = planned_run(lab.root / "runs", run(recipe_resolved=recipe), planned)
    directory.add(trial(1))
    directory.finish(RunEnd(state="finished", finished=BEGAN))
    bundle = tmp_path / "theirs"
    lab("bundle", run().id, "-o", str(tmp_path / "x.labctl.zip"))
    (tmp_path / "x.labctl.zip").rename(bundle)
    other = Lab(tmp_path / "other", lab.capsys)
    other.root.mkdir()
    (other.root / "devices.yaml").write_text("boards: {}\n")
    out, err = other("import", str(bundle), other.file(rows()))
    assert [line.partition(": ")[2] for line in out.splitlines()] == ["1 trial", "2 trials"]
    assert "imported before" not in err
    found = json.loads(other("runs", "--json")[0])
    assert {one["imported_from"] for one in found} == {"theirs", "bench.json"}
    assert "kind: bundle" in other("show", "20261120T223000Z")[0]
    again, said = other("import", str(bundle))
    assert again == out.splitlines()[0] + "\n"
    assert f"{bundle} was imported before" in said
    assert "not signed" in other("import", str(bundle), "--allowed-signers", "x", status=2)[1]
    assert (
        "is for bundles"
        in other("import", other.file(rows()), "--allowed-signers", "x", status=2)[1]
    )
    bundle.write_bytes(b"PK\x03\x04 and no more")
    other("import", str(bundle), status=2)
