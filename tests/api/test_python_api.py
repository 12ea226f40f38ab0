"""The Python interface: a lab's runs, their tokens and their telemetry as arrays."""

import builtins
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from measured_lab import RUNS, measured_lab

import labctl
from labctl.cli.root import run_cli
from labctl.errors import ConfigError

OLD, NEW = RUNS


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> labctl.Lab:
    return labctl.open_lab(measured_lab(tmp_path_factory.mktemp("lab")))


def test_a_lab_is_found_as_the_program_finds_it(
    lab: labctl.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert labctl.open_lab(lab.root / "runs" / OLD).root == lab.root
    monkeypatch.chdir(lab.root / "runs")
    assert labctl.open_lab().root == lab.root
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no devices\.yaml in"):
        labctl.open_lab()
    monkeypatch.setenv("LABCTL_LAB", str(lab.root))
    assert labctl.open_lab().root == lab.root


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ({}, [NEW, OLD]),
        ({"limit": 1}, [NEW]),
        ({"recipe": "q8-q2", "board": "rk1"}, [NEW, OLD]),
        ({"board": "rk2"}, []),
        ({"since": "2026-11-21"}, [NEW]),
        ({"until": datetime(2026, 11, 21)}, [OLD]),
        ({"since": datetime.now(UTC) - timedelta(days=36500)}, [NEW, OLD]),
        ({"tag": "nightly"}, [NEW]),
        ({"tag": ["nightly", "other"]}, []),
        ({"state": ["finished", "damaged"], "verdict": "passed"}, [OLD]),
        ({"parameters": {"threads": 4, "mmap": True}}, [NEW, OLD]),
        ({"parameters": {"threads": 2}}, []),
        ({"parameters": {"threads": [2, 4]}}, [NEW, OLD]),
    ],
)
def test_runs_are_those_of_the_command_line(
    lab: labctl.Lab, conditions: dict[str, Any], found: list[str]
) -> None:
    runs = lab.runs(**conditions)
    assert [run.id for run in runs] == found
    assert len(runs) == len(found)


def test_a_condition_that_there_is_none_of_is_refused(lab: labctl.Lab) -> None:
    with pytest.raises(TypeError, match="not a condition on runs: bord"):
        lab.runs(bord="rk1")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="must be a date such as"):
        lab.runs(since="yesterday")
    for moment in (5, "0001-01-01T00:00+14:00", "9" * 12 + "h", ""):
        with pytest.raises(ConfigError, match="must be a date such as"):
            lab.runs(since=moment)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"no state 'finishd' \(did you mean 'finished'"):
        lab.runs(state=["failed", "finishd"])
    with pytest.raises(ConfigError, match="no verdict 'bogus'; known: config, failed"):
        lab.trials(verdict="bogus")


def test_a_run_has_its_facts_and_its_records(lab: labctl.Lab) -> None:
    run = lab.run("123456")
    assert (run.id, run.recipe, run.board, run.state, run.verdict) == (
        NEW, "q8-q2", "rk1", "finished", "failed",
    )  # fmt: skip
    assert run.started == datetime(2026, 11, 21, 22, 30, tzinfo=UTC)
    assert run.tags == ("nightly",)
    assert run.record.models[0].quantization == "Q8_0"
    assert run.end is not None
    assert run.end.state == "finished"
    assert lab.run().id == NEW
    with pytest.raises(ConfigError, match="no run 'nothing'"):
        lab.run("nothing")


def test_a_trial_has_its_tokens_and_telemetry_as_arrays(lab: labctl.Lab) -> None:
    trial = lab.run(OLD).trials[0]
    assert (trial.number, trial.variant, trial.repeat, trial.state) == (1, "q8_0", 1, "ok")
    assert trial.tokens.dtype == np.int64
    assert trial.tokens.shape == (31,)
    assert trial.tokens.sum() == sum(trial.record.timing.token_ns)  # type: ignore[union-attr]
    telemetry = trial.telemetry
    assert telemetry.seconds.tolist() == list(range(10))
    assert telemetry["temperatures_mc.soc"].max() == 44_500
    assert telemetry["rss_bytes"][0] == 88_000_000
    assert np.isnan(telemetry["major_faults"][0])
    assert telemetry["major_faults"][9] == 90
    table = telemetry.to_pandas()
    assert table["seconds"].tolist() == list(range(10))
    assert table["major_faults"].isna().sum() == 1


