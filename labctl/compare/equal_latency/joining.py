"""Join evaluations and timing runs: check agreement, collect differences.

The model's file, the sampling and the type of the KV cache must agree, as far as both sides report
them. The heading names values that one side does not report. Timing runs use no messages, so no
chat template; the evaluation used the file's template if labctl started its server.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from labctl.compare.equal_latency.answers import AnswerSet, answer_set, common_questions
from labctl.compare.equal_latency.conditions import (
    BOARD,
    KV_TYPE,
    Conditions,
    check_one_setup,
    conditions,
    engine_of,
    unlike,
)
from labctl.compare.equal_latency.sources import Evaluation, Sources, TimingRun
from labctl.compare.equal_latency.timing import AnswerTimes, answer_times, timing_notes
from labctl.compare.equal_latency.words import sentence
from labctl.engines.registry import declared
from labctl.errors import ConfigError
from labctl.evaluation.accuracy import Accuracy
from labctl.records.board import Execution
from labctl.records.evaluation import EndpointRecord, EvaluationRecord
from labctl.records.trial import AdapterIdentity, ModelIdentity, TrialRecord
from labctl.results.summary import good_trials
from labctl.suggestions import unknown

_DIGITS = 12
_NO_ADAPTER = "none"


@dataclass(frozen=True)
class Joined:
    """Answers and times of the same models. ``heading`` is part of every output."""

    sets: tuple[AnswerSet, ...]
    times: dict[str, AnswerTimes]
    questions: int
    grader: str
    heading: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass
class _Findings:
    differences: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    contradicted: list[str] = field(default_factory=list)


def join(sources: Sources, *, grader: str | None = None, assume: bool = False) -> Joined:
    """Join evaluations and timing runs. Raises ConfigError with a list of all differences.

    ``assume``: models are joined by name if their files differ, and nothing is refused; the heading
    lists all differences.
    """
    chosen = _grader(sources.evaluations, grader)
    findings = _Findings()
    _same_questions(sources.evaluations, findings)
    times: dict[str, AnswerTimes] = {}
    timed: dict[str, Conditions] = {}
    for evaluation in sources.evaluations:
        for model in evaluation.record.models:
            trials, runs = _trials_of(model, sources.timings, findings, assume=assume)
            if trials:
                _agree(evaluation, model, trials, findings)
                timed[model.key] = conditions(trials)
                findings.contradicted += _contradicted(model.key, trials, runs)
                try:
                    times[model.key] = answer_times(model.key, trials, runs)
                except ValueError as error:
                    raise ConfigError(
                        f"{', '.join(runs)}: {error}", hint="measure it again, or name another run"
                    ) from None
    between = unlike(timed)
    findings.differences += [between.pop(key) for key in (BOARD, KV_TYPE) if key in between]
    if findings.differences and not assume:
        raise ConfigError(
            "evaluation and timing do not belong together",
            hint="name other runs; --assume-same-model compares them anyway, and notes it",
            details="\n".join(dict.fromkeys(findings.differences)),
        )
    cells = _cells(sources.evaluations, chosen, times)
    common = common_questions([cell for _, several, _ in cells for cell in several])
    if not common:
        raise ConfigError(
            "no question has a grade of every model, prompt and limit",
            hint="finish an interrupted evaluation with `labctl resume`",
        )
    sets = [
        answer_set(several, common, one.prompt_tokens, states_budget=states)
        for one, several, states in cells
    ]
    notes = [*_evaluation_notes(sources.evaluations, len(common)), *timing_notes(sets, times)]
    unended = dict.fromkeys(one.id for one in sources.timings if not one.is_ended)
    notes += [sentence("timing run {name} has not ended", name=name) for name in unended]
    heading = _heading(sources, times, findings)
    if between:
        heading.append(
            sentence("timed under different conditions: {found}", found="; ".join(between.values()))
        )
    return Joined(tuple(sets), times, len(common), chosen, tuple(heading), tuple(notes))


def _grader(evaluations: Sequence[Evaluation], named: str | None) -> str:
    known = [g for g in evaluations[0].table.graders if _all_have(evaluations, g)]
    order = [g for g in evaluations[0].record.graders if g in known] or known
    if named is None and order:
        return order[0]
    if named is not None and named in known:
        return named
    if named is not None:
        raise ConfigError(unknown("grader", named, known, where=" of these evaluations"))
    raise ConfigError(
        "these evaluations have no grader in common", hint="`labctl grade RUN --grader NAME`"
    )


def _all_have(evaluations: Iterable[Evaluation], grader: str) -> bool:
    return all(grader in one.table.graders for one in evaluations)


def _same_questions(evaluations: Sequence[Evaluation], findings: _Findings) -> None:
    """Check what must agree between several evaluations."""
    first = evaluations[0].record
    names: dict[str, str] = {}
    for one in evaluations:
        for variant in one.record.variants:
            if variant in names:
                raise ConfigError(
                    f"{names[variant]} and {one.id} both evaluated {variant}",
                    hint="name one of them",
                )
            names[variant] = one.id
        other = one.record
        pairs = (
            ("data set", first.dataset.sha256[:_DIGITS], other.dataset.sha256[:_DIGITS]),
            ("worked examples", first.dataset.shots, other.dataset.shots),
            ("temperature", first.sampling.temperature, other.sampling.temperature),
            ("top_p", first.sampling.top_p, other.sampling.top_p),
        )
        findings.differences += [
            f"{what}: {evaluations[0].id} has {mine}, {one.id} {theirs}"
            for what, mine, theirs in pairs
            if mine != theirs
        ]


def _trials_of(
    model: ModelIdentity, timings: Sequence[TimingRun], findings: _Findings, *, assume: bool
) -> tuple[list[TrialRecord], list[str]]:
    """Return the good trials of a model with their runs."""
    good = [(run, trial) for run in timings for trial in good_trials(run.trials) if trial.timing]
    found = [(run, one) for run, one in good if model.sha256 and one.model.sha256 == model.sha256]
    found = found or _of_another_file(model, good, findings, assume=assume)
    groups: dict[tuple[str, str], list[TrialRecord]] = {}
    for run, trial in found:
        groups.setdefault((run.id, trial.variant), []).append(trial)
    if groups:
        check_one_setup(model.key, groups)
    return [trial for _, trial in found], list(dict.fromkeys(run.id for run, _ in found))


def _of_another_file(
    model: ModelIdentity,
    good: Sequence[tuple[TimingRun, TrialRecord]],
    findings: _Findings,
    *,
    assume: bool,
) -> list[tuple[TimingRun, TrialRecord]]:
    """Note that no trial has the model's file; return those of its name if these shall do."""
    named = [(run, one) for run, one in good if one.model.key == model.key]
    known = dict.fromkeys(
        f"{one.model.file} {one.model.sha256[:_DIGITS] or 'unknown'}" for _, one in (named or good)
    )
    mine = f"{model.file} {model.sha256[:_DIGITS] or 'not known'}".lstrip()
    findings.differences.append(
        f"model {model.key}: the evaluation's file is {mine}, the timing's"
        f" {', '.join(known) or 'none'}"
    )
    if assume and not named:
        raise ConfigError(
            f"no timing of a model named {model.key}",
            hint=f"the runs have: {', '.join(dict.fromkeys(t.model.key for _, t in good))}",
        )
    return named if assume else []


