"""Facts of a run or a trial, each with its origin (a file of the run directory) and its source."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import BaseModel, JsonValue

from labctl.errors import ConfigError
from labctl.figures.trials import FIGURES
from labctl.records.evaluation import EvaluationRecord
from labctl.records.run import Annotations, Origin, RunEnd, RunRecord
from labctl.records.serving import ServingRecord
from labctl.records.trial import TrialRecord
from labctl.runs.record.directory import SERVING, RunDirectory
from labctl.runs.record.repository import RunRepository
from labctl.units import duration, size

#: Part of a trial's record -> the raw file beside the record from which the part was read.
_RAW = {"job": "status.json", "evidence": "telemetry", "energy": "power.jsonl"}
#: Figures of ``timing`` from the agent's clock; all others come from the program's output.
_BY_STAMPS = frozenset(
    (
        *("ttft_ns", "token_ns", "p50_ns", "p90_ns", "p99_ns", "mean_ns", "tokens_per_second"),
        *("arrivals", "merged_chunks", "unseen_first", "unseen_last", "span", "clocks"),
    )
)
_COMPUTED = {
    "checks": "computed from the raw files",
    "predicted": "computed before the run",
    "measured_to_predicted": "computed",
    "bound": "computed from timing, telemetry and the rates of the board",
}
_SOURCE = {
    "model": "the model file",
    "parameters": "the recipe and the defaults of the engine",
    "workload": "meaning of the parameters",
    "conditions": "read on the board before the trial",
    "comparability": "computed from all of these",
    "board": "devices.yaml",
}
_RUN_SOURCE = {
    "recipe_resolved": "the recipe, with --set",
    "board": "devices.yaml",
    "facts": "read on the board",
    "artifacts": "manifests of the artifacts",
    "models": "the model files",
    "lab_revision": "git",
}
#: Fields that identify an item of a list; the first field present counts.
_LABELS = ("product", "key", "name")
#: Of longer lists of numbers, only the length is shown.
_MOST = 8


@dataclass(frozen=True)
class Fact:
    """One value. Durations are in ns and sizes in bytes if the name says so."""

    name: str
    value: JsonValue
    origin: str

    @property
    def text(self) -> str:
        """Return the value for people."""
        value = self.value
        if isinstance(value, bool) or value is None:
            return {True: "yes", False: "no", None: "-"}[value]
        if isinstance(value, int | float):
            if self.name.endswith("_ns"):
                return duration(value)
            if self.name.endswith("_bytes"):
                return size(value)
            return str(value) if isinstance(value, int) else f"{value:.6g}"
        return value if isinstance(value, str) else str(value)


def facts_document(directory: RunDirectory, facts: Iterable[Fact]) -> dict[str, object]:
    """Return facts of a run or a trial as JSON."""
    return {"directory": str(directory.path), "facts": [asdict(fact) for fact in facts]}


def record_document(
    directory: RunDirectory, kind: str, record: Mapping[str, object]
) -> dict[str, object]:
    """Return a record as JSON, by the name of its file, ``kind``."""
    return {"directory": str(directory.path), kind: record}


def run_facts(directory: RunDirectory) -> list[Fact]:
    """Return the facts of a run. Raises ConfigError if its files cannot be read."""
    origin = directory.origin()
    made = record_facts(directory.run(), directory.end(), directory.annotations(), origin)
    facts = list(made)
    row = RunRepository(directory.path.resolve().parent).get(directory.path.resolve().name)
    if row is not None:
        counted = "computed from trials/*/record.json"
        facts += [Fact("verdict", row.run.verdict, f"{counted} and end.json")]
        for name in ("trials_recorded", "trials_ok", "trials_failed", "trials_skipped"):
            facts.append(Fact(name, getattr(row.run, name), counted))
        estimates = f"{counted}: variants' estimates"
        for name in (end for one in FIGURES if one.listed for end in one.ends):
            facts.append(Fact(name, row.run.figures[name], estimates))
    files = [path for path in directory.path.rglob("*") if path.is_file()]
    total = sum(path.stat().st_size for path in files)
    return [*facts, Fact("size_bytes", total, f"{len(files)} files of the run directory")]


def record_facts(
    run: RunRecord, end: RunEnd | None, annotations: Annotations, origin: Origin | None = None
) -> Iterator[Fact]:
    """Yield the facts in a run's own files, without facts of its trials."""
    yield from _of_run(run, from_results=_is_results(origin))
    if origin is not None:
        for name, value in origin.model_dump(mode="json", exclude={"schema_version"}).items():
            yield from _flat(name, value, "origin.json (the import)")
    yield from _of_end(end)
    yield Fact("tags", list(annotations.tags), "annotations.json")
    yield Fact("note", annotations.note, "annotations.json")


