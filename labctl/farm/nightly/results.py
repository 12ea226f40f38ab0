"""Results of a night: its findings, its exit status, and cases for CI servers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from labctl.compare.words import percent
from labctl.config.types import format_duration
from labctl.errors import Blame, ExitStatus, LabctlError, printable
from labctl.farm.nightly.budget import LOOKS
from labctl.farm.nightly.executor import GOOD, HEAD
from labctl.farm.nightly.hosts import NightHost
from labctl.farm.nightly.night import Night
from labctl.records.board import Execution
from labctl.records.night import (
    CommitSearch,
    NightFinding,
    NightRecord,
    NightResult,
    NightRow,
    NightVerdict,
)
from labctl.records.trial import Failure
from labctl.report.ci.cases import Case, Outcome, Suite, failure_text
from labctl.units import counted, local_time

#: Verdicts on rows that are as fast as the last good.
PASSED = (NightVerdict.GOOD, NightVerdict.SAME)
#: Verdicts that blame the source.
BLAMED = (NightVerdict.SLOWER, NightVerdict.FAILS, NightVerdict.DOES_NOT_BUILD)
#: Verdicts without a result.
OPEN = (NightVerdict.SUSPECTED, NightVerdict.NOT_JUDGED, NightVerdict.NOT_MONITORED)
#: Maximum lines of a finding's details, and maximum characters per line.
_MOST_LINES, _LONGEST_LINE = 12, 200
_DIGITS = 12
#: Number of stalled things on the first line of a result; the rest is counted.
_MOST_HEADLINES = 3


def result_of(night: Night, searches: Sequence[CommitSearch], *, strict: bool) -> NightResult:
    """Return the result of a finished night."""
    findings = tuple(_with_facts(night, one) for one in night.findings())
    builds = dict.fromkeys(row.build for row in night.record.rows)
    return NightResult(
        id=night.record.id,
        plan=night.record.plan,
        started=night.record.started,
        finished=datetime.fromtimestamp(night.executor.now(), UTC),
        exit_status=exit_status(findings, strict=strict),
        findings=findings,
        searches=tuple(searches),
        builds={name: _sources(night, name) for name in builds},
    )


def _sources(night: Night, build: str) -> dict[str, str]:
    """Return the revision of each side of a build, also of a side that does not build."""
    unbuilt = {
        entry.side: entry.source
        for entry in night.state.entries
        if entry.event == "unbuilt" and entry.build == build and entry.side and entry.source
    }
    built = {side: one.source for side, one in night.state.sides(build).items()}
    found = {**unbuilt, **built}
    return {side: found[side] for side in (GOOD, HEAD) if side in found}


def _with_facts(night: Night, one: NightFinding) -> NightFinding:
    """Return a finding with the night's facts beside its measurements."""
    state = night.state.rows[one.row]
    seconds = sum(
        entry.seconds or 0.0
        for entry in night.state.entries
        if entry.event == "measured" and entry.row == one.row
    )
    facts: dict[str, object] = {
        "left": dict(state.left),
        "seconds": seconds / len(state.row.variants),
    }
    build = state.row.build
    failure: Failure | None = None
    if one.verdict is NightVerdict.DOES_NOT_BUILD:
        failure = night.state.unbuilt[build, HEAD]
        facts["reason"] = _unbuilt(one.reason, failure, _sources(night, build).get(HEAD))
    elif one.verdict is NightVerdict.FAILS:
        failure = state.fails
    elif one.verdict is NightVerdict.NOT_MEASURED:
        sides = (night.state.unbuilt.get((build, side)) for side in (GOOD, HEAD))
        given_up = state.gave_up.failure if state.gave_up else None
        failure = next((side for side in sides if side), given_up)
    if failure is not None and failure.details:
        facts["details"] = _bounded(failure.details)
    return one.model_copy(update=facts)


def _unbuilt(reason: str, failure: Failure, source: str | None) -> str:
    """Add the commit, and the first line of the compiler's errors, to the reason."""
    head = f" (head {source[:_DIGITS]})" if source else ""
    error = _bounded(failure.details or "").partition("\n")[0].strip()
    return f"{reason}{head}{f': {error}' if error else ''}"