def _agree(
    evaluation: Evaluation,
    model: ModelIdentity,
    trials: Sequence[TrialRecord],
    findings: _Findings,
) -> None:
    """Compare sampling and KV type of both sides; compare KV type and template of the servers."""
    endpoints = [one for one in evaluation.record.endpoints if one.model == model.key]
    _check_templates(evaluation.record, model.key, endpoints, findings)
    temperatures = [evaluation.record.sampling.temperature]
    served = [_served(one) for one in endpoints]
    sides: tuple[tuple[str, Sequence[object], Sequence[object]], ...] = (
        ("temperature", temperatures, [_timed(one, "temperature") for one in trials]),
        (KV_TYPE, served, [engine_of(one).cache_type(one.parameters) for one in trials]),
    )
    adapted = [_adapters(one.adapters) for one in endpoints if one.sha256_proven]
    timed_with = [_adapters(one.model.adapters) for one in trials]
    if {*adapted, *timed_with} - {_NO_ADAPTER}:
        sides = (*sides, ("adapters", adapted, timed_with))
    for what, mine, theirs in sides:
        recorded = _texts(mine)
        timed = _texts(theirs)
        if len(recorded) > 1:
            findings.differences.append(f"{what} of {model.key}: its servers have {recorded}")
        elif not recorded or not timed:
            side = "the server" if timed else "the timing run"
            findings.unchecked.append(f"{what} ({side} does not report it)")
        elif recorded != timed:
            findings.differences.append(
                f"{what} of {model.key}: evaluated with {recorded[0]},"
                f" timed with {', '.join(timed)}"
            )


