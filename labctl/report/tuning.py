"""The chapter of a search: its sentence, its settings, its winner as a patch and a command."""

import math
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

from rich.console import Console

from labctl.compare.tuned import MOST_PAIRS, SMALL_GAIN, Proof, SettingRow, Tuned
from labctl.compare.words import percent
from labctl.figures.trials import OBJECTIVES
from labctl.records.run import RunRecord
from labctl.report.console import plain, print_lines, print_table
from labctl.report.markdown import cell
from labctl.report.markdown import table as markdown_table
from labctl.report.page.language import Language
from labctl.report.status import Status
from labctl.report.table import ABSENT, Cell, Column, Table, plain_cells
from labctl.report.tables import print_headline, print_status
from labctl.stats.intervals import Interval
from labctl.units import confidence, duration, shown


def sentences(found: Tuned, words: Language) -> list[str]:
    """Return the answer of a search: a sentence for each objective."""
    if found.record.named is None:
        return [words("The search has not come to its proof.")]
    if not found.proofs:
        return [
            words("Nothing is shown to be better than the defaults: the race named no setting.")
        ]
    return [_sentence(found, one, words) for one in found.proofs]


def _sentence(found: Tuned, one: Proof, words: Language) -> str:
    changes = found.changes(one.setting)
    if one.refused:
        return words(
            "{setting} is no result for {objective}: {reason}.",
            setting=changes,
            objective=words.word(one.objective),
            reason=one.refused,
        )
    values = {
        "setting": changes,
        "objective": words.word(one.objective),
        "gain": _gain(one.gain),
        "count": one.pairs,
    }
    if one.is_shown:
        if one.row is None or one.row.interval is None:
            return words("{setting}: {objective} {gain}, from one peak of each.", **values)
        text = words(
            "{setting}: {objective} {gain} ({interval}), from {count} fresh pairs.",
            interval=_interval(one.row.interval),
            **values,
        )
        return text + _left_out(one, words)
    text = words("Nothing is shown to be better than the defaults for {objective}.", **values)
    text += _left_out(one, words)
    if one.gain is not None:
        known = one.row.interval if one.row else None
        ends = f" ({_interval(known)})" if known and not known.is_vague else ""
        values["gain"] = f"{_gain(one.gain)}{ends}"
        text += " " + words("{setting}: {gain} in {count} fresh pairs.", **values)
    needed, seconds = one.needed or (None, 0.0)
    if needed is None and seconds:
        text += " " + words(
            "A gain of {small} would need more than {most} pairs at this noise.",
            small=percent(SMALL_GAIN),
            most=MOST_PAIRS,
        )
    elif seconds:
        text += " " + words(
            "A gain of {small} would need {needed} pairs: {time} more.",
            small=percent(SMALL_GAIN),
            needed=needed,
            time=duration(seconds * 1e9),
        )
    return text


def _left_out(one: Proof, words: Language) -> str:
    if not one.left_out:
        return ""
    text = words(
        "Left out, as their trials differ in {keys}: {count} of the pairs.",
        count=one.left_out,
        keys=", ".join(one.unlike),
    )
    return f" {text}"


def tables(found: Tuned, words: Language) -> list[Table]:
    """Return the settings with their fate, and what each change of a winner brings alone."""
    objectives = found.record.objectives
    known = [one for one in OBJECTIVES if any(one in row.values for row in found.rows)]
    columns = [
        Column(words("Setting")),
        Column(words("Rounds"), numeric=True),
        *(
            Column(
                words("Race, {objective}", objective=words.word(one)),
                numeric=True,
                tip=words("Mean gain over the default of the same rounds; no proof."),
            )
            for one in objectives
        ),
        *(Column(words.word(one), numeric=True, roomy=True) for one in known),
        Column(words("Front"), roomy=True, tip=words("No other setting is better in all figures.")),
        Column(words("Why it left"), wide=True),
    ]
    named = {*(found.record.named or {}).values()}
    rows = [_row(row, objectives, known, named, words) for row in _ordered(found)]
    result = [Table(words("Settings of the search"), columns, rows)]
    if found.parts:
        parts = [
            [Cell(found.changes(setting), recorded=True), _ratio(interval)]
            for setting, interval in found.parts.items()
        ]
        heads = (Column(words("Change alone")), Column(words.word(objectives[0]), numeric=True))
        note = words("Intervals are 95 % each, without a correction for their number.")
        result.append(Table(words("What each change brings alone"), heads, parts, note))
    return result


