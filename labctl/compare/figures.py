"""Figures that can be compared: each repeat gives one value above 0."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from labctl.checked import unknown
from labctl.errors import ConfigError
from labctl.index.rows import TrialRow


@dataclass(frozen=True)
class Figure:
    """A figure of speed; ``name`` is used in gates and by ``--figure``, ``label`` is for people."""

    name: str
    label: str
    value: Callable[[TrialRow], float | None]
    more_is_faster: bool = False
    #: The figure depends on how much of the model was in memory before the start.
    has_loading: bool = False
    #: The figure needs tokens that were seen one by one; on a busy host some arrive together.
    needs_token_times: bool = False


#: Figures by name. Times are in ns here, even if the gate of the same name has another unit: a
#: ratio has no unit.
FIGURES: Mapping[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure("tpot_ms", "per token", lambda row: row.mean_ns, needs_token_times=True),
        Figure(
            "ttft_ms", "TTFT", lambda row: row.ttft_ns, has_loading=True, needs_token_times=True
        ),
        Figure(
            "prefill_tokens_per_second",
            "prompt rate",
            lambda row: row.prompt_tokens_per_second,
            more_is_faster=True,
        ),
        Figure(
            "tokens_per_second",
            "tokens/s",
            lambda row: row.tokens_per_second,
            more_is_faster=True,
            needs_token_times=True,
        ),
        Figure("tpot_p50_ms", "p50 token", lambda row: row.p50_ns, needs_token_times=True),
        Figure("tpot_p90_ms", "p90 token", lambda row: row.p90_ns, needs_token_times=True),
        Figure("end_to_end_ms", "whole trial", lambda row: row.wall_ns, has_loading=True),
    )
}
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


def figures_of(repeats: Iterable[TrialRow], names: Iterable[str] = ()) -> list[Figure]:
    """Return the figures with these names; by default the usual ones that a repeat has.

    If no repeat has a usual figure, return the first one, so that there is a row to report.
    """
    rows = list(repeats)
    if chosen := [FIGURES[name] for name in names]:
        return chosen
    found = []
    for name in DEFAULT_FIGURES:
        for candidate in (name, _INSTEAD.get(name)):
            if candidate and any(FIGURES[candidate].value(row) for row in rows):
                found.append(FIGURES[candidate])
                break
    return found or [FIGURES[DEFAULT_FIGURES[0]]]