def _bounded(text: str) -> str:
    """Return the first lines of a text, without control characters of a terminal."""
    lines = [line[:_LONGEST_LINE] for line in text.strip().splitlines() if line.strip()]
    return printable("\n".join(lines[:_MOST_LINES]))


def exit_status(findings: Sequence[NightFinding], *, strict: bool = False) -> int:
    """Return the exit status of a night.

    1: the source is to blame for something; 3: host, links or boards prevented a verdict on a row,
        or no row was monitored; 2: the plan or the lab prevented a verdict. With ``strict``, rows
        without a verdict give 1.
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
    return ExitStatus.OK if verdicts & set(PASSED) else ExitStatus.INFRA


def suite_of(result: NightResult, *, strict: bool = False) -> Suite:
    """Return a case for each variant of each row: green only if a slowdown is excluded."""
    cases = tuple(_case(one, result, strict=strict) for one in result.findings)
    known = dict(build_facts(result))
    return Suite(
        suite_name(result.plan),
        cases,
        started=result.started,
        properties={"night": result.id, **known},
        verdict=headline(result),
    )


def suite_name(plan: str) -> str:
    """Return the name of the suite of a plan's nights."""
    return f"night {plan}"


def _case(one: NightFinding, result: NightResult, *, strict: bool) -> Case:
    build, _, rest = one.row.partition("/")
    recipe, _, board = rest.rpartition("@")
    group = f"{build}.{recipe}.{board.replace('.', '_')}.{one.variant}"
    outcome = {
        **dict.fromkeys(PASSED, Outcome.PASSED),
        NightVerdict.NOT_MEASURED: Outcome.ERROR,
        **dict.fromkeys(BLAMED, Outcome.FAILED),
        **dict.fromkeys(OPEN, Outcome.FAILED if strict else Outcome.SKIPPED),
    }[one.verdict]
    figures = {} if one.ratio is None else {"head_over_last_good": one.ratio}
    place = f"on board {one.board}: " if _has_moved(one) else ""
    own = (one.row, one.variant)
    found = [searched(s) for s in result.searches if (s.row, s.variant) == own]
    return Case(
        recipe,
        group,
        "nightly",
        outcome,
        str(one.verdict),
        "; ".join([f"{place}{sentence(one)}", *found]),
        one.details or "",
        one.seconds,
        figures=figures,
        labels={"row": one.row, "variant": one.variant, "board": one.board},
    )


def sentence(one: NightFinding) -> str:
    """Return one sentence about a variant of a row."""
    kind = "" if one.execution in (None, Execution.BOARD) else f"{str(one.execution).upper()}: "
    blame = f" (blame: {one.blame})" if one.blame else ""
    since = f"; since night {one.since}" if one.since else ""
    left = "".join(f"; it left {board}: {why}" for board, why in one.left.items())
    return f"{kind}{one.reason}{blame}{since}{left}"


def row_name(one: NightFinding) -> str:
    """Return the name of a variant of a row, with the board that it moved to."""
    place = f" on {one.board}" if _has_moved(one) else ""
    return f"{one.row} {one.variant}{place}"


def _has_moved(one: NightFinding) -> bool:
    return not one.row.endswith(f"@{one.board}")


def change(one: NightFinding) -> str:
    """Return ``7.9 % slower``; ``-`` without a measurement or a judgement."""
    if one.ratio is None or one.verdict is NightVerdict.NOT_JUDGED:
        return "-"
    by = percent(max(one.ratio, 1 / one.ratio) - 1)
    return f"{by} {'slower' if one.ratio >= 1 else 'faster'}"


def headline(result: NightResult) -> str:
    """Return the verdict on a night in one line."""
    return "; ".join(verdict_parts(result))


