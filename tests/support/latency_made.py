"""A latency match that nobody computed, with everything that one can have."""

from labctl.compare.equal_latency.result import (
    Axis,
    Candidate,
    Choice,
    Crossing,
    Curve,
    CurvePoint,
    GridRow,
    LatencyMatch,
    ModelTiming,
    PointAtBudget,
    Quoted,
    RescaledGrid,
)
from labctl.stats.intervals import Interval

TIMES = {"q2_k": 18.18, "q8_0": 49.73}


def made_match(*, execution: str = "board") -> LatencyMatch:
    """Make a match in which q8_0 overtakes q2_k, the last point extrapolated."""
    return LatencyMatch(
        heading=("EMULATED",) if execution != "board" else (),
        evaluations=("20261122T093000Z-arithmetic-abc123",),
        grader="boxed",
        questions=60,
        timings=tuple(
            ModelTiming(
                model=model,
                sha256="1" * 64,
                runs=("20261122T080000Z-timing-abc123",),
                repeats=3,
                board="rk1",
                execution=execution,
                token_seconds=seconds,
                interval=Interval(seconds, seconds * 0.98, seconds * 1.02, 0.95, 3),
                growth_seconds=0.0,
                prefill_tokens_per_second=0.4,
                longest_prompt=128,
                longest_position=300,
            )
            for model, seconds in TIMES.items()
        ),
        grids=(
            RescaledGrid(
                "q2_k",
                "q8_0",
                TIMES["q2_k"],
                TIMES["q8_0"],
                tuple(GridRow(n, m, n * 18.18) for n, m in ((100, 37), (200, 73), (300, 110))),
            ),
        ),
        curves=tuple(
            _curve(model, axis, scale)
            for axis in ("budget", "deadline")
            for model, scale in (("q2_k", 0.5), ("q8_0", 0.8))
        ),
        crossings=(
            _crossing("budget", 4100.0, 3500.0, 4700.0),
            _crossing("deadline", 5200.0, 4000.0, None),
        ),
        points=(
            PointAtBudget(
                "q2_k", "step", 100, 1818.0, 1700.0, Interval(0.2, 0.1, 0.3, 0.95, 60), False, True
            ),
            PointAtBudget(
                "q8_0", "step", None, None, None, Interval(0.7, 0.6, 0.8, 0.95, 60), True
            ),
        ),
        choices=(
            Choice(
                "deadline",
                60.0,
                (Candidate("q2_k", "step", 0.2, 0.1, 0.3, False),),
                "q2_k/step",
                False,
                "At a deadline of 60 s use q2_k/step: 20.0%.",
            ),
        ),
        quoted=(
            Quoted(
                "q8-accuracy", "Llama-3.1-8B", "Q8_0", 70.9, "%", "the experiment", is_accuracy=True
            ),
        ),
        notes=("The experiment published no curve as numbers.",),
    )


def _curve(model: str, axis: Axis, top: float) -> Curve:
    points = []
    for tokens in (50, 100, 150, 200, 250, 300, 350):
        share = top * min(1.0, (tokens / 320) ** (1 if model == "q2_k" else 1.6))
        points.append(
            CurvePoint(
                tokens * TIMES[model] / (1 if model == "q2_k" else 2.2),
                share,
                max(0.0, share - 0.08),
                min(1.0, share + 0.08),
                tokens > 300,
                tokens if axis == "budget" else None,
            )
        )
    return Curve(model, "step", axis, False, tuple(points), measured_until=5454.0)


def _crossing(axis: Axis, at: float, low: float, high: float | None) -> Crossing:
    return Crossing(
        axis,
        "crossing" if high else "after",
        "q2_k/step",
        "q8_0/step",
        at,
        low,
        high,
        "q2_k/step",
        "q8_0/step" if high else None,
        909.0,
        5454.0,
        "Use q2_k/step below about 68 min and q8_0/step above.",
    )
