"""Repeats that fall out of line, each with what the telemetry knows of it. None is ever dropped."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from labctl.records import TelemetrySummary, TrialRecord
from labctl.results.summary import good_trials, token_time
from labctl.stats import mad, median

#: B. Iglewicz and D. Hoaglin (1993): more than 3.5 robust standard deviations from the median.
_DEVIATIONS = 3.5
#: Below this share of the median nothing is an outlier: some boards repeat to the microsecond.
_NEGLIGIBLE = 0.02
#: Fewer repeats have no line to fall out of.
_LEAST = 4
_HOTTER_MC = 5_000
_SLOWER = 0.97
_MORE_FAULTS, _FEW_FAULTS = 2, 100
_LOUDER = 0.1


@dataclass(frozen=True)
class Outlier:
    """A trial whose token time is not like the others' of its variant.

    ``causes`` is None where nothing was sampled to find them in.
    """

    number: int
    variant: str
    factor: float
    causes: tuple[str, ...] | None

    @property
    def sentence(self) -> str:
        """Description for people."""
        if self.causes is None:
            why = "no telemetry, cause unknown"
        else:
            why = ", ".join(self.causes) or "its telemetry shows no cause"
        return (
            f"outlier: trial {self.number} of {self.variant} took {self.factor:.2f} times as long"
            f" a token as the others ({why}); it is counted"
        )


def outliers(trials: Iterable[TrialRecord]) -> list[Outlier]:
    """Return the outliers among the good repeats of each variant, in order."""
    groups: dict[str, list[TrialRecord]] = {}
    for trial in good_trials(trials):
        if token_time(trial):
            groups.setdefault(trial.variant, []).append(trial)
    found = [o for g in groups.values() if len(g) >= _LEAST for o in _of_group(g)]
    return sorted(found, key=lambda outlier: outlier.number)


def _of_group(group: Sequence[TrialRecord]) -> Iterator[Outlier]:
    times = [token_time(trial) or 0 for trial in group]
    middle, spread = median(times), mad(times)
    limit = max(_DEVIATIONS * spread, _NEGLIGIBLE * middle)
    for trial, time in zip(group, times, strict=True):
        if abs(time - middle) > limit:
            others = [t.evidence for t in group if t is not trial and t.evidence]
            causes = None
            if trial.evidence and others:
                causes = tuple(_causes(trial.evidence, others, slow=time > middle))
            yield Outlier(trial.number, trial.variant, time / middle, causes)


def _causes(
    own: TelemetrySummary, others: Sequence[TelemetrySummary], *, slow: bool
) -> Iterator[str]:
    """Yield what was worse than in the other repeats, or better if this one was faster."""

    def pair(value: Callable[[TelemetrySummary], float | None]) -> tuple[float, float] | None:
        known = [v for other in others if (v := value(other)) is not None]
        mine = value(own)
        return None if mine is None or not known else (mine, median(known))

    def more(values: tuple[float, float], factor: float, margin: float) -> bool:
        mine, usual = values if slow else values[::-1]
        return mine > factor * usual + margin

    heat = pair(lambda e: e.highest_temperature_mc)
    if heat and more(heat, 1, _HOTTER_MC):
        yield f"temperature: {heat[0] / 1000:.0f} °C, otherwise {heat[1] / 1000:.0f} °C"
    clock = pair(lambda e: e.lowest_khz)
    if clock and more(clock[::-1], 1 / _SLOWER, 0):
        yield f"frequency: down to {clock[0] / 1000:.0f} MHz, otherwise {clock[1] / 1000:.0f} MHz"
    elif slow and own.limited and not any(other.limited for other in others):
        yield "frequency: the board lowered its clock"
    faults = pair(lambda e: e.major_faults)
    if faults and more(faults, _MORE_FAULTS, _FEW_FAULTS):
        yield f"major faults: {faults[0]:.0f}, otherwise {faults[1]:.0f}"
    load = pair(lambda e: e.others_share)
    if load and more(load, 1, _LOUDER):
        yield f"load: others used {load[0]:.0%} of a CPU, otherwise {load[1]:.0%}"
    reclaim = pair(lambda e: e.reclaim_share)
    if reclaim and more(reclaim, 1, _LOUDER):
        yield f"memory: freeing it took {reclaim[0]:.0%} of a CPU, otherwise {reclaim[1]:.0%}"
    stolen = pair(lambda e: e.steal_share)
    if stolen and more(stolen, 1, _LOUDER / 2):
        yield f"load: {stolen[0]:.0%} of a CPU was stolen, otherwise {stolen[1]:.0%}"
