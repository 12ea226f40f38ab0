"""Find evaluations and timing runs of a lab by the words of a command line."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from labctl.compare.equal_latency.timing import has_token_time
from labctl.errors import ConfigError
from labctl.evaluation.accuracy import AccuracyTable
from labctl.evaluation.directory import GRADES, EvaluationDirectory
from labctl.evaluation.ending import without_checks
from labctl.evaluation.results import table_of
from labctl.records.evaluation import EvaluationRecord
from labctl.records.run import RunRecord
from labctl.records.trial import TrialRecord
from labctl.runs.record.directory import RunDirectory, run_directories
from labctl.runs.record.lookup import find_run
from labctl.suggestions import unknown

#: ``RUN:VARIANT``: one variant of a timing run.
_VARIANT = re.compile(r"(?P<run>.+):(?P<variant>[^:]+)")


@dataclass(frozen=True)
class Evaluation:
    """A graded evaluation. ``prompt_tokens`` is by variant, question and sample."""

    id: str
    record: EvaluationRecord
    table: AccuracyTable
    prompt_tokens: dict[tuple[str, str, int], int]
    is_ended: bool


@dataclass(frozen=True)
class TimingRun:
    """A timing run, or only its ``variant`` if one was named."""

    id: str
    record: RunRecord
    trials: tuple[TrialRecord, ...]
    variant: str | None = None
    is_ended: bool = True


@dataclass(frozen=True)
class Sources:
    """All sources that were named or found."""

    evaluations: tuple[Evaluation, ...]
    timings: tuple[TimingRun, ...]


def find_sources(runs: Path, words: Sequence[str]) -> Sources:
    """Return the runs with these names, each an evaluation or a timing run (or its variant).

    Default evaluation: the newest graded one. Default timing runs: for each model the newest run
    that measured it. Raises ConfigError.
    """
    evaluations: list[Evaluation] = []
    timings: list[TimingRun] = []
    for word in dict.fromkeys(words):
        directory, variant = _named(runs, word)
        if not directory.is_evaluation:
            timings.append(_timing(directory, variant))
        elif variant is not None:
            raise ConfigError(
                f"{word}: an evaluation is always matched with all its variants",
                hint="name a variant of a timing run, or the evaluation alone",
            )
        else:
            evaluations.append(_evaluation(directory))
    evaluations = evaluations or [_newest_evaluation(runs)]
    if not timings:
        timings = _newest_timings(runs, evaluations)
    return Sources(tuple(evaluations), tuple(timings))


def _named(runs: Path, word: str) -> tuple[RunDirectory, str | None]:
    try:
        return find_run(runs, word), None
    except ConfigError:
        named = _VARIANT.fullmatch(word)
        if named is None:
            raise
        return find_run(runs, named["run"]), named["variant"]


def _timing(directory: RunDirectory, variant: str | None = None) -> TimingRun:
    record, trials = directory.run(), directory.trials()
    known = list(dict.fromkeys(trial.variant for trial in trials))
    name = directory.path.resolve().name
    if variant is not None and variant not in known:
        raise ConfigError(unknown("variant", variant, known, where=f" in {name}"))
    chosen = tuple(trial for trial in trials if variant in (None, trial.variant))
    return TimingRun(name, record, chosen, variant, directory.end() is not None)


def _evaluation(run: RunDirectory) -> Evaluation:
    directory = EvaluationDirectory(run)
    tokens = {
        (one.variant, one.question, one.sample): one.prompt_tokens
        for one in without_checks(directory)
        if one.prompt_tokens is not None
    }
    ended = directory.end() is not None
    return Evaluation(directory.id, directory.record(), table_of(directory), tokens, ended)


def _newest_evaluation(runs: Path) -> Evaluation:
    for directory in reversed(run_directories(runs)):
        if directory.is_evaluation and (directory.path / GRADES).is_file():
            return _evaluation(directory)
    raise ConfigError(
        f"no graded evaluation in {runs}",
        hint="make one: `labctl run RECIPE`; published figures alone: `labctl latency-match"
        " --references all`",
    )


def _newest_timings(runs: Path, evaluations: Iterable[Evaluation]) -> list[TimingRun]:
    """Return the newest run with good trials for each model, by the model's hash."""
    models = [model for one in evaluations for model in one.record.models]
    wanted = {model.sha256 for model in models if model.sha256}
    if not wanted:
        raise ConfigError(
            "the evaluation does not record the files of its models (no SHA-256)",
            hint="name a timing run, and add --assume-same-model",
        )
    found: dict[str, TimingRun] = {}
    for directory in reversed(run_directories(runs)):
        if not (missing := wanted - found.keys()):
            break
        if directory.is_evaluation or directory.is_load_test:
            continue
        if any(model.sha256 in missing for model in directory.run().models):
            run = _timing(directory)
            found.update(dict.fromkeys(missing & _timed_models(run), run))
    if unseen := dict.fromkeys(one.key for one in models if one.sha256 in wanted - found.keys()):
        raise ConfigError(
            f"no run in {runs} measured the time of {', '.join(unseen)} (by its SHA-256)",
            hint="measure it: `labctl run RECIPE`; or name a timing run of another file with"
            " --assume-same-model",
        )
    return [
        replace(run, trials=tuple(one for one in run.trials if one.model.sha256 == sha256))
        for sha256, run in found.items()
    ]


def _timed_models(run: TimingRun) -> set[str]:
    good = (one for one in run.trials if one.timing and one.repeat > 0)
    return {one.model.sha256 for one in good if one.timing and has_token_time(one.timing)}
