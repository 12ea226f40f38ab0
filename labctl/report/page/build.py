"""A report from run directories."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from labctl.compare.comparison import Comparison
from labctl.errors import ConfigError
from labctl.records.board import Execution
from labctl.report import tuning
from labctl.report.comparison import rows_table
from labctl.report.figures.catalogue import figures_of
from labctl.report.page.answer import answers
from labctl.report.page.comparison import compared_runs
from labctl.report.page.content import Report, RunSection
from labctl.report.page.language import MOST_NAMES, Language
from labctl.report.page.measured import MeasuredRun
from labctl.report.page.sections import section
from labctl.report.references import ReferenceRow, references_of
from labctl.report.remarks import Remark
from labctl.report.result_tables import result_tables
from labctl.report.status import STATES, Reason, Status
from labctl.report.table import Table
from labctl.runs.record.directory import RunDirectory


def build_report(
    directories: Sequence[RunDirectory], words: Language, references: Sequence[str] = ()
) -> Report:
    """Return the report on runs, in their order; it names damaged runs.

    ``references``: names of published figures, see :func:`references_of`. Raises ConfigError if no
    run can be read.
    """
    runs, damaged = read_runs(directories)
    quoted: dict[str, ReferenceRow] = {}
    for one in runs:
        quoted.update((row.name, row) for row in references_of(one.run, one.path, references))
    drawn = figures_of(
        [one.measured for one in runs], language=words.code, quoted=tuple(quoted.values())
    )
    compared = compared_runs(runs)
    marks = {one.path: _execution_marks(one, words) for one in runs}
    return Report(
        title=_title(runs, words),
        about=_about(runs, words),
        marks=_common(marks.values()),
        answers=answers(runs, compared, words),
        tables=_tables(runs, compared, tuple(quoted.values()), words),
        figures=drawn.drawn,
        missing=drawn.missing,
        runs=[_section(one, marks[one.path], words) for one in runs],
        damaged=damaged,
        method=_method(words),
        status=_told([one.status for one in runs], words),
    )


def read_runs(
    directories: Sequence[RunDirectory],
) -> tuple[list[MeasuredRun], list[tuple[str, str]]]:
    """Return the readable runs, and the names of the others with the reason.

    Raises ConfigError if no run can be read.
    """
    runs: dict[Path, MeasuredRun] = {}
    damaged: list[tuple[str, str]] = []
    errors: list[ConfigError] = []
    for directory in directories:
        try:
            one = MeasuredRun.read(directory)
        except ConfigError as error:
            damaged.append((directory.path.resolve().name, error.message))
            errors.append(error)
        else:
            runs[one.path] = one
    if not runs:
        raise errors[0]
    return list(runs.values()), damaged


def _execution_marks(one: MeasuredRun, words: Language) -> list[str]:
    """Return a warning if a run was not measured on a board of this lab."""
    found, facts = [], one.run.facts
    if facts.execution is Execution.EMULATED:
        name = facts.emulator or "emulator"
        found.append(words("EMULATED ({name}): does not show the speed of a board.", name=name))
    elif facts.execution is Execution.NATIVE_HOST:
        found.append(words("NATIVE HOST: measured on the controller itself, not on a board."))
    if one.origin is not None:
        text = "IMPORTED from {file}: not measured by this lab."
        found.append(words(text, file=one.origin.file))
    return found


def _common(marks: Collection[Sequence[str]]) -> list[str]:
    """Return the warnings that stand above the answer: only if each run has one."""
    return list(dict.fromkeys(chain.from_iterable(marks))) if all(marks) else []


def _section(one: MeasuredRun, marks: Sequence[str], words: Language) -> RunSection:
    found = section(one, words)
    search = one.measured.tuned
    ways = map(Remark, tuning.recipe_and_command(search)) if search is not None else ()
    first = (Remark(text, tone="bad") for text in marks)
    return replace(found, remarks=[*first, *ways, *found.remarks])


def _told(found: Sequence[Status], words: Language) -> list[Status]:
    """Return the states that stand first: all of a few runs, else their sum and some bad ones."""
    if len(found) <= MOST_NAMES:
        return list(found)
    states = Counter(one.state for one in sorted(found, key=lambda one: STATES.index(one.state)))
    each = words.listed(f"{words(state)}: {count}" for state, count in states.items())
    ends = [one.since for one in found if one.since and one.state != "running"]
    whole = Status(
        words("{count} runs", count=len(found)),
        next(iter(states)),
        good=sum(one.good for one in found),
        total=sum(one.total for one in found),
        since=max(ends) if len(ends) == len(found) else None,
        reason=Reason(each) if len(states) > 1 else None,
    )
    return [whole, *[one for one in found if one.is_bad][:MOST_NAMES]]


def _tables(
    runs: Sequence[MeasuredRun],
    compared: Comparison | None,
    quoted: Sequence[ReferenceRow],
    words: Language,
) -> list[Table]:
    experiment, *details = result_tables([one.results for one in runs], quoted, words)
    searches = [one.measured.tuned for one in runs if one.measured.tuned is not None]
    chapters = [table for found in searches for table in tuning.tables(found, words)]
    return [*chapters, experiment, *([rows_table(compared, words)] if compared else []), *details]


def _title(runs: Sequence[MeasuredRun], words: Language) -> str:
    return words(
        "{recipes} on {boards}",
        recipes=words.some(one.run.recipe for one in runs),
        boards=words.some(one.run.board for one in runs),
    )


def _about(runs: Sequence[MeasuredRun], words: Language) -> dict[str, str]:
    first, last = (by(runs, key=lambda one: one.run.started) for by in (min, max))
    days = dict.fromkeys(f"{one.run.started:%Y-%m-%d}" for one in (first, last))
    trials = sum(one.status.good for one in runs)
    planned = sum(one.status.total for one in runs)
    about = {
        words("Run" if len(runs) == 1 else "Runs"): runs[0].run.id
        if len(runs) == 1
        else str(len(runs)),
        words("Target"): words.some(one.run.target for one in runs),
        words("System"): words.some(_system(one) for one in runs),
        words("Measured"): " – ".join(days) + " (UTC)",
        words("Good trials"): words("{count} of {planned}", count=trials, planned=planned),
    }
    if batteries := _batteries(runs):
        about[words("Battery")] = " → ".join(batteries)
    programs = (one.run.program for one in runs)
    builds = [f"{program.product} {program.version}" for program in programs if program]
    if builds:
        about[words("Program")] = words.some(builds)
    tags = [tag for one in runs for tag in one.annotations.tags]
    if tags:
        about[words("Tags")] = words.some(tags)
    return about


def _batteries(runs: Sequence[MeasuredRun]) -> tuple[str, ...]:
    """Return a phone's battery before the first and before the last trial; one if they agree."""
    trials = [trial for one in runs for trial in one.measured.trials]
    trials.sort(key=lambda trial: trial.started)
    known = [one.phone_state.text for one in trials if one.phone_state]
    return tuple(dict.fromkeys((known[0], known[-1]))) if known else ()


