"""Import results of other programs: a file becomes a run directory of its own kind.

``origin.json`` names the file, and the directory keeps a copy, so that the index can be made again.
Facts missing in the file are unknown: board and machine have no name, the execution is ``unknown``,
the model has no hash. So imported results are never comparable with labctl's own measurements.
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from pydantic import JsonValue

from labctl.engines.llama_cpp.bench_reading import (
    MOST_BYTES,
    BenchFile,
    BenchLine,
    looks_like_bench,
    names_of,
    read_bench,
)
from labctl.engines.llama_cpp.bench_results import Row
from labctl.errors import ConfigError
from labctl.files import host_reads, host_writes, sync_directory, write_atomic
from labctl.index.filters import Filter
from labctl.records.board import BoardFacts, Execution
from labctl.records.run import Origin, PlanRecord, RunEnd, RunRecord
from labctl.records.timing import BenchTest, Measure, TimingRecord
from labctl.records.trial import ModelIdentity, TrialRecord, TrialState, Workload
from labctl.runs.record.directory import LINES, RECORD, RunDirectory, importing
from labctl.runs.record.repository import RunRepository

KIND = "llama-bench"
_LONGEST = 40
#: Settings of a row -> their names in labctl, as in ``labctl run`` and its filters.
_PARAMETERS = {
    "n_prompt": "prompt_tokens",
    "n_gen": "tokens",
    "n_depth": "depth",
    "n_threads": "threads",
    "n_batch": "batch",
    "n_ubatch": "ubatch",
    "type_k": "cache_type_k",
    "type_v": "cache_type_v",
}
#: ``(guessed)``: the file does not name its type. Older versions wrote it at the end, and
#: ``mostly``.
_FILE_TYPE = re.compile(
    r" (?:\(guessed\) )?(?:all |mostly )?([IT]?Q\d\w*|MXFP4|NVFP4|BF16|F16|F32)"
    r"(?: (?:- )?(mix|MoE|Small|Medium|Large))?(?: - [\d.]+ bpw(?: ternary)?)?(?: \(guessed\))?$"
)
_VARIANTS = {"mix": "_mix", "MoE": "_MOE", "Small": "_S", "Medium": "_M", "Large": "_L"}
#: Descriptions that do not follow the rule.
_OTHER_NAMES = {"Q2_K_M": "Q2_K", "IQ3_S_mix": "IQ3_M"}
#: Other fields of a row: its machine and its measurements.
_NO_SETTING = frozenset(
    (
        *("build_commit", "build_number", "cpu_info", "gpu_info", "backends"),
        *("model_filename", "model_type", "model_size", "model_n_params", "test_time"),
        *("avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts"),
    )
)


@dataclass(frozen=True)
class Imported:
    """The run made from a file, now or ``earlier``."""

    run: str
    trials: int
    earlier: bool = False

    def document(self, file: Path) -> dict[str, object]:
        """Return the import as JSON; ``file`` comes first."""
        return {"file": str(file), **asdict(self)}


def import_results(runs: Path, file: Path) -> Imported:
    """Import a file of results that llama-bench printed (JSON, JSON Lines, SQL, SQLite).

    A file that was imported before is found by its hash and not imported again. Raises ConfigError,
    with the problem, if it is not such a file, and HostError.
    """
    data = _content(file)
    sha256 = hashlib.sha256(data).hexdigest()
    with importing(runs) as aside:
        if (known := earlier_import(runs, sha256)) is not None:
            return known
        try:
            found = read_bench(data)
        except ConfigError as error:
            raise ConfigError(f"{file}: {error.message}", hint=error.hint) from error
        return _made(aside, file, data, sha256, found)


def earlier_import(runs: Path, sha256: str) -> Imported | None:
    """Return the run made earlier from a file with this hash, or None.

    Raises HostError.
    """
    for known in RunRepository(runs).query(Filter(imported_sha256=sha256), limit=1):
        return Imported(known.run.id, known.run.trials_recorded, earlier=True)
    return None


def _content(file: Path) -> bytes:
    with host_reads(file), file.open("rb") as opened:
        data = opened.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{file} is larger than {MOST_BYTES >> 20} MiB: it is not imported")
    if not looks_like_bench(data):
        raise ConfigError(
            f"labctl cannot import {file}",
            hint=(
                "it takes files of `labctl bundle`, and output of `llama-bench -o"
                " json`, `-o jsonl` and `-o sql`"
            ),
        )
    return data


def _made(aside: Path, file: Path, data: bytes, sha256: str, found: BenchFile) -> Imported:
    """Make the run directory under a temporary name, and rename it when it is complete."""
    began = min(test.test_time for test in found.tests).astimezone(UTC)
    name = f"import-{_plain(file.stem)}"
    run_id = f"{began:%Y%m%dT%H%M%SZ}-{name}-{secrets.token_hex(3)}"
    origin = Origin(kind=KIND, file=file.name, sha256=sha256, imported=datetime.now(UTC))
    models = _models(found.tests)
    trials = list(_trials(found, models, origin))
    variants = tuple(dict.fromkeys(trial.variant for trial in trials))
    record = RunRecord(
        id=run_id,
        recipe=name,
        recipe_resolved={"name": name, "engine": {"name": "llama_cpp", "task": "bench"}},
        board="",
        target="",
        facts=BoardFacts(execution=Execution.UNKNOWN, machine="", kernel="", boot_id=""),
        artifacts=(),
        models=tuple(models.values()),
        variants=variants,
        trials_planned=len(trials),
        labctl_version="",
        host="",
        started=began,
        epoch=0,
    )
    directory = RunDirectory(aside / run_id)
    directory.begin(is_own=False)
    directory.mark_imported(origin)
    write_atomic(directory.path / f"imported.{found.form}", data)
    _write_trials(directory, trials, found.rows)
    ended = max(test.test_time for test in found.tests).astimezone(UTC)
    directory.finish(RunEnd(state="finished", finished=ended))
    directory.start(record, PlanRecord(trials=(), max_seconds=0))
    with host_writes(aside.parent):
        directory.path.rename(aside.parent / run_id)
        sync_directory(aside.parent)
    return Imported(run_id, len(trials))


def _write_trials(
    directory: RunDirectory, trials: Sequence[TrialRecord], rows: Sequence[Row]
) -> None:
    """Write all trials as :meth:`RunDirectory.add` does, but sync to disk only once.

    The directory is not yet visible, and a sync for each of thousands of files would take long.
    """
    lines = []
    with host_writes(directory.path):
        for trial, row in zip(trials, rows, strict=True):
            folder = directory.trial_path(trial.number, trial.slug)
            folder.mkdir(parents=True)
            (folder / RECORD).write_text(trial.model_dump_json(indent=2) + "\n", encoding="utf-8")
            (folder / "stdout").write_text(json.dumps(row) + "\n", encoding="utf-8")
            lines.append(trial.model_dump_json() + "\n")
        (directory.path / LINES).write_text("".join(lines), encoding="utf-8")
        os.sync()


def _models(tests: tuple[BenchLine, ...]) -> dict[tuple[object, ...], ModelIdentity]:
    """Return the models by their distinguishing fields. The hash of the file is not known."""
    models: dict[tuple[object, ...], ModelIdentity] = {}
    taken: set[str] = set()
    for test in tests:
        identity = _model_identity(test)
        if identity in models:
            continue
        file = PurePosixPath(test.model_filename.replace("\\", "/")).name or test.model_filename
        key = next(_candidates(_plain(PurePosixPath(file).stem), taken))
        taken.add(key)
        models[identity] = ModelIdentity(
            key=key,
            file=file,
            sha256="",
            size_bytes=None,
            name=test.model_type,
            parameters=test.model_n_params,
            tensor_bytes=test.model_size,
            quantization=_quantization(test.model_type),
        )
    return models


def _model_identity(test: BenchLine) -> tuple[object, ...]:
    return (test.model_filename, test.model_type, test.model_size, test.model_n_params)


def _quantization(model_type: str | None) -> str | None:
    """Return the quantization in a description, by its name in GGUF: ``llama 8B Q4_K - Medium``.

    Source: ``llama_model_ftype_name`` in llama.cpp's ``src/llama-model-loader.cpp``.
    """
    found = _FILE_TYPE.search(model_type or "")
    if found is None:
        return None
    name = found[1] + _VARIANTS.get(found[2] or "", "")
    return _OTHER_NAMES.get(name, name)


def _trials(
    found: BenchFile, models: Mapping[tuple[object, ...], ModelIdentity], origin: Origin
) -> Iterator[TrialRecord]:
    """Yield a trial for each test; tests with the same settings are repeats of one variant."""
    variants: dict[str, str] = {}
    repeats: dict[str, int] = {}
    tests = zip(found.tests, found.rows, names_of(found.tests), strict=True)
    for number, (test, row, name) in enumerate(tests, 1):
        model = models[_model_identity(test)]
        settings = {k: v for k, v in row.items() if k not in _NO_SETTING and _is_scalar(v)}
        known = {name: settings.pop(k) for k, name in _PARAMETERS.items() if k in settings}
        parameters = settings | known
        like = {**parameters, **_machine(test), "model_type": test.model_type, "test": name}
        same = json.dumps({**like, "key": model.key}, sort_keys=True)
        if same not in variants:
            slug = f"{model.key}-{_plain(name)}"
            variants[same] = next(_candidates(slug, set(variants.values())))
        variant = variants[same]
        repeats[variant] = repeats.get(variant, 0) + 1
        moment = test.test_time.astimezone(UTC)
        yield TrialRecord(
            number=number,
            slug=f"{variant}-r{repeats[variant]}",
            variant=variant,
            repeat=repeats[variant],
            model=model,
            parameters=parameters,
            workload=Workload(
                threads=test.n_threads,
                tokens=test.n_gen,
                batch=test.n_ubatch,
                prompt_tokens=test.n_prompt,
            ),
            board="",
            target="",
            execution=Execution.UNKNOWN,
            comparability={
                **{name: value for name, value in like.items() if value is not None},
                "model_filename": test.model_filename,
                "imported": origin.sha256,
            },
            state=TrialState.OK,
            started=moment,
            finished=moment,
            timing=_timing(test, name, found.form),
        )


def _machine(test: BenchLine) -> dict[str, JsonValue]:
    return {
        "build_commit": test.build_commit,
        "cpu_info": test.cpu_info,
        "gpu_info": test.gpu_info,
        "backends": test.backends,
    }


def _timing(test: BenchLine, name: str, form: str) -> TimingRecord:
    """Return medians if there are samples; else llama-bench's means, marked as means."""
    number = "" if test.build_number is None else f" ({test.build_number})"
    tests: tuple[BenchTest, ...] = ()
    rate = test.avg_ts
    taken_ns = test.avg_ns
    if test.samples_ns:
        one = BenchTest.of(
            prompt_tokens=test.n_prompt,
            generated_tokens=test.n_gen,
            depth=test.n_depth,
            samples_ns=test.samples_ns,
        )
        tests, rate, taken_ns = (one,), one.tokens_per_second, one.p50_ns
    only_prompt, only_tokens = test.n_gen == 0, test.n_prompt == 0
    mean = Measure(
        name=f"{name} mean",
        unit="tokens/s",
        values=(test.avg_ts,),
        value=test.avg_ts,
    )
    return TimingRecord(
        perf_format=f"llama-bench {form}",
        program_version=f"{test.build_commit}{number}",
        prompt_tokens=test.n_prompt if only_prompt else None,
        prompt_eval_ns=taken_ns if only_prompt else None,
        eval_runs=test.n_gen if only_tokens else None,
        eval_ns=taken_ns if only_tokens else None,
        mean_ns=round(taken_ns / test.n_gen) if only_tokens else None,
        tokens_per_second=rate if only_tokens else None,
        generated_tokens=test.n_gen * len(test.samples_ns) or None,
        stop_reason="limit",
        tests=tests,
        measures=() if tests else (mean,),
    )


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


def _plain(text: str) -> str:
    """Return a text in a form that may be part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:_LONGEST].strip("-.") or "unnamed"


def _candidates(text: str, taken: set[str]) -> Iterator[str]:
    if text not in taken:
        yield text
    number = 2
    while f"{text}-{number}" in taken:
        number += 1
    yield f"{text}-{number}"