def _ordered(found: Tuned) -> list[SettingRow]:
    """Return the default, then the settings that stayed longest, the best of each first."""
    objective = found.record.objectives[0]

    def key(row: SettingRow) -> tuple[bool, int, float]:
        gain = row.gains.get(objective)
        sign = 1 if OBJECTIVES[objective].better == "higher" else -1
        best = sign * math.log(gain.mean) if gain else -math.inf
        return row.setting != found.record.default, -row.rounds, -best

    return sorted(found.rows, key=key)


def _row(
    row: SettingRow, objectives: tuple[str, ...], known: list[str], named: set[str], words: Language
) -> list[Cell]:
    fate = Cell(row.fate, recorded=True)
    if row.setting in named and not row.fate:
        fate = Cell(words("named for the proof"), tone="strong")
    cells = [Cell(row.setting, recorded=True), Cell(str(row.rounds), row.rounds)]
    cells += [_ratio(row.gains.get(one)) for one in objectives]
    for one in known:
        value, half = row.values.get(one, (None, None))
        if value is None:
            cells.append(ABSENT)
            continue
        text = shown(value, OBJECTIVES[one].unit)
        cells.append(Cell(text if half is None else f"{text} ± {half:.1%}", value))
    return [*cells, Cell(words("yes") if row.on_front else ""), fate]


def _ratio(found: Interval | None) -> Cell:
    if found is None:
        return ABSENT
    text = _gain(found.mean)
    return Cell(text if found.is_vague else f"{text} ({_ends(found)})", found.mean)


def _gain(ratio: float | None) -> str:
    return "–" if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def _ends(found: Interval) -> str:
    return f"{100 * (found.low - 1):.1f} – {100 * (found.high - 1):.1f}"


def _interval(found: Interval) -> str:
    return f"{confidence(found.level)} %: {_ends(found)}"


def recipe_and_command(found: Tuned) -> Iterator[str]:
    """Yield for each shown winner the recipe's parameters, and then the program's command line."""
    for setting in dict.fromkeys(one.setting for one in found.shown):
        argv = found.commands.get(setting, ())
        names = [PurePosixPath(word).name if word.startswith("/") else word for word in argv]
        yield found.patch(setting)
        yield shlex.join(names)


def print_search(
    console: Console, run: RunRecord, found: Tuned, status: Status, *, wide: bool = False
) -> None:
    """Print the chapter in a terminal, below the state of its run."""
    words = Language("en")
    print_status(console, status)
    print_headline(console, run)
    print_lines(console, [f"[bold]{plain(text)}[/]" for text in sentences(found, words)])
    for text in found.record.said:
        print_lines(console, [f"[dim]{plain(text)}[/]"])
    for one in tables(found, words):
        print_lines(console, ["", f"[dim]{one.caption}[/]"])
        print_table(console, *plain_cells(one, brief=not wide), shorten=not wide)
    for text in recipe_and_command(found):
        print_lines(console, ["", plain(text)])
    console.print()


def markdown(found: Tuned) -> Iterator[str]:
    """Yield the lines of the chapter for a page of a CI system."""
    words = Language("en")
    for text in sentences(found, words):
        yield from (f"**{cell(text)}**", "")
    for one in tables(found, words):
        yield from markdown_table(*plain_cells(one))
    for text in recipe_and_command(found):
        yield f"- `{cell(text)}`"


def document(found: Tuned) -> dict[str, object]:
    """Return the search for machines."""
    return {
        **found.record.model_dump(mode="json"),
        "proofs": [
            {
                "objective": one.objective,
                "setting": one.setting,
                "shown": one.is_shown,
                "ratio": one.gain,
                "low": one.row.interval.low if one.row and one.row.interval else None,
                "high": one.row.interval.high if one.row and one.row.interval else None,
                "pairs": one.pairs,
                "refused": one.refused or None,
            }
            for one in found.proofs
        ],
        "sentences": sentences(found, Language("en")),
    }