def verdict_parts(result: NightResult) -> list[str]:
    """Return the verdict on a night: the worst first, the commits, and the unknowns."""
    count = len(result.findings)
    parts = []
    for verdict in BLAMED:
        own = [one for one in result.findings if one.verdict is verdict]
        if not own:
            continue
        if verdict is NightVerdict.DOES_NOT_BUILD:
            parts.append(f"{verdict.upper()}: head of {_listed(_builds_of(own))}")
            continue
        worst = max(own, key=lambda one: one.ratio or 0.0)
        by = f" ({change(worst)})" if verdict is NightVerdict.SLOWER else ""
        more = f" and {len(own) - 1} more" if len(own) > 1 else ""
        parts.append(f"{verdict.upper()} in {len(own)} of {count}: {row_name(worst)}{by}{more}")
    parts += [_commit(result, one) for one in result.searches if one.first]
    passed = sum(one.verdict in PASSED for one in result.findings)
    unknown = [one for one in result.findings if one.verdict not in (*PASSED, *BLAMED)]
    known = [f"good: {passed} of {count}"] if passed else []
    names = f": {row_name(unknown[0])}" if len(unknown) == 1 else ""
    open_ones = [f"no verdict on {len(unknown)} of {count}{names}"] if unknown else []
    is_ok = result.exit_status == ExitStatus.OK
    rest = [*known, *open_ones] if is_ok else [*open_ones, *known]
    if not parts and rest:  # the first words of all
        rest[0] = rest[0].replace("no verdict", "NO VERDICT").replace("good", "GOOD")
    rest_of_lines = len(result.headlines) - _MOST_HEADLINES
    told = list(result.headlines[:_MOST_HEADLINES])
    told += [f"and {counted(rest_of_lines, 'more such line')}"] if rest_of_lines > 0 else []
    return [*parts, *rest, *told] or ["NO VERDICT: the night has no rows"]


def _commit(result: NightResult, search: CommitSearch) -> str:
    """Name the first slow commit, and the row that shows it if other rows were not searched."""
    searched_rows = {(one.row, one.variant) for one in result.searches}
    others = [
        one
        for one in result.findings
        if one.build == search.build
        and one.verdict is NightVerdict.SLOWER
        and (one.row, one.variant) not in searched_rows
    ]
    commit = f"first slow commit of {search.build}: {(search.first or '')[:_DIGITS]}"
    if not others:
        return commit
    rows = counted(len(others), "other slow row")
    return f"{commit} (by {search.row} {search.variant}; {rows} not searched)"


def _builds_of(findings: Sequence[NightFinding]) -> list[str]:
    return list(dict.fromkeys(one.row.partition("/")[0] for one in findings))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def build_facts(result: NightResult) -> Iterator[tuple[str, str]]:
    """Yield each build with the revisions of its sides."""
    words = {GOOD: "last good"}
    for name, sides in result.builds.items():
        known = ", ".join(
            f"{words.get(side, side)} {source[:_DIGITS]}" for side, source in sides.items()
        )
        yield name, known or "nothing was built"


def searched(search: CommitSearch) -> str:
    """Return the result of a search, and the earlier night that made it."""
    of_night = f"; searched by night {search.night}, not again" if search.night else ""
    return f"{search.reason}{of_night}"


def notes_of(result: NightResult) -> Iterator[str]:
    """Yield facts beside the rows: commits, accepted slowdowns, errors of nights."""
    for search in result.searches:
        yield f"{search.build}: {searched(search)}"
    yield from result.accepted
    if (same := result.same_programs) is not None:
        yield (
            f"{same.pairs} pairs of equal programs in {counted(same.nights, 'night')}: one side"
            f" took {same.ratio:.4f} times as long as the other (99% interval {same.low:.4f} to"
            f" {same.high:.4f}); {same.beyond} of them differ by the slowdown to find or more"
        )


def lines_of(result: NightResult) -> Iterator[str]:
    """Yield the lines of a result for people: the verdict, the builds, the rows, worst first."""
    yield headline(result)
    for name, known in build_facts(result):
        yield f"{name}: {known}"
    yield from notes_of(result)
    for one in worst_first(result.findings):
        yield f"{one.verdict.upper():<14} {row_name(one)}: {sentence(one)}"
        for line in (one.details or "").splitlines():
            yield f"    {line}"
    unknown = sum(one.verdict in OPEN for one in result.findings)
    if unknown:
        yield f"{unknown} of {len(result.findings)} have no verdict tonight: they do not pass"
    yield f"night {result.id}"


def not_begun(error: LabctlError) -> str:
    """Say that a night could not begin."""
    return f"NO NIGHT: {error.message} (blame: {error.blame})"


