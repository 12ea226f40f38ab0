"""Times of single tokens, from the moments at which they arrived."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from labctl.stats import percentile

#: With more than this share of the tokens unseen, single times say nothing.
_MOST_UNSEEN = 0.25


@dataclass(frozen=True)
class TokenTimes:
    """Gaps between arrivals in ns, those that seem to hold several tokens, and what they come to.

    ``span_ns`` is from the first arrival to the last; None with fewer than two.
    """

    gaps_ns: tuple[int, ...]
    merged: tuple[int, ...]
    p50_ns: int | None
    p90_ns: int | None
    p99_ns: int | None
    mean_ns: int | None
    per_second: float | None
    span_ns: int | None

    @classmethod
    def of(
        cls, times_ns: Sequence[int], generated: int, held: Sequence[int] | None = None
    ) -> "TokenTimes":
        """From at least one arrival of ``generated`` tokens, no fewer than arrivals.

        ``held``: how many tokens each arrival brought, where that is known.
        """
        gaps = tuple(late - early for early, late in pairwise(times_ns))
        unseen = generated - len(times_ns)
        if held is None:
            merged = merged_gaps(gaps, unseen)
        else:
            merged = tuple(index for index, tokens in enumerate(held[1:]) if tokens > 1)
        flagged = set(merged)
        single = [gap for index, gap in enumerate(gaps) if index not in flagged]
        if unseen > _MOST_UNSEEN * generated:
            single = []
        span = times_ns[-1] - times_ns[0] if gaps else None
        steps = generated - (1 if held is None else held[0])
        p50, p90, p99 = (round(percentile(single, q)) if single else None for q in (50, 90, 99))
        return cls(
            gaps_ns=gaps,
            merged=merged,
            p50_ns=p50,
            p90_ns=p90,
            p99_ns=p99,
            mean_ns=round(span / steps) if span else None,
            per_second=steps / (span / 1e9) if span else None,
            span_ns=span,
        )


def merged_gaps(gaps_ns: Sequence[int], missing: int) -> tuple[int, ...]:
    """Indexes of the gaps that seem to hold more than one token.

    ``missing`` tokens had no arrival of their own; a gap that holds ``k`` of them is about
    ``k + 1`` times the median. The widest are named until all missing tokens are accounted for.
    """
    if missing <= 0 or not gaps_ns:
        return ()
    typical = median(gaps_ns)
    found = []
    for index in sorted(range(len(gaps_ns)), key=lambda i: gaps_ns[i], reverse=True):
        if missing <= 0:
            break
        found.append(index)
        missing -= max(1, round(gaps_ns[index] / typical) - 1) if typical else 1
    return tuple(sorted(found))
