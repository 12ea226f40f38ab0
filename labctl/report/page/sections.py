"""Sections of a report for each run: remarks, conditions, checks, trials, provenance."""

import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import yaml

from labctl.figures.trials import token_time
from labctl.records.run import RunEnd
from labctl.records.trial import TrialRecord, TrialState
from labctl.report.facts import record_facts
from labctl.report.page.content import RunSection
from labctl.report.page.language import Language
from labctl.report.page.measured import MeasuredRun
from labctl.report.remarks import Remark, remarks
from labctl.report.table import ABSENT, Cell, Column, Table, quantity
from labctl.units import ranges


def section(one: MeasuredRun, words: Language) -> RunSection:
    """Return all information about one run below the figures."""
    run = one.run
    tables = (_conditions(one, words), _checks(one, words), _trials(one, words))
    return RunSection(
        id=run.id,
        heading=words("Run {id}", id=run.id),
        remarks=_remarks(one, words),
        tables=[table for table in tables if table.rows],
        facts=list(record_facts(run, one.end, one.annotations, one.origin)),
        commands=_commands(one),
        recipe=yaml.safe_dump(run.recipe_resolved, sort_keys=False, allow_unicode=True),
        files=files_table(run.id, one.path, words),
    )


def _commands(one: MeasuredRun) -> list[str]:
    """Return the commands that repeat the run and its report; imported results have no recipe."""
    run = one.run
    is_ours = one.origin is None or one.origin.kind == "bundle"
    again = [shlex.join(("labctl", "run", "recipe.yaml", "--board", run.board))] if is_ours else []
    return [*again, shlex.join(("labctl", "report", run.id, "-o", "report.html"))]


def _remarks(one: MeasuredRun, words: Language) -> list[Remark]:
    note = one.annotations.note
    return [
        *([Remark(note, words("Note: "))] if note else []),
        *remarks(one.run, one.trials, one.gates),
    ]


def _conditions(one: MeasuredRun, words: Language) -> Table:
    found = sorted(
        ((c.name, c.wanted, c.ok, c.had, t.number) for t in one.trials for c in t.conditions),
        key=lambda each: (each[0], each[1], str(each[2])),
    )
    rows = []
    for (name, wanted, ok), same in groupby(found, key=lambda each: each[:3]):
        of = list(same)
        had = list(dict.fromkeys(each[3] for each in of))
        text = had[0] if len(had) == 1 else f"{had[0]} … ({len(had)})"
        word = {True: words("as asked"), False: words("NOT as asked"), None: words("not available")}
        rows.append(
            [
                Cell(name, recorded=True),
                Cell(wanted, recorded=True),
                Cell(text, tip=_tip(had), recorded=True),
                Cell(word[ok], tone="" if ok else "bad"),
                Cell(ranges([each[4] for each in of]), len(of)),
            ]
        )
    columns = (
        Column(words("Condition")),
        Column(words("Asked for")),
        Column(words("Found")),
        Column(words("State")),
        Column(words("In trials"), numeric=True),
    )
    return Table(words("Conditions"), columns, rows)


#: Maximum number of different values in a tooltip.
_MOST_VALUES = 8


def _tip(values: Sequence[str]) -> str:
    if len(values) < 2:
        return ""
    return "; ".join(values[:_MOST_VALUES]) + ("; …" if len(values) > _MOST_VALUES else "")


