"""Figures that can be compared: each repeat gives one value above 0."""

from collections.abc import Iterable, Mapping

from labctl.errors import ConfigError
from labctl.figures import trials
from labctl.figures.trials import TrialFigure
from labctl.index.rows import TrialRow
from labctl.suggestions import unknown

#: Figures by their names in gates and of ``--figure``. Times are in ns here, whatever unit the gate
#: has: a ratio has no unit.
FIGURES: Mapping[str, TrialFigure] = {
    figure.gate: figure for figure in trials.FIGURES if figure.is_compared
}
#: The figures of a search too: it has its own words for what is less and not faster.
_JUDGED = {**FIGURES, **{figure.gate: figure for figure in trials.OBJECTIVES.values()}}
DEFAULT_FIGURES = ("tpot_ms", "ttft_ms", "prefill_tokens_per_second")
#: Used instead of the time of a token if a benchmark reports only rates.
_INSTEAD = {"tpot_ms": "tokens_per_second"}


def checked_names(names: Iterable[str]) -> list[str]:
    """Return the names of figures, each once. Raises ConfigError for an unknown one."""
    found = list(dict.fromkeys(names))
    for name in found:
        if name not in FIGURES:
            raise ConfigError(unknown("figure", name, FIGURES))
    return found


def figures_of(repeats: Iterable[TrialRow], names: Iterable[str] = ()) -> list[TrialFigure]:
    """Return the figures of these names; without names the usual ones that any repeat has.

    If no repeat has a usual figure, return the first one, so that there is a row to report.
    """
    rows = list(repeats)
    if chosen := [_JUDGED[name] for name in names]:
        return chosen
    found = []
    for name in DEFAULT_FIGURES:
        for candidate in (name, _INSTEAD.get(name)):
            if candidate and any(row.figures[FIGURES[candidate].column] for row in rows):
                found.append(FIGURES[candidate])
                break
    return found or [FIGURES[DEFAULT_FIGURES[0]]]