def suite_without_end(plan: str, file: str, error: LabctlError | None = None) -> Suite:
    """Return the suite of a night without findings: an error says why.

    ``file`` is the plan's file. Without an ``error`` the night has begun and not ended.
    """
    failure = None if error is None else Failure.of(error)
    case = Case(
        plan,
        f"night.{plan}",
        "nightly",
        Outcome.ERROR,
        failure.kind if failure else "not ended",
        f"no findings: {failure.message} (blame: {failure.blame})"
        if failure
        else "the night has not come to its end: it still runs, or it was interrupted",
        failure_text([failure]) if failure else "",
        file=file,
    )
    return Suite(suite_name(plan), (case,), started=datetime.now(UTC))


def worst_first(findings: Sequence[NightFinding]) -> list[NightFinding]:
    """Return findings in the order in which people should read them."""
    order = [one for one in NightVerdict if one not in PASSED]
    places = {verdict: place for place, verdict in enumerate([*order, *PASSED])}
    return sorted(findings, key=lambda one: places[one.verdict])


def plan_lines(record: NightRecord) -> Iterator[str]:
    """Yield the rows of a plan, with the slowdown that each can find in its time."""
    for row in sorted(record.rows, key=lambda one: (one.board, -one.value, one.name)):
        if row.unmonitored:
            yield f"{row.name}: NOT MONITORED, {row.unmonitored}"
            continue
        time = f"about {_rounded(_screen_seconds(row))} to screen"
        known = time if row.seconds else "time unknown"
        if row.gated:
            yield f"{row.name}: only its gates are judged; {known}"
            continue
        found = "MDE unknown: no history" if row.mde is None else f"MDE {percent(row.mde)}"
        if row.is_too_noisy:
            yield (
                f"{row.name}: NOT MONITORED, too noisy for {percent(row.find)} ({found}):"
                f" {row.screen} pairs to learn its noise; {known}"
            )
            continue
        yield (
            f"{row.name}: {row.screen} pairs to screen; {row.look} pairs for each of up to"
            f" {LOOKS} looks of a confirmation; {known}, {found}"
        )


@dataclass(frozen=True)
class NightTotal:
    """Time of a night's screening. Times are seconds; moments seconds since 1970."""

    #: All boards together.
    board_seconds: float
    #: The end if nothing must be confirmed: boards work in parallel, builds take no time.
    ends: float
    #: The latest end.
    deadline: float
    #: Number of rows whose time is unknown and not counted.
    unknown: int


def total_of(record: NightRecord) -> NightTotal:
    """Return the time that a plan takes."""
    boards: dict[str, float] = {}
    own = [row for row in record.rows if not row.unmonitored]
    for row in own:
        boards[row.board] = boards.get(row.board, 0.0) + _screen_seconds(row)
    longest = max(boards.values(), default=0.0)
    return NightTotal(
        sum(boards.values()),
        min(record.started.timestamp() + longest, record.deadline),
        record.deadline,
        sum(not row.seconds for row in own),
    )


def total_line(record: NightRecord) -> str:
    """Return how long the screening of all rows takes, and when the night ends."""
    total = total_of(record)
    latest = f"at the latest {local_time(total.deadline)}"
    if not total.board_seconds:
        return f"in all: time unknown; it ends {latest}"
    rest = f", and {counted(total.unknown, 'row')} of unknown time" if total.unknown else ""
    return (
        f"in all: about {_rounded(total.board_seconds)} on all boards together to screen{rest};"
        f" with nothing to confirm it ends about {local_time(total.ends)} and the time of the"
        f" builds, {latest}"
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
    """Return a plan as JSON, with the source of each side of each build, and the hosts."""
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


def dry_run_document(
    record: NightRecord,
    found: Sequence[tuple[str, str, str | LabctlError]],
    hosts: Mapping[str, NightHost],
) -> dict[str, Any]:
    """Return :func:`plan_document` with the time that the plan takes."""
    return {**plan_document(record, found, hosts), "total": asdict(total_of(record))}


def _screen_seconds(row: NightRow) -> float:
    return 2 * row.seconds * row.screen


def _rounded(seconds: float) -> str:
    """Return a duration, in whole minutes if it is long."""
    return format_duration(round(seconds) if seconds < 600 else 60 * round(seconds / 60))
