"""Find sides by the words of a command line: runs, variants of runs, baselines."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from labctl.compare.sides import Pair, Side, match_sides, pool_sides, run_sides
from labctl.config.lab import LabFile
from labctl.errors import ConfigError
from labctl.runs.record.baselines import find_named
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.index_refresh import Note, silent
from labctl.runs.record.lookup import find_run
from labctl.state.baselines import Baseline
from labctl.suggestions import unknown

#: Separators between a run and a variant: ``latest:q2_k``, ``latest/q2_k``.
_VARIANT = re.compile(r"(?P<run>.+)[:/](?P<variant>[^:/]+)")


def find_pairs(words: Sequence[str], lab: LabFile, runs: Path, note: Note = silent) -> list[Pair]:
    """Return the pairs that these words name: everything is compared with the first.

    One word: the other variants of that run are compared with its first. ``note`` gets the variants
    that only one side has. Raises ConfigError, also for a baseline and one of its own runs.
    """
    sides = [find_sides(word, lab, runs, note) for word in words]
    if len(sides) == 1:
        return _of_one(words[0], sides[0])
    first = sides[0]
    pairs = []
    for word, others in zip(words[1:], sides[1:], strict=True):
        found = match_sides(first, others)
        if not found:
            known = ", ".join(side.variant for side in first)
            raise ConfigError(
                f"{words[0]} and {word} have no variant of the same name",
                hint=f"name two: {words[0]}:VARIANT (of {known}) and {word}:VARIANT"
                f" (of {', '.join(side.variant for side in others)})",
            )
        for left, right in found:
            shared = left.runs & right.runs
            if shared and (left.runs != right.runs or left.variant == right.variant):
                raise ConfigError(
                    f"{words[0]} and {word} both contain run {', '.join(sorted(shared))}",
                    hint="name two runs, or a baseline made without the run",
                )
            if left.copies(right):
                raise ConfigError(
                    f"{words[0]} and {word} are copies of one run: they have the same measurements",
                    hint="`labctl show RUN` names the file that a copy was imported from",
                )
        compared = {side.name for pair in found for side in pair}
        alone = [side.name for side in (*first, *others) if side.name not in compared]
        if alone and len(first) > 1 and len(others) > 1:
            note(f"not compared, missing on the other side: {', '.join(alone)}")
        pairs += found
    return pairs


def find_sides(word: str, lab: LabFile, runs: Path, note: Note = silent) -> list[Side]:
    """Return the sides of a run, a variant ``RUN:VARIANT``, or a baseline. Raises ConfigError.

    ``note`` gets a line for an unfinished run.
    """
    try:
        baseline, found = find_named(lab, runs, word)
    except ConfigError:
        named = _VARIANT.fullmatch(word)
        if named is None:
            raise
        sides = find_sides(named["run"], lab, runs, note)
        return [_variant(sides, named["variant"], named["run"])]
    if baseline:
        return baseline_sides(baseline, runs)
    if found[0].is_unfinished:
        state = "running" if found[0].is_held() else "interrupted"
        note(f"run {found[0].path.resolve().name} is {state}: its trials so far are compared")
    return directory_sides(found[0])


def _of_one(word: str, sides: Sequence[Side]) -> list[Pair]:
    if len(sides) < 2:
        raise ConfigError(
            f"{word} has one variant only: nothing to compare it with",
            hint="name a second run: `labctl compare RUN OTHER`",
        )
    first, *others = (replace(side, name=side.variant) for side in sides)
    return [(first, other) for other in others]


def directory_sides(directory: RunDirectory, name: str | None = None) -> list[Side]:
    """Return a side for each variant of a run. Raises ConfigError."""
    origin, known_as = directory.origin(), directory.path.resolve().name
    return run_sides(
        directory.run(),
        directory.trials(),
        name or known_as.rpartition("-")[2],
        directory=known_as,
        imported_from=origin.file if origin else None,
    )


def baseline_sides(one: Baseline, runs: Path) -> list[Side]:
    """Return a side for each variant, with a session for each run that has it."""
    found = pool_sides(directory_sides(find_run(runs, run), one.name) for run in one.runs)
    sides = [side for side in found if one.variant in (None, side.variant)]
    if one.variant is not None and not sides:
        raise ConfigError(
            unknown(
                "variant",
                one.variant,
                [side.variant for side in found],
                where=f" in the runs of baseline {one.name}",
            )
        )
    return sides


def _variant(sides: Sequence[Side], variant: str, run: str) -> Side:
    known = {side.variant: side for side in sides}
    if variant not in known:
        raise ConfigError(unknown("variant", variant, known, where=f" in {run}"))
    return known[variant]
