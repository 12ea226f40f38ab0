"""Export trials as results of llama-bench, for llama.cpp's own tools.

A trial of llama-bench is exported as llama-bench printed it. A completion becomes two tests: its
prompt (pp), and its generation at the depth of the prompt (tg). Measured values come from the
record, settings from the record or the command line. An option that labctl did not give has
llama-bench's default.
"""

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from pathlib import Path

from labctl.config.printed import read_json
from labctl.engines.llama_cpp.bench_results import Row
from labctl.errors import ConfigError
from labctl.index.index import IndexedTrial
from labctl.records.board import BoardFacts
from labctl.records.timing import TimingRecord
from labctl.records.trial import ModelIdentity, TrialRecord, TrialState
from labctl.runs.record.directory import RunDirectory

#: Default settings, by the name of the completion program in newer and older versions
#: (``cmd_params_defaults``, and ``common_params`` in ``common/common.h``).
_COMMON: Row = {
    "cpu_mask": "0x0",
    "cpu_strict": False,
    "poll": 50,
    "type_k": "f16",
    "type_v": "f16",
    "n_gpu_layers": -1,
    "split_mode": "layer",
    "main_gpu": 0,
    "no_kv_offload": False,
    "tensor_split": "0.00",
    "tensor_buft_overrides": "none",
    "embeddings": False,
    "no_op_offload": 0,
}
_NEWER: Row = {
    "n_cpu_moe": 0,
    "flash_attn": -1,
    "devices": "auto",
    "load_mode": "auto",
    "lazy_mode": "auto",
    "no_host": False,
    "fit_target": 0,
    "fit_min_ctx": 0,
}
_OLDER: Row = {"flash_attn": False, "use_mmap": True}


class NoTest(ConfigError):
    """A trial that llama-bench's format cannot hold; the message is the reason."""


def bench_results(
    runs: Path, trials: Sequence[IndexedTrial], note: Callable[[str], None]
) -> list[Row]:
    """Return the tests of all trials; ``note`` gets the reason for each trial left out.

    ``runs`` is the folder of the run directories. Raises ConfigError for a damaged record.
    """
    rows: list[Row] = []
    for run_id, of_run in groupby(trials, lambda one: one.run.id):
        directory = RunDirectory(runs / run_id)
        records = {trial.number: trial for trial in directory.trials()}
        for one in of_run:
            try:
                rows += bench_rows(directory, one, records[one.trial.number])
            except NoTest as error:
                note(f"left out: {run_id}/{one.trial.number}: {error.message}")
    return rows


def bench_rows(directory: RunDirectory, one: IndexedTrial, trial: TrialRecord) -> list[Row]:
    """Return the tests of a trial. Raises NoTest, with the reason, if it has none."""
    if trial.repeat == 0:
        raise NoTest("a warm-up")
    if trial.state is not TrialState.OK or trial.timing is None:
        raise NoTest(trial.state)
    if one.run.engine != "llama_cpp":
        raise NoTest(f"measured by {one.run.engine or 'an unknown engine'}, not by llama.cpp")
    origin = {
        "run": one.run.id,
        "trial": trial.number,
        "board": one.trial.board,
        "execution": one.trial.execution,
        "task": one.run.task,
    }
    if one.run.task == "bench":
        rows = _printed(directory, trial)
    else:
        rows = _completion(trial, trial.timing, directory.run().facts, one.run.build_commit)
    return [{**row, "labctl": origin} for row in rows]


def _printed(directory: RunDirectory, trial: TrialRecord) -> list[Row]:
    """Return the output of llama-bench from the run directory."""
    path = directory.trial_path(trial.number, trial.slug) / "stdout"
    try:
        # Decoded as the engine does: a name in it may contain any bytes.
        text = path.read_bytes().decode(errors="replace")
        return [read_json(line) for line in text.splitlines()]
    except OSError as error:
        raise NoTest(f"its output cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise NoTest(f"its output is damaged: {error}") from error


def _completion(
    trial: TrialRecord, timing: TimingRecord, facts: BoardFacts, commit: str | None
) -> list[Row]:
    known = _settings(trial, timing, facts, commit)
    rows: list[Row] = []
    prompt, runs, made = timing.prompt_tokens, timing.eval_runs, timing.generated_tokens
    if prompt and timing.prompt_eval_ns:
        rows.append({**known, **_test(trial, prompt, 0, 0, timing.prompt_eval_ns)})
    if prompt and runs and made and timing.eval_ns:
        # A prompt of one token is counted among the passes of the generation.
        depth = prompt + made - 1 - runs
        rows.append({**known, **_test(trial, 0, runs, depth, timing.eval_ns)})
    if not rows:
        raise NoTest("the program reported no time, neither of its prompt nor of its tokens")
    return rows


def _settings(
    trial: TrialRecord, timing: TimingRecord, facts: BoardFacts, commit: str | None
) -> Row:
    stated, _, rest = (timing.program_version or "").partition(" ")
    threads = trial.parameters.get("threads")
    if not (stated or commit):
        raise NoTest("the commit of its program is unknown")
    if threads is None:
        raise NoTest("its number of threads is unknown")
    if trial.comparability.get("build_key") is None:
        raise NoTest("its program was not built by labctl, whose builds are for CPUs only")
    options = trial.argv[: _prompt_from(trial.argv)]
    newer = "-fit" in options
    row: Row = {
        "build_commit": stated or (commit or "")[:7],
        # Name that llama.cpp's CPU backend uses if the kernel does not name the CPU.
        "cpu_info": next((cpu.model for cpu in facts.cpus if cpu.model), "CPU"),
        "gpu_info": "",
        "backends": "CPU",
        **_model(trial.model, options),
        "n_batch": trial.parameters.get("batch"),
        "n_ubatch": trial.parameters.get("ubatch"),
        "n_threads": threads,
        **_COMMON,
        **(_NEWER if newer else _OLDER),
    }
    if number := rest.strip("()"):
        row["build_number"] = int(number) if number.isdecimal() else None
    if newer:
        row["repack"] = "--no-repack" not in options
        if mode := _after(options, "-lm"):
            row["load_mode"] = mode
    return {name: value for name, value in row.items() if value is not None}


def _model(model: ModelIdentity, argv: Sequence[str]) -> Row:
    size = f"{model.parameters / 1e6:.2f} M" if model.parameters else None
    words = (model.architecture, size, model.quantization)
    return {
        "model_filename": _after(argv, "-m") or model.file,
        "model_type": " ".join(word for word in words if word) or model.file,
        "model_size": model.tensor_bytes,
        "model_n_params": model.parameters,
    }


def _test(trial: TrialRecord, prompt: int, generated: int, depth: int, taken_ns: int) -> Row:
    """Return the measured part of a row. A single sample has no deviation."""
    rate = (prompt + generated) * 1e9 / taken_ns
    return {
        "n_prompt": prompt,
        "n_gen": generated,
        "n_depth": depth,
        "test_time": f"{trial.started:%Y-%m-%dT%H:%M:%SZ}",
        "avg_ns": taken_ns,
        "avg_ts": rate,
        "samples_ns": [taken_ns],
        "samples_ts": [rate],
    }


def _prompt_from(argv: Sequence[str]) -> int:
    """Return the index of the prompt, whose words may look like options."""
    return argv.index("-p") if "-p" in argv else len(argv)


def _after(argv: Sequence[str], flag: str) -> str | None:
    return next((word for before, word in pairwise(argv) if before == flag), None)
