"""Figures of what the board did and could do: telemetry, roofline, bounds, sweeps, history."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from measured_runs import PAIR, START, Made, measured
from records_made import BEGAN, model

from labctl.records.board import Execution
from labctl.records.telemetry import TelemetrySample
from labctl.records.trial import TrialState
from labctl.report.figures.catalogue import figures_of
from labctl.report.figures.figure import Figure
from labctl.report.figures.measured import MeasuredRun
from labctl.report.figures.tracks import tracks_of


def figure(name: str, *runs: MeasuredRun) -> Figure:
    return next(one for one in figures_of(runs).drawn if one.name.startswith(name))


def rows(of: Figure, kind: str) -> list[dict[str, Any]]:
    return [dict(row) for row in of.rows if row.get("kind") == kind]


def reasons(*runs: MeasuredRun) -> dict[str, str]:
    return {one.name: one.reason for one in figures_of(runs).missing}


def test_tokens_and_telemetry_share_one_time_axis() -> None:
    run = measured(PAIR[:1], repeats=1, tokens=6)
    found = figure("timeline", run)
    timing, job = run.trials[0].timing, run.trials[0].job
    assert timing
    assert timing.ttft_ns
    assert job
    tokens = rows(found, "token")
    assert tokens[0]["at"] == pytest.approx(timing.ttft_ns / 1e9)
    assert tokens[-1]["until"] == pytest.approx((timing.ttft_ns + sum(timing.token_ns)) / 1e9)
    heat = rows(found, "temperature-0")
    samples = run.telemetry(run.trials[0])
    assert [row["at"] for row in heat] == [
        pytest.approx((s.mono_ns - START) / 1e9, rel=1e-5) for s in samples
    ]
    assert [row["value"] for row in heat] == [
        pytest.approx(s.temperatures_mc["soc-thermal"] / 1000) for s in samples
    ]
    assert {row["name"] for row in heat} == {"soc-thermal"}


def test_bars_of_tokens_begin_at_zero_however_slow_one_token_is() -> None:
    run = measured(PAIR[:1], repeats=1, tokens=6)
    slow = run.trials[0].timing
    assert slow
    gaps = (slow.token_ns[0] * 100, *slow.token_ns[1:])
    timed = slow.model_copy(update={"token_ns": gaps})
    trial = run.trials[0].model_copy(update={"timing": timed})
    found = figure("timeline", replace(run, trials=[trial]))
    scales = [
        layer["encoding"]["y"]["scale"]
        for part in found.spec["vconcat"][1:2]
        for layer in part["layer"]
    ]
    assert scales == [{"zero": True, "nice": True}]


def test_phases_are_load_prompt_and_tokens_of_the_record() -> None:
    found = figure("timeline", measured(PAIR[:1], repeats=1, tokens=6))
    phases = {row["phase"]: (row["at"], row["until"]) for row in rows(found, "phase")}
    assert phases["load"] == (0, pytest.approx(1.1))  # TTFT 1.6 s, of which the prompt 0.5 s
    assert phases["prompt"] == (pytest.approx(1.1), pytest.approx(1.6))


def test_the_span_in_which_the_board_throttled_is_shaded() -> None:
    found = figure("timeline", measured(PAIR[:1], repeats=1, throttled=1))
    (band,) = rows(found, "throttled")
    slow = [row for row in rows(found, "frequency-0") if row["value"] < 1500]
    assert band["at"] == slow[0]["at"]
    assert band["until"] == slow[-1]["at"]
    assert not rows(figure("timeline", measured(PAIR[:1], repeats=1)), "throttled")


def test_a_throttled_trial_is_drawn_beside_the_typical_one() -> None:
    drawn = figures_of([measured(PAIR[:1], repeats=3, throttled=2)]).drawn
    names = [one.name for one in drawn if one.name.startswith("timeline")]
    assert "timeline-abcdef-2" in names
    assert len(names) == 2


def test_rates_are_growths_of_counters_and_never_negative() -> None:
    samples = [
        TelemetrySample.model_validate({"mono_ns": 10**9 * n, "majflt": faults})
        for n, faults in enumerate((100, 150, 0, 20))
    ]
    (track,) = tracks_of(samples)
    assert track.key == "faults"
    assert [value for _, value in track.lines[0].points] == [50, 0, 20, 20]


def test_what_the_board_does_not_report_has_no_track() -> None:
    samples = [TelemetrySample(mono_ns=n * 10**9, rss_bytes=10**6) for n in range(3)]
    assert [track.key for track in tracks_of(samples)] == ["memory"]
    assert tracks_of([]) == []


def test_cpus_that_ran_alike_are_one_line() -> None:
    samples = [
        TelemetrySample.model_validate(
            {"mono_ns": n, "freq_khz": {"cpu0": 1000, "cpu1": 1000, "cpu4": 2000 + n}}
        )
        for n in range(3)
    ]
    (track,) = tracks_of(samples)
    assert [line.name for line in track.lines] == ["0-1", "4"]


def test_telemetry_of_a_long_trial_is_thinned_to_its_ends() -> None:
    samples = [TelemetrySample(mono_ns=n, rss_bytes=n) for n in range(10_000)]
    (track,) = tracks_of(samples)
    points = track.lines[0].points
    assert len(points) < 300
    assert points[0][0] == 0
    assert points[-1][0] == 9_999


def test_the_roofline_has_the_probes_ceilings_and_the_variants_rates() -> None:
    run = measured()
    found = figure("roofline", run)
    roofs = {row["name"]: row for row in rows(found, "roof") if row["text"]}
    assert roofs["dram"]["rate"] / roofs["dram"]["intensity"] == pytest.approx(5.9, rel=1e-3)
    assert roofs["storage"]["rate"] / roofs["storage"]["intensity"] == pytest.approx(0.178)
    assert roofs["dram"]["text"] == "DRAM 5.90 GB/s"
    (q8, _q2) = rows(found, "point")
    weights = 8.5 / 8 * 135e6
    assert q8["intensity"] == pytest.approx(16 / 8.5, rel=1e-3)
    assert q8["rate"] == pytest.approx(weights / 0.38 * (16 / 8.5) / 1e9, rel=0.02)
    (ceiling, _) = rows(found, "arithmetic")
    assert ceiling["rate"] == pytest.approx(8.7 * weights * (16 / 8.5) / 1e9, rel=1e-3)


def test_no_roofline_without_the_boards_own_ceilings() -> None:
    run = measured()
    assert "no probe" in reasons(replace(run, probes=()))["roofline"]
    assert "EMULATED" in reasons(measured(execution=Execution.EMULATED))["roofline"]
    other = measured(board="rk2", run_id="20261121T223000Z-q2-fedcba")
    assert "several boards" in reasons(run, other)["roofline"]
    nameless = [t.model_copy(update={"model": model(bits_per_weight=None)}) for t in run.trials]
    assert "bits per weight" in reasons(replace(run, trials=nameless))["roofline"]


def test_bars_are_the_medians_of_the_recorded_shares() -> None:
    run = measured(repeats=3)
    found = {(row["series"], row["bound"]): row for row in rows(figure("bounds", run), "bar")}
    shares = sorted(t.bound.shares["dram"] for t in run.trials if t.bound and t.variant == "q2_k")
    assert found["q2_k", "dram"]["share"] == pytest.approx(shares[1], rel=1e-3)
    assert found["q8_0", "compute"]["text"] == "arithmetic 60%"


def test_records_without_bounds_say_why() -> None:
    for execution, reason in (
        (Execution.BOARD, "labctl boards probe"),
        (Execution.EMULATED, "not measured on a board"),
    ):
        run = measured(execution=execution)
        bare = replace(run, trials=[t.model_copy(update={"bound": None}) for t in run.trials])
        assert reason in reasons(bare)["bounds"]


def swept() -> MeasuredRun:
    variants = [
        Made(f"t{threads}-b{batch}", 400 / threads, parameters=(("threads", threads), ("b", batch)))
        for threads in (1, 2, 4)
        for batch in (32, 64)
    ]
    run = measured(variants, repeats=2, tokens=4)
    one = [t.model_copy(update={"model": model("q8_0")}) for t in run.trials]
    return replace(run, trials=one)


def test_two_numeric_axes_become_a_heat_map() -> None:
    run = swept()
    (found,) = [one for one in figures_of([run]).drawn if one.name.startswith("sweep")]
    cells = {(row["x"], row["y"]): row for row in found.rows}
    assert len(cells) == 6
    assert cells[4, 32]["time"] == pytest.approx(100, rel=0.05)
    assert sum("★" in str(row["text"]) for row in found.rows) == 1
    assert cells[1, 64]["kind"] == "high"


def test_cells_without_a_result_say_so() -> None:
    run = swept()
    trials = [
        t.model_copy(update={"state": TrialState.FAILED, "timing": None})
        if t.variant == "t1-b64"
        else t
        for t in run.trials
        if t.variant != "t4-b32"
    ]
    found = figure("sweep", replace(run, trials=trials))
    cells = {(row["x"], row["y"]): row["text"] for row in found.rows}
    assert cells[1, 64] == "failed"
    assert cells[4, 32] == "not run"
    assert "no run varies" in reasons(measured())["sweep"]


def test_one_numeric_axis_becomes_lines_with_their_intervals() -> None:
    variants = [
        Made(f"{key}-t{threads}", time / threads, parameters=(("threads", threads),))
        for key, time in (("q8_0", 400), ("q2_k", 200))
        for threads in (1, 2, 4)
    ]
    run = measured(variants, repeats=3, tokens=4)
    trials = [t.model_copy(update={"model": model(t.variant[:4])}) for t in run.trials]
    found = figure("sweep", replace(run, trials=trials))
    assert found.title == "Time per token over threads"
    points = {(row["series"], row["at"]): row for row in found.rows}
    assert len(points) == 6
    assert points["q2_k", 4]["time"] == pytest.approx(50, rel=0.05)
    assert points["q8_0", 1]["low"] < points["q8_0", 1]["time"] < points["q8_0", 1]["high"]


def test_runs_over_time_are_a_history() -> None:
    runs = []
    for n in range(3):
        run = measured(run_id=f"20261120T22300{n}Z-q2-{n:06x}", seed=n)
        record = run.run.model_copy(update={"started": BEGAN + timedelta(days=n)})
        runs.append(replace(run, run=record))
    found = figure("history", *runs)
    mine = [row for row in found.rows if row["series"] == "q2_k"]
    assert [row["run"] for row in mine] == [run.run.id for run in runs]
    assert [row["began"] for row in mine] == [
        round(run.run.started.timestamp() * 1000) for run in runs
    ]
    assert "3 runs" in reasons(*runs[:2])["history"]
