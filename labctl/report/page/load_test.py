"""A report on one load test: loads, knee, and limits of the figures."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from labctl.evaluation.serving.directory import LoadTestDirectory
from labctl.evaluation.serving.results import LoadTestResults, notes, results_of
from labctl.records.board import Execution
from labctl.records.run import RunEnd
from labctl.report.facts import load_test_facts
from labctl.report.figures.loads import load_figures
from labctl.report.load_tables import load_name, load_tables
from labctl.report.page.content import Report, RunSection, bounded
from labctl.report.page.language import Language
from labctl.report.page.load_answers import load_answers
from labctl.report.page.sections import files_table, gate_remarks
from labctl.report.remarks import Remark
from labctl.report.serving import headline
from labctl.report.table import Table
from labctl.runs.record.directory import RunDirectory


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
    figures, missing = load_figures(one.results, words)
    loads, *details = load_tables(one.results, words)
    report = Report(
        title=words("{recipe}: load test", recipe=record.recipe),
        about={
            words("Run"): record.id,
            words("Requests"): headline(one.results),
            words("Server"): record.endpoint.server or "–",
            words("Measured"): f"{record.started:%Y-%m-%d} (UTC)",
        },
        marks=list(_marks(one, words)),
        answers=list(load_answers(one.results, words)),
        tables=[loads],
        figures=figures,
        missing=missing,
        runs=[_section(one, details, words)],
        damaged=(),
        method=_method(words),
    )
    return bounded(report)


def _marks(one: MeasuredLoadTest, words: Language) -> Iterator[str]:
    """Yield what went wrong, and what the figures do not show."""
    endpoint = one.results.record.endpoint
    if endpoint.execution is Execution.EMULATED:
        yield words("EMULATED ({name}): does not show the speed of a board.", name=endpoint.name)
    stages = one.results.stages
    failed: Counter[str] = Counter()
    for stage in stages:
        failed.update(dict(stage.failures))
    if failed:
        (reason, _), *others = failed.most_common()
        yield words(
            "{failed} of {count} requests FAILED: {reason}",
            failed=failed.total(),
            count=sum(len(stage.requests) for stage in stages),
            reason=reason + (" …" if others else ""),
        )
    if late := [load_name(stage.stage) for stage in stages if stage.is_client_late]:
        yield words(
            "CLIENT LATE at {loads}: this computer, not the server, limited these figures.",
            loads=words.listed(late),
        )
    if missed := [gate for gate in (one.end.gates if one.end else ()) if gate.passed is False]:
        yield words("Gate MISSED: ") + words.clauses(gate.sentence for gate in missed)


def _section(one: MeasuredLoadTest, details: Sequence[Table], words: Language) -> RunSection:
    record = one.results.record
    return RunSection(
        id=record.id,
        heading=words("Run {id}", id=record.id),
        remarks=list(_remarks(one, words)),
        tables=details,
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
            " sending and the growth of the latency are behind by 5% of the requests at most (more"
            " with Poisson arrivals). Offered rates are those of the requests sent."
        ),
    ]
