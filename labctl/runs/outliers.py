"""Repeats that fall out of line, each with what the telemetry knows of it. None is ever dropped."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from labctl.records import TrialEvidence, TrialRecord, TrialState
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
    """A trial whose median token time is not like the others' of its variant."""

    number: int
    variant: str
    factor: float
    causes: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """For people."""
        why = ", ".join(self.causes) or "nothing in its telemetry says why"
        return (
            f"outlier: trial {self.number} of {self.variant} took {self.factor:.2f} times as long"
            f" a token as the others ({why}); it is counted"
        )


def outliers(trials: Iterable[TrialRecord]) -> list[Outlier]:
    """The outliers among the good repeats of each variant, in their order."""
    groups: dict[str, list[TrialRecord]] = {}
    for trial in trials:
        if trial.state is TrialState.OK and trial.repeat > 0 and _time(trial):
            groups.setdefault(trial.variant, []).append(trial)
    found = [o for g in groups.values() if len(g) >= _LEAST for o in _of_group(g)]
    return sorted(found, key=lambda outlier: outlier.number)


def _time(trial: TrialRecord) -> int:
    return (trial.timing.p50_ns if trial.timing else None) or 0


def _of_group(group: Sequence[TrialRecord]) -> Iterator[Outlier]:
    times = [_time(trial) for trial in group]
    middle, spread = median(times), mad(times)
    limit = max(_DEVIATIONS * spread, _NEGLIGIBLE * middle)
    for trial in group:
        if abs(_time(trial) - middle) > limit:
            others = [t.evidence for t in group if t is not trial and t.evidence]
            causes = tuple(_causes(trial.evidence, others)) if trial.evidence and others else ()
            yield Outlier(trial.number, trial.variant, _time(trial) / middle, causes)


def _causes(own: TrialEvidence, others: Sequence[TrialEvidence]) -> Iterator[str]:
    """What was not as in the other repeats."""

    def usual(value: Callable[[TrialEvidence], float | None]) -> float | None:
        known = [v for other in others if (v := value(other)) is not None]
        return median(known) if known else None

    heat, warm = own.highest_temperature_mc, usual(lambda e: e.highest_temperature_mc)
    if heat is not None and warm is not None and heat > warm + _HOTTER_MC:
        yield f"temperature: {heat / 1000:.0f} °C, otherwise {warm / 1000:.0f} °C"
    low, fast = own.lowest_khz, usual(lambda e: e.lowest_khz)
    if low is not None and fast is not None and low < _SLOWER * fast:
        yield f"frequency: down to {low / 1000:.0f} MHz, otherwise {fast / 1000:.0f} MHz"
    elif own.limited and not any(other.limited for other in others):
        yield "frequency: the board held its clock back"
    faults, few = own.major_faults, usual(lambda e: e.major_faults)
    if faults is not None and few is not None and faults > _MORE_FAULTS * few + _FEW_FAULTS:
        yield f"major faults: {faults}, otherwise {few:.0f}"
    loud, quiet = own.others_share, usual(lambda e: e.others_share)
    if loud is not None and quiet is not None and loud > quiet + _LOUDER:
        yield f"load: others used {loud:.0%} of a CPU, otherwise {quiet:.0%}"
    stolen, none = own.steal_share, usual(lambda e: e.steal_share)
    if stolen is not None and none is not None and stolen > none + _LOUDER / 2:
        yield f"load: {stolen:.0%} of CPU time was stolen"
