"""A report on one load test: loads, knee, and limits of the figures."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from labctl.evaluation.serving.directory import LoadTestDirectory
from labctl.evaluation.serving.results import LoadTestResults, notes, results_of
from labctl.evaluation.serving.sweep import Knee
from labctl.records.board import Execution
from labctl.records.run import RunEnd
from labctl.report.facts import load_test_facts
from labctl.report.load_tables import load_name, load_tables
from labctl.report.page.content import Report, RunSection, bounded
from labctl.report.page.language import Language
from labctl.report.page.sections import files_table, gate_remarks
from labctl.report.remarks import Remark
from labctl.report.serving import headline
from labctl.runs.record.directory import RunDirectory
from labctl.units import digits


@dataclass(frozen=True)
class MeasuredLoadTest:
    """One load test with the data of its directory. ``end``: None if it has not ended."""

    path: Path
    results: LoadTestResults
    end: RunEnd | None


def measured_load_test(run: RunDirectory) -> MeasuredLoadTest:
    """Read a load test. Raises ConfigError."""
    directory = LoadTestDirectory(run.path)
    return MeasuredLoadTest(run.path, results_of(directory), directory.end())


def load_test_report(one: MeasuredLoadTest, words: Language) -> Report:
    """Return the report on a load test."""
    record = one.results.record
    report = Report(
        title=words("{recipe}: load test", recipe=record.recipe),
        about={
            words("Run"): record.id,
            words("Requests"): headline(one.results),
            words("Server"): record.endpoint.server or "–",
            words("Measured"): f"{record.started:%Y-%m-%d} (UTC)",
        },
        marks=list(_marks(one, words)),
        answers=list(_answers(one.results, words)),
        tables=load_tables(one.results, words),
        figures=(),
        missing=(),
        runs=[_section(one, words)],
        damaged=(),
        method=_method(words),
    )
    return bounded(report)


def _marks(one: MeasuredLoadTest, words: Language) -> Iterator[str]:
    endpoint = one.results.record.endpoint
    if endpoint.execution is Execution.EMULATED:
        yield words("EMULATED ({name}): does not show the speed of a board.", name=endpoint.name)


def _answers(results: LoadTestResults, words: Language) -> Iterator[str]:
    """Yield the highest rate of answers, and the knee or the reason for its absence."""
    answered = [
        (one.metrics.requests_per_second, one)
        for one in results.stages
        if one.metrics and one.metrics.completed
    ]
    if not answered:
        yield words("No measured request was answered.")
        return
    rate, best = max(answered, key=lambda pair: pair[0])
    yield words(
        "Most answers per second: {rate} ({load}).", rate=digits(rate), load=load_name(best.stage)
    )
    if results.knee is not None:
        yield _knee(results.knee, words)
    elif any(one.stage.rate is not None for one in results.stages):
        yield words(
            "The highest rate that the server follows is not known: fewer than two loads have a"
            " verdict."
        )


def _knee(found: Knee, words: Language) -> str:
    beyond = "" if found.beyond is None else digits(found.beyond)
    if found.rate is None:
        return words(
            "The server followed no rate; the lowest offered was {beyond} requests/s.",
            beyond=beyond,
        )
    rate = digits(found.rate)
    if found.beyond is None:
        return words(
            "The server follows {rate} requests/s, the highest rate tried: it is not saturated.",
            rate=rate,
        )
    return words(
        "The server follows {rate} requests/s, and does not follow {beyond}.",
        rate=rate,
        beyond=beyond,
    )


def _section(one: MeasuredLoadTest, words: Language) -> RunSection:
    record = one.results.record
    return RunSection(
        id=record.id,
        heading=words("Run {id}", id=record.id),
        remarks=list(_remarks(one, words)),
        tables=(),
        facts=list(load_test_facts(record)),
        commands=[
            shlex.join(("labctl", "run", "recipe.yaml")),
            shlex.join(("labctl", "report", record.id, "-o", "report.html")),
        ],
        recipe=yaml.safe_dump(record.recipe_resolved, sort_keys=False, allow_unicode=True),
        files=files_table(record.id, one.path, words),
    )


def _remarks(one: MeasuredLoadTest, words: Language) -> Iterator[Remark]:
    yield from gate_remarks(one.end, words)
    for note in notes(one.results):
        yield Remark(note)


def _method(words: Language) -> list[str]:
    return [
        words(
            "TTFT: to the first piece with a token; TPOT: per token after the first piece, in the"
            " mean of an answer; latency: to the end of the answer. Times of streams begin at the"
            " sending, those of rates at the intended sending."
        ),
        words(
            "A rate is followed if the ends of the answers, the requests outstanding at the last"
            " sending and the growth of the latency are behind by 5 % of the requests at most (more"
            " with Poisson arrivals). Offered rates are those of the requests sent."
        ),
    ]