def _checks(one: MeasuredRun, words: Language) -> Table:
    found: dict[str, list[tuple[bool | None, str, int]]] = {}
    for trial in one.trials:
        for check in trial.checks:
            found.setdefault(check.name, []).append((check.ok, check.detail, trial.number))
    rows = []
    for name, of in found.items():
        failed = [each for each in of if each[0] is False]
        held = sum(each[0] is True for each in of)
        shown = failed or sorted(of, key=lambda each: each[0] is not None)
        detail = f"{shown[0][2]}: {shown[0][1]}"
        rows.append(
            [
                Cell(name, recorded=True),
                Cell(str(held), held),
                Cell(str(len(failed)), len(failed), tone="bad" if failed else ""),
                Cell(str(len(of) - held - len(failed)), len(of) - held - len(failed)),
                Cell(words("trial {detail}", detail=detail), recorded=True),
            ]
        )
    columns = (
        Column(words("Check")),
        Column(words("Held"), numeric=True),
        Column(words("Failed"), numeric=True),
        Column(words("Not judged"), numeric=True),
        Column(words("The first failure, or else an example"), wide=True),
    )
    return Table(words("Checks"), columns, rows)


def _trials(one: MeasuredRun, words: Language) -> Table:
    columns = (
        Column(words("Trial"), numeric=True),
        Column(words("Variant")),
        Column(words("Repeat"), numeric=True),
        Column(words("State")),
        Column(words("TTFT"), numeric=True),
        Column(words("Time per token"), numeric=True),
        Column(words("Tokens"), numeric=True),
        Column(words("Temperature"), numeric=True, tip=words("At the start, and the highest.")),
        Column(words("Lowest frequency"), numeric=True, tip=words("Of the fastest CPU.")),
    )
    rows = [_trial(trial, words) for trial in one.trials]
    return Table(words("Trials"), columns, rows)


def _trial(trial: TrialRecord, words: Language) -> list[Cell]:
    timing, seen = trial.timing, trial.evidence
    return [
        Cell(str(trial.number), trial.number),
        Cell(trial.variant, tip=f"{trial.started:%Y-%m-%d %H:%M:%S} UTC", recorded=True),
        Cell(str(trial.repeat), trial.repeat) if trial.repeat else Cell(words("warm-up"), 0),
        _state(trial, words),
        quantity(timing.ttft_ns if timing else None, "ns"),
        quantity(token_time(trial), "ns"),
        quantity(timing.generated_tokens if timing else None, "count"),
        _temperature(seen.start_temperature_mc, seen.highest_temperature_mc) if seen else ABSENT,
        Cell(f"{seen.lowest_khz / 1000:.0f} MHz", seen.lowest_khz)
        if seen and seen.lowest_khz
        else ABSENT,
    ]


def _state(trial: TrialRecord, words: Language) -> Cell:
    if trial.state is TrialState.OK:
        failed = [check.name for check in trial.checks if check.ok is False]
        if failed:
            return Cell(words("FAILED: {names}", names=", ".join(failed)), tone="bad")
        return Cell(words("ok"))
    reason = trial.failure.message if trial.failure else trial.skip_reason or ""
    word = words("skipped") if trial.state is TrialState.SKIPPED else words("failed")
    return Cell(word, tip=reason, tone="bad")


def _temperature(start: int | None, highest: int | None) -> Cell:
    if highest is None:
        return ABSENT
    begin = "" if start is None else f"{start / 1000:.0f} – "
    return Cell(f"{begin}{highest / 1000:.0f} °C", highest)


def gate_remarks(end: RunEnd | None, words: Language) -> Iterator[Remark]:
    """Yield the gates of a run."""
    for gate in end.gates if end else ():
        lead = {
            True: words("Gate kept: "),
            False: words("Gate MISSED: "),
            None: words("Gate not judged: "),
        }[gate.passed]
        yield Remark(gate.sentence, lead, "bad" if gate.passed is False else "")


def files_table(run: str, directory: Path, words: Language) -> Table:
    """Return the files of a run directory with their sizes."""
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    rows = [
        [
            Cell(str(path.relative_to(directory)), recorded=True),
            quantity(path.stat().st_size, "bytes"),
        ]
        for path in found
    ]
    caption = words("Raw files, below runs/{id}", id=run)
    columns = (Column(words("File")), Column(words("Size"), numeric=True))
    return Table(caption, columns, rows, words("{count} files", count=len(found)))
