"""Results of a night: exit status, cases for CI servers, and the step of the last good build."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from labctl.compare.words import percent
from labctl.config.types import format_duration
from labctl.errors import Blame, ExitStatus, LabctlError
from labctl.farm.nightly.budget import LOOKS
from labctl.farm.nightly.executor import GOOD, HEAD
from labctl.farm.nightly.hosts import NightHost
from labctl.farm.nightly.night import Night
from labctl.records import Execution
from labctl.records.night import (
    CommitSearch,
    NightFinding,
    NightRecord,
    NightResult,
    NightRow,
    NightVerdict,
)
from labctl.report.ci import Case, Outcome, Suite

#: Verdicts that blame the source.
BLAMED = (NightVerdict.SLOWER, NightVerdict.FAILS, NightVerdict.DOES_NOT_BUILD)
#: Verdicts without a result.
OPEN = (NightVerdict.SUSPECTED, NightVerdict.NOT_JUDGED, NightVerdict.NOT_MONITORED)
#: Verdicts of rows that are as fast as the last good.
SOUND = (NightVerdict.GOOD, NightVerdict.SAME)


def result_of(night: Night, searches: Sequence[CommitSearch], *, strict: bool) -> NightResult:
    """Return the result of a night that is at its end."""
    findings = night.findings()
    builds = dict.fromkeys(row.build for row in night.record.rows)
    return NightResult(
        id=night.record.id,
        plan=night.record.plan,
        started=night.record.started,
        finished=datetime.fromtimestamp(night.executor.now(), UTC),
        exit_status=exit_status(findings, strict=strict),
        findings=findings,
        searches=tuple(searches),
        builds={
            name: {
                side: built.source
                for side, built in night.state.sides(name).items()
                if side in (GOOD, HEAD)
            }
            for name in builds
        },
    )


def exit_status(findings: Sequence[NightFinding], *, strict: bool = False) -> int:
    """Return the exit status of a night.

    1: the source is to blame for something; 3: host, links or boards prevented a verdict on a row,
        or no row was monitored; 2: the plan or the lab prevented one. With ``strict``, rows without
        a verdict give 1.
    """
    verdicts = {one.verdict for one in findings}
    if verdicts & set(BLAMED):
        return ExitStatus.JOB
    unmeasured = [one for one in findings if one.verdict is NightVerdict.NOT_MEASURED]
    if any(one.blame is not Blame.CONFIG for one in unmeasured):
        return ExitStatus.INFRA
    if unmeasured:
        return ExitStatus.CONFIG
    if strict and verdicts & set(OPEN):
        return ExitStatus.JOB
    return ExitStatus.OK if verdicts & set(SOUND) else ExitStatus.INFRA


def suite_of(result: NightResult, *, strict: bool = False) -> Suite:
    """Return a case for each variant of each row: green only where a slowdown is excluded."""
    cases = tuple(_case(one, result, strict=strict) for one in result.findings)
    return Suite(f"night {result.plan}", cases, started=result.started)


def _case(one: NightFinding, result: NightResult, *, strict: bool) -> Case:
    build, _, rest = one.row.partition("/")
    recipe, _, board = rest.rpartition("@")
    group = f"{build}.{recipe}.{board.replace('.', '_')}.{one.variant}"
    outcome = {
        **dict.fromkeys(SOUND, Outcome.PASSED),
        NightVerdict.NOT_MEASURED: Outcome.ERROR,
        **dict.fromkeys(BLAMED, Outcome.FAILED),
        **dict.fromkeys(OPEN, Outcome.FAILED if strict else Outcome.SKIPPED),
    }[one.verdict]
    figures = {} if one.ratio is None else {"head_over_last_good": one.ratio}
    searched = [s.reason for s in result.searches if s.row == one.row]
    return Case(
        recipe,
        group,
        "nightly",
        outcome,
        str(one.verdict),
        sentence(one),
        "\n".join(searched),
        figures=figures,
        labels={"board": one.board},
    )


def sentence(one: NightFinding) -> str:
    """Return one sentence about a variant of a row."""
    kind = "" if one.execution in (None, Execution.BOARD) else f"{str(one.execution).upper()}: "
    blame = f" (blame: {one.blame})" if one.blame else ""
    return f"{kind}{one.reason}{blame}"


def lines_of(result: NightResult) -> Iterator[str]:
    """Yield the lines of a result for people; bad results first."""
    for name, sides in result.builds.items():
        known = ", ".join(f"{side} {source[:12]}" for side, source in sides.items())
        yield f"{name}: {known or 'nothing was built'}"
    order = [*list(NightVerdict)[1:], NightVerdict.GOOD]
    for verdict in order:
        for one in result.findings:
            if one.verdict is verdict:
                place = f" on {one.board}" if not one.row.endswith(f"@{one.board}") else ""
                yield f"{verdict.upper():<14} {one.row} {one.variant}{place}: {sentence(one)}"
    for search in result.searches:
        yield f"{search.build}: {search.reason}"
    unknown = sum(one.verdict in OPEN for one in result.findings)
    if unknown:
        yield f"{unknown} of {len(result.findings)} have no verdict tonight: they do not pass"


def plan_lines(record: NightRecord) -> Iterator[str]:
    """Yield the rows of a plan, with the slowdown that each can find in its time."""
    for row in sorted(record.rows, key=lambda one: (one.board, -one.value, one.name)):
        if row.unmonitored:
            yield f"{row.name}: NOT MONITORED, {row.unmonitored}"
            continue
        known = "time unknown" if not row.seconds else f"about {_minutes(row)} to screen"
        found = "MDE unknown: no history" if row.mde is None else f"MDE {percent(row.mde)}"
        yield (
            f"{row.name}: {row.screen} pairs to screen; {row.look} pairs for each of up to"
            f" {LOOKS} looks of a confirmation; {known}, {found}"
        )


def source_lines(found: Sequence[tuple[str, str, str | LabctlError]]) -> Iterator[str]:
    """Yield the source of each side of each build."""
    for build, side, what in found:
        word = {GOOD: "last good"}.get(side, side)
        problem = f"CANNOT BE BUILT: {what.message}" if isinstance(what, LabctlError) else what
        yield f"{build}, {word}: {problem}"


def plan_document(
    record: NightRecord,
    found: Sequence[tuple[str, str, str | LabctlError]],
    hosts: Mapping[str, NightHost],
) -> dict[str, Any]:
    """Return a plan as JSON, with what each side of each build would be built from, and hosts."""
    sources = [
        {"build": build, "side": side, "found": None, "problem": what.message}
        if isinstance(what, LabctlError)
        else {"build": build, "side": side, "found": what, "problem": None}
        for build, side, what in found
    ]
    return {
        **record.model_dump(mode="json"),
        "sources": sources,
        "hosts": {name: asdict(one) for name, one in hosts.items()},
    }


def _minutes(row: NightRow) -> str:
    return format_duration(round(2 * row.seconds * row.screen))