def _check_templates(
    record: EvaluationRecord, model: str, endpoints: Sequence[EndpointRecord], findings: _Findings
) -> None:
    layouts = {one.name: one.layout for one in record.prompts}
    asked = {name.partition("/")[2] for name in record.variants if name.startswith(f"{model}/")}
    if not any(layouts.get(prompt) == "chat" for prompt in asked):
        return
    recorded = _texts(one.template_sha256 for one in endpoints)
    if len(recorded) > 1:
        findings.differences.append(f"chat template of {model}: its servers have {recorded}")
    elif not all(one.sha256_proven for one in endpoints):
        findings.unchecked.append("chat template (a declared server may not use the file's)")


def _contradicted(model: str, trials: Sequence[TrialRecord], runs: Sequence[str]) -> list[str]:
    """Name a model's trials with failed checks: they count, as in every table."""
    failed = [names for one in trials if (names := [c.name for c in one.checks if c.ok is False])]
    if not failed:
        return []
    return [
        sentence(
            "CHECKS FAILED in {count} of {trials} trials of {model} ({runs}): {names}",
            count=len(failed),
            trials=len(trials),
            model=model,
            runs=", ".join(runs),
            names=", ".join(sorted({name for names in failed for name in names})),
        )
    ]


def _timed(trial: TrialRecord, key: str) -> JsonValue:
    return trial.parameters.get(key, trial.comparability.get(key))


def _adapters(found: Sequence[AdapterIdentity]) -> str:
    said = (f"{one.sha256[:_DIGITS]} x {one.scale:g}" for one in found)
    return " + ".join(said) or _NO_ADAPTER


def _served(endpoint: EndpointRecord) -> str | None:
    return declared(None).cache_type(endpoint.parameters) if endpoint.sha256_proven else None


def _texts(values: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(_text(one) for one in values if one is not None))


def _text(value: object) -> str:
    text = f"{value:g}" if isinstance(value, int | float) else str(value)
    return text[:_DIGITS] if len(text) == 64 else text


def _cells(
    evaluations: Iterable[Evaluation], grader: str, times: dict[str, AnswerTimes]
) -> list[tuple[Evaluation, list[Accuracy], bool]]:
    """Return the accuracies of each variant, and True if its prompt states the budget."""
    found = []
    for one in evaluations:
        states = {p.name: p.budget_statement is not None for p in one.record.prompts}
        for variant in one.record.variants:
            model, _, prompt = variant.partition("/")
            cells = [
                cell
                for budget in one.table.budgets
                if (cell := one.table.cell(variant, budget, grader)) is not None
            ]
            if cells and model in times:
                found.append((one, cells, states.get(prompt, False)))
    return found


def _heading(sources: Sources, times: dict[str, AnswerTimes], findings: _Findings) -> list[str]:
    lines: list[str] = []
    for measured in times.values():
        timing = measured.timing
        if timing.execution != Execution.BOARD:
            emulated = Execution.EMULATED in timing.execution
            runs = ", ".join(timing.runs)
            if emulated:
                text = "EMULATED timing, not the speed of a board: {model} ({runs})"
                lines.append(sentence(text, model=timing.model, runs=runs))
            else:
                lines.append(
                    sentence(
                        "timing on {machine}, not the speed of a board: {model} ({runs})",
                        machine=timing.execution,
                        model=timing.model,
                        runs=runs,
                    )
                )
    for one in dict.fromkeys(findings.differences):
        if one.startswith(f"{BOARD}: "):
            lines.append(sentence("DIFFERENT BOARDS: {found}", found=one))
        else:
            lines.append(sentence("ASSUMED SAME MODEL: {found}", found=one))
    declared = {
        endpoint.model
        for one in sources.evaluations
        for endpoint in one.record.endpoints
        if not endpoint.sha256_proven
    }
    if declared:
        names = ", ".join(sorted(declared))
        lines.append(sentence("model as declared, not proven: {names}", names=names))
    lines += findings.contradicted
    if findings.unchecked:
        unchecked = ", ".join(dict.fromkeys(findings.unchecked))
        lines.append(sentence("not compared: {found}", found=unchecked))
    return lines


def _evaluation_notes(evaluations: Sequence[Evaluation], common: int) -> list[str]:
    notes: list[str] = [
        sentence("evaluation {name} has not ended", name=one.id)
        for one in evaluations
        if not one.is_ended
    ]
    asked = max(len(one.record.dataset.questions) for one in evaluations)
    if common < asked:
        notes.append(
            sentence(
                "{count} of {asked} questions have a missing grade: left out",
                count=asked - common,
                asked=asked,
            )
        )
    return notes