def _system(one: MeasuredRun) -> str:
    facts = one.run.facts
    system = facts.os_version or f"{facts.machine} {facts.kernel}"
    phone = facts.phone.text if facts.phone else None
    return "; ".join(filter(None, (phone, facts.cpu_names, system)))


def _method(words: Language) -> list[str]:
    return [
        words(
            "Time per token: the mean of a trial is the time from the first token to the last over"
            " the tokens made in it; the estimate is the geometric mean over the good trials. Its"
            " interval is Student's, of the logarithms of one value a trial: the tokens of a trial"
            " share its process, memory and heat, and are not independent measurements. A recipe"
            " that repeats until its result is precise has wider intervals for that."
        ),
        words(
            "Ratio: the geometric mean of the ratios of trials of the same round, with Student's"
            " interval of their logarithms. TTFT counts from the start of the program, loading"
            " included. Warm-ups and failed trials are in no figure and no estimate."
        ),
        words(
            "Fastest of several variants: named are all that are not shown to be slower than"
            " the best one (J. C. Hsu's multiple comparisons with the best, of logarithms, with"
            " the noise of all variants together; 95% of such sets contain the true fastest),"
            " and those judged the same."
        ),
        words(
            "Bound: the time that storage, memory or arithmetic need at the rates measured on this"
            " board, over the measured time; the greatest share is the nearest bound."
        ),
    ]