def test_a_failed_trial_has_no_tokens_and_a_missing_file_no_samples(lab: labctl.Lab) -> None:
    failed = lab.trials()[-1]
    assert (failed.path.name, failed.state, failed.tokens.size) == (NEW, "failed", 0)
    (failed.folder / "telemetry").unlink()
    assert (len(failed.telemetry), failed.telemetry.seconds.size) == (0, 0)
    assert failed.telemetry.to_pandas().empty


def test_trials_and_runs_are_tables_of_pandas(lab: labctl.Lab) -> None:
    table = lab.trials(recipe="q8-q2").to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert len(table) == 12
    assert table["parameters.threads"].tolist() == [4] * 12
    means = table[table.state == "ok"].groupby("variant").mean_ns.mean()
    assert means["q8_0"] > 2 * means["q2_k"]
    assert table["mean_ns"].isna().sum() == 1
    assert table["started"].dt.tz is not None
    runs = lab.runs().to_pandas()
    assert runs["id"].tolist() == [NEW, OLD]
    assert runs["token_low_ns"].dtype == "Int64"
    assert lab.runs(board="nobody").to_pandas().empty
    assert [len(part) for part in (lab.runs()[:1], lab.trials()[2:5])] == [1, 3]


def test_runs_are_compared_as_on_the_command_line(
    lab: labctl.Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    found = lab.compare(lab.run(OLD), "latest", figures=["tpot_ms"])
    assert {row.figure for row in found.rows} == {"tpot_ms"}
    assert run_cli(["--lab", str(lab.root), "compare", OLD, NEW, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["rows"]
    verdicts = {(row["left"], row["right"], row["figure"]): row["verdict"] for row in printed}
    assert found.rows
    for row in found.rows:
        assert verdicts[row.left, row.right, row.figure] == row.verdict
    (variants,) = lab.compare(OLD, figures=["tpot_ms"]).rows
    assert (variants.verdict, variants.right.rpartition(":")[2]) == ("faster", "q2_k")
    assert variants.ratio == pytest.approx(22 / 52, rel=0.01)
    with pytest.raises(ConfigError):
        lab.compare("nothing", "latest")


def test_without_pandas_the_error_names_it(
    lab: labctl.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name == "pandas":
            raise ImportError("no pandas")
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="needs pandas, which is not installed") as caught:
        lab.trials().to_pandas()
    assert caught.value.hint == "pip install pandas"


def test_importing_labctl_imports_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import labctl\n"
        "print(*sorted(m for m in set(sys.modules) - before if m.startswith('labctl')"
        " or '.' not in m))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "pydantic", "pandas", "sqlalchemy", "yaml", "click", "labctl.api"}
    assert not heavy & set(done.stdout.split())
    assert set(dir(labctl)) >= {"Lab", "open_lab"}  # as a notebook completes names


def test_a_run_is_found_by_the_name_of_a_baseline(tmp_path: Path) -> None:
    lab = labctl.open_lab(measured_lab(tmp_path))
    for words in (("one", OLD), ("both", OLD, NEW)):
        assert run_cli(["--lab", str(lab.root), "baseline", "set", *words]) == 0
    assert lab.run("one").id == OLD
    with pytest.raises(ConfigError, match="baseline both has 2 runs"):
        lab.run("both")
    with pytest.raises(ConfigError, match="no run 'two'") as error:
        lab.run("two")
    assert "baselines: both, one" in str(error.value.hint)


@pytest.mark.soak  # mypy reads all of labctl, numpy and pydantic for it: 10 s
def test_its_types_hold_under_strict_mypy(tmp_path: Path) -> None:
    script = tmp_path / "user.py"
    script.write_text(
        "import labctl\n"
        "from numpy.typing import NDArray\n"
        "import numpy as np\n"
        "lab = labctl.open_lab('.')\n"
        "tokens: NDArray[np.int64] = lab.runs(board='rk1')[0].trials[0].tokens\n"
        "wrong: str = lab.runs(limit='x')  # line 6\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if "user.py" in line and "error" in line]
    assert lines, done.stdout
    assert all("user.py:6:" in line for line in lines), done.stdout