def evaluation_facts(record: EvaluationRecord) -> Iterator[Fact]:
    """Yield the facts in an evaluation's own file."""
    for name, value in record.model_dump(mode="json").items():
        source = _RUN_SOURCE.get(name)
        yield from _flat(
            name, value, f"evaluation.json ({source})" if source else "evaluation.json"
        )


def load_test_facts(record: ServingRecord) -> Iterator[Fact]:
    """Yield the facts in a load test's own file."""
    for name, value in record.model_dump(mode="json").items():
        yield from _flat(name, value, SERVING)


def trial_facts(directory: RunDirectory, number: int) -> list[Fact]:
    """Return the facts of a trial. Raises ConfigError for an unknown or damaged trial.

    If a fact was read from a raw file, its origin names the file, and says if the file is missing.
    """
    trials = {trial.number: trial for trial in directory.trials()}
    if number not in trials:
        known = f"{min(trials)} to {max(trials)}" if trials else "none"
        raise ConfigError(
            f"run {directory.path.name} has no finished trial {number}", hint=f"it has {known}"
        )
    trial = trials[number]
    folder = directory.trial_path(trial.number, trial.slug)
    shown = folder.relative_to(directory.path)
    if _is_results(directory.origin()):
        where = f"{shown}/record.json (the imported file)"
        return [
            fact
            for name in type(trial).model_fields
            for fact in _flat(name, _plain(getattr(trial, name)), where)
        ]
    return list(_of_trial(trial, folder, shown))


def _is_results(origin: Origin | None) -> bool:
    """Return True if an imported file is the source of all records; a bundle has its own."""
    return origin is not None and origin.kind != "bundle"


def _of_run(run: RunRecord, *, from_results: bool) -> Iterator[Fact]:
    for name, value in run.model_dump(mode="json").items():
        source = "the imported file" if from_results else _RUN_SOURCE.get(name)
        yield from _flat(name, value, f"run.json ({source})" if source else "run.json")


def _of_end(end: RunEnd | None) -> Iterator[Fact]:
    if end is None:
        yield Fact("state", "not ended", "no end.json")
        return
    for name, value in end.model_dump(mode="json", exclude={"schema_version", "resumed"}).items():
        yield from _flat(name, value, "end.json")


def _of_trial(trial: TrialRecord, folder: Path, shown: Path) -> Iterator[Fact]:
    record = f"{shown}/record.json"
    for name in type(trial).model_fields:
        part = getattr(trial, name)
        value = _plain(part)
        if name == "timing" and trial.timing is not None:
            stamped = trial.timing.token_clock in (None, "agent", "both")
            for key, one in trial.timing.model_dump(mode="json").items():
                raw = ("timeline",) if stamped and key in _BY_STAMPS else ("stdout", "stderr")
                yield from _flat(f"timing.{key}", one, f"{record} ({_raw(folder, raw)})")
        elif name in _RAW and part is not None:
            yield from _flat(name, value, f"{record} ({_raw(folder, (_RAW[name],))})")
        else:
            source = _SOURCE.get(name) or _COMPUTED.get(name)
            yield from _flat(name, value, f"{record} ({source})" if source else record)


def _raw(folder: Path, names: tuple[str, ...]) -> str:
    there = [name for name in names if (folder / name).is_file()]
    return f"from {', '.join(there)}" if there else f"{', '.join(names)}: missing here"


def _plain(value: object) -> JsonValue:
    if isinstance(value, BaseModel):
        dumped: JsonValue = value.model_dump(mode="json")
        return dumped
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, dict | int | float | str | None) else str(value)


def _flat(name: str, value: JsonValue, origin: str) -> Iterator[Fact]:
    """Yield a fact for each value in a mapping or a short list, except absent values."""
    if value is None or value in ({}, [], ()):
        return
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _flat(f"{name}.{key}", one, origin)
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for number, one in enumerate(value, 1):
            keys = one if isinstance(one, dict) else {}
            label = next((key for key in _LABELS if isinstance(keys.get(key), str)), None)
            rest = {key: inner for key, inner in keys.items() if key != label}
            shown = keys[label] if label else number
            yield from _flat(f"{name}.{shown}", rest if keys else one, origin)
    elif isinstance(value, list) and all(isinstance(one, str) for one in value):
        yield Fact(name, shlex.join(map(str, value)), origin)
    elif isinstance(value, list) and len(value) > _MOST:
        yield Fact(name, f"{len(value)} values", origin)
    elif isinstance(value, list):
        yield Fact(name, ", ".join(map(str, value)), origin)
    else:
        yield Fact(name, value, origin)
