"""One trial on the board's clock: its phases, its tokens, and the telemetry under them."""

import math
from collections.abc import Iterator, Sequence
from itertools import islice

from labctl.errors import printable_line
from labctl.records.telemetry import TelemetrySample
from labctl.records.trial import TrialRecord
from labctl.report.figures.figure import Figure, Missing, Row
from labctl.report.figures.marks import TimeScale
from labctl.report.figures.measured import MeasuredRun, Series, all_series, distinguishable
from labctl.report.figures.moments import Span, throttled_spans, token_spans
from labctl.report.figures.timeline_chart import NAME, timeline_chart
from labctl.report.figures.tracks import Track, tracks_of
from labctl.report.page.language import Language
from labctl.units import duration

#: Maximum number of trials with their own picture: typical trials first, then throttled trials.
_MOST_TRIALS = 4
_MOST_BARS = 256
#: A phase shorter than this share of the trial has no room for its name.
_NAMED_FROM = 0.14


def timelines(runs: Sequence[MeasuredRun], words: Language) -> list[Figure | Missing]:
    """Draw the telemetry of a few trials; Missing if no trial has telemetry."""
    found: list[Figure | Missing] = []
    for one, trial in islice(_chosen(distinguishable(all_series(runs))), _MOST_TRIALS):
        samples = one.run_of(trial).telemetry(trial)
        if trial.job is not None and len(samples) > 1:
            found.append(_timeline(one, trial, samples, words))
    return found or [
        Missing(
            NAME,
            words("Telemetry and tokens on one time axis"),
            words("no trial has telemetry beside its record"),
        )
    ]


def _chosen(series: Sequence[Series]) -> Iterator[tuple[Series, TrialRecord]]:
    """Yield the typical trial of each series, then the first throttled trial of each series."""
    typical = [(one, one.typical or one.trials[0]) for one in series]
    yield from typical
    for one, usual in typical:
        held = [t for t in one.trials if t.evidence and t.evidence.limited and t is not usual]
        if held and not (usual.evidence and usual.evidence.limited):
            yield one, held[0]


def _timeline(
    one: Series, trial: TrialRecord, samples: Sequence[TelemetrySample], words: Language
) -> Figure:
    assert trial.job is not None
    begin = trial.job.start_mono_ns
    end = max(trial.job.end_mono_ns, begin + 1)
    inside = [sample for sample in samples if begin <= sample.mono_ns <= end]
    tracks = tracks_of(inside)
    rows: list[Row] = list(_phases(trial, end, words))
    spans = token_spans(trial)[1:]
    longest = max((span.end_ns - span.begin_ns for span in spans), default=0)
    scale = TimeScale.of([longest]) if longest > 0 else None  # of bars: never logarithmic
    if scale:
        rows += _bars(spans, begin, scale)
    throttled = throttled_spans(inside)
    rows += [_slice("throttled", span, begin) for span in throttled]
    rows += [row for track in tracks for row in _values(track, begin, words)]
    name = printable_line(one.label)
    caption = words(
        "One trial on the board's own clock. The width of a bar is the time of its token, its"
        " height says the same. Rates are between one sample and the next."
    )
    if throttled:
        caption += words(" Shaded: the board held its clock down.")
    return Figure(
        name=f"{NAME}-{one.run_of(trial).short_id}-{trial.number}",
        title=words(
            "Telemetry and tokens: {series}, repeat {repeat}", series=name, repeat=trial.repeat
        ),
        caption=caption,
        alt=words(
            "Tracks of one trial of {series} over {duration}: {tracks}.",
            series=name,
            duration=duration(end - begin),
            tracks=words.clauses(words(track.title) for track in tracks),
        ),
        spec=timeline_chart(
            tracks, scale, _seconds(end, begin), words, bars=len(spans), throttled=bool(throttled)
        ),
        rows=rows,
        execution=trial.execution,
    )


def _seconds(moment: int, begin: int) -> float:
    return float(f"{(moment - begin) / 1e9:.6g}")


def _slice(kind: str, span: Span, begin: int) -> dict[str, float | str]:
    low, high = _seconds(span.begin_ns, begin), _seconds(span.end_ns, begin)
    return {"kind": kind, "at": low, "until": high}


def _phases(trial: TrialRecord, end: int, words: Language) -> Iterator[Row]:
    """Yield the program's phases: load, read the prompt, generate."""
    assert trial.job is not None
    begin, timing = trial.job.start_mono_ns, trial.timing
    first = begin + timing.ttft_ns if timing and timing.ttft_ns else None
    if first is None or timing is None:
        return
    prompt = max(begin, first - (timing.prompt_eval_ns or 0))
    last = max((span.end_ns for span in token_spans(trial)), default=first)
    bounds = {"load": (begin, prompt), "prompt": (prompt, first), "tokens": (first, last)}
    for key, (low, high) in bounds.items():
        if high > low:
            text = words(key)
            row = {**_slice("phase", Span(low, high), begin), "phase": key, "text": text}
            row["took"] = duration(high - low)
            row["label"] = text if (high - low) >= _NAMED_FROM * (end - begin) else ""
            yield row


def _bars(spans: Sequence[Span], begin: int, scale: TimeScale) -> Iterator[Row]:
    """Yield a bar for each token; with many tokens, a bar for the mean time of a few."""
    size = math.ceil(len(spans) / _MOST_BARS)
    for first in range(0, len(spans), size):
        some = spans[first : first + size]
        whole = Span(some[0].begin_ns, some[-1].end_ns)
        each = (whole.end_ns - whole.begin_ns) / len(some)
        yield {
            **_slice("token", whole, begin),
            "position": first + 2,
            "value": scale.of_ns(each),
        }


def _values(track: Track, begin: int, words: Language) -> Iterator[Row]:
    for number, line in enumerate(track.lines):
        name = line.name or words(line.label)
        for moment, value in line.points:
            yield {
                "kind": f"{track.key}-{number}",
                "at": _seconds(moment, begin),
                "name": name,
                "value": float(f"{value:.5g}"),
            }
