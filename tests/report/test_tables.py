import json
import re
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from records_made import energy, model, run, timing, trial
from rich.console import Console
from rich.table import Table

from labctl.errors import ProgramFailed
from labctl.records.board import BoardFacts, Execution
from labctl.records.energy import PhaseEnergy
from labctl.records.timing import BenchTest, Measure, TimingRecord
from labctl.records.trial import (
    Check,
    Failure,
    JobStatus,
    TelemetrySummary,
    TrialRecord,
    TrialState,
)
from labctl.report.console import print_fitting
from labctl.report.formats import run_document
from labctl.report.tables import print_experiment, print_timing_table
from labctl.results.summary import summarise
from labctl.units import digits, duration, size

Q8 = {"variant": "q8_0", "model": model("q8_0", "Q8_0", size_bytes=145_000_000)}


wide_table = partial(print_timing_table, wide=True)


def drawn(function, *arguments) -> str:  # type: ignore[no-untyped-def]
    console = Console(file=StringIO(), width=200)
    function(console, *arguments)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_variant_is_the_geometric_mean_of_its_good_trials_figures() -> None:
    """Of each trial its mean; what is inside a trial has percentiles of its own."""
    fast = [trial(1), trial(2, timing=timing([100, 110, 300])), trial(3, timing=timing([90] * 9))]
    slow = [trial(4, **Q8, timing=timing([330, 330, 330]))]
    first, second = summarise([*fast, *slow])
    estimate = (110 * 170 * 90) ** (1 / 3)
    assert first.token_ns == pytest.approx(estimate * 1e6)
    assert first.token_median_ns == 110_000_000
    assert first.figures["tokens_per_second"] == pytest.approx(1000 / estimate)
    assert first.figures["token_p50_ns"] == pytest.approx((110 * 110 * 90) ** (1 / 3) * 1e6)
    assert first.figures["generated_tokens"] == 18
    assert first.trials_ok == 3
    assert second.ratio == pytest.approx(330 / estimate)


def row_of(text: str, variant: str) -> dict[str, str]:
    """The cells of a variant in the first table, by column."""
    lines = text.splitlines()
    columns = (
        "trials", "tokens", "TTFT", "per token", "interval", "median", "tokens/s", "ratio",
        "bound by", "checks",
    )  # fmt: skip
    (line,) = [line for line in lines if line.startswith(variant) and " bits  " in line]
    cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
    return dict(zip(columns, cells[-len(columns) :], strict=True))


def test_the_table_has_one_estimate_of_a_token() -> None:
    """Half of the tokens are fast and half slow: no 18.3 ms beside 25.2 tokens a second."""
    two_kinds = [18.3] * 17 + [62.4] * 16
    trials = [
        trial(
            n,
            timing=timing([ms * s for ms in two_kinds], p90_ns=round(62.4e6 * s)),
        )
        for n, s in ((1, 1.01), (2, 1.01**2), (3, 1.01**3))
    ]
    text = drawn(wide_table, run(), trials)
    row = row_of(text, "q2_k")
    assert (row["per token"], row["tokens/s"]) == ("40.5 ms", "24.7")
    assert row["interval"] == "39.5 ms - 41.5 ms"
    assert "q2_k 18.7 ms 18.7 ms 63.7 ms" in [" ".join(line.split()) for line in text.splitlines()]


def test_the_ratio_is_that_of_whole_rounds_with_its_interval() -> None:
    """The board got slow between two rounds: the ratio of the variants' estimates is 0.79."""
    first = [(1, 100), (2, 110), (3, 172), (4, 180)]
    second = [(1, 88), (2, 95), (3, 150)]
    trials = [trial(2 * n, repeat=n, timing=timing([ms] * 4)) for n, ms in first]
    trials += [trial(2 * n + 1, repeat=n, timing=timing([ms] * 4), **Q8) for n, ms in second]
    asked = run(variants=("q2_k", "q8_0"))
    text = drawn(wide_table, asked, trials)
    assert row_of(text, "q2_k")["ratio"] == "1.00"
    assert row_of(text, "q8_0")["ratio"] == "0.872 (0.852-0.892)"
    assert (
        "q8_0: 0.872 times the token time of q2_k (95% interval 0.852 to 0.892, 3 rounds)" in text
    )
    _, row = summarise(trials, asked.variants)
    assert row.ratio_interval is not None
    assert row.ratio == row.ratio_interval.mean
    # Rounds that have only one of both make no pair.
    single = drawn(wide_table, asked, [*trials[:4], trials[6]])
    assert row_of(single, "q8_0")["ratio"] == "~1.10"
    assert "times the token time" not in single


def test_a_trial_alone_has_no_interval_and_two_have_a_wide_one() -> None:
    assert row_of(drawn(wide_table, run(), [trial(1)]), "q2_k")["interval"] == "-"
    two = [trial(n, timing=timing([ms] * 4)) for n, ms in ((1, 100), (2, 104))]
    assert row_of(drawn(wide_table, run(), two), "q2_k")["interval"] == "79.5 ms - 131 ms"


def test_repeats_that_are_the_same_have_no_figure_of_rounding_errors() -> None:
    alike = [trial(n, timing=timing([100.3] * 7)) for n in range(1, 6)]
    assert " 100 ms ± 0.0% " in drawn(print_timing_table, run(), alike)
    near = [trial(n, timing=timing([100.0 + n / 1000] * 4)) for n in range(1, 6)]
    assert " 100 ms ± 0.0020% " in drawn(print_timing_table, run(), near)


def test_intervals_are_of_the_level_and_the_stop_that_the_recipe_asks_for() -> None:
    trials = [trial(n, timing=timing([ms] * 4)) for n, ms in enumerate((100, 102, 101, 103), 1)]
    shown = {}
    for level in (0.9, 0.95):
        until = {"confidence_interval": 0.5, "level": level}
        text = drawn(wide_table, run(recipe_resolved={"repeats_until": until}), trials)
        assert f"{level:.0%} interval" in text
        assert f"({level:.0%} interval" in text
        shown[level] = row_of(text, "q2_k")["interval"]
    # So few say no more at the lower level: the interval is that of the higher one.
    assert shown == {0.9: "90.9 ms - 113 ms", 0.95: "90.9 ms - 113 ms"}
    fixed = drawn(wide_table, run(), trials)
    assert row_of(fixed, "q2_k")["interval"] == "99.5 ms - 104 ms"


def test_machines_get_the_same_estimates_and_what_they_got_before(tmp_path: Path) -> None:
    trials = [trial(2 * n, repeat=n, timing=timing([100 + n] * 4)) for n in (1, 2, 3)]
    trials += [trial(2 * n + 1, repeat=n, timing=timing([200 + n] * 4), **Q8) for n in (1, 2, 3)]
    asked = run(variants=("q2_k", "q8_0"))
    first, second = json.loads(json.dumps(run_document(asked, trials, tmp_path)))["rows"]
    assert first["estimate"] == "geometric mean"
    assert first["token_ns"] == first["token_p50_ns"] == round(first["token_interval"]["mean"])
    assert first["token_median_ns"] == 102_000_000
    assert first["token_interval"]["low"] == pytest.approx(99.5e6, rel=1e-3)
    assert (first["ratio"], first["ratio_interval"]) == (1.0, None)
    found = second["ratio_interval"]
    assert found["low"] < second["ratio"] == found["mean"] < found["high"]
    assert (found["level"], found["count"]) == (0.95, 3)
    assert {"token_p10_ns", "token_p90_ns", "tokens_per_second"} <= second.keys()


def test_an_interval_is_around_its_own_estimate_and_the_median_is_beside_it() -> None:
    """Sixteen trials on fast cores, four on slow ones: the interval is above the median."""
    times = [100.0 + n / 100 for n in range(16)] + [150.0] * 4
    trials = [trial(n, timing=timing([ms] * 4)) for n, ms in enumerate(times, 1)]
    (row,) = summarise(trials)
    assert row.token_interval is not None
    assert row.token_interval.low < 108.5e6 < row.token_interval.high
    assert (row.token_ns, row.token_median_ns) == (108_512_231, 100_095_000)
    cells = row_of(drawn(wide_table, run(), trials), "q2_k")
    assert (cells["per token"], cells["interval"], cells["median"]) == (
        "109 ms", "100 ms - 117 ms", "100 ms",
    )  # fmt: skip


def test_energy_is_shown_where_a_meter_told_it() -> None:
    more = energy(joules=60.0, joules_per_token=None, peak_watts=7.0)
    text = drawn(
        wide_table,
        run(),
        [trial(1, energy=energy()), trial(2, energy=more), trial(3, **Q8)],
    )
    (line,) = [line for line in text.splitlines() if " J " in line]
    assert " ".join(line.split()) == "q2_k 49.0 J 1.25 J - - 5.00 W 7.00 W"
    few = PhaseEnergy(joules_per_token=0.5, uncertainty_joules=0.06, readings=34)
    none = PhaseEnergy(absent="4 readings in the phase; 10 are the least")
    text = drawn(wide_table, run(), [trial(1, energy=energy(prompt=none, decode=few))])
    assert "net energy per token: ± 12% in a trial, with 34 readings in the phase" in text
    why = "no net energy per prompt token of 1 trials: 4 readings in the phase; 10 are the least"
    assert why in " ".join(text.split())
    assert "q2_k 40.0 J 1.25 J - 0.500 J" in " ".join(text.split())
    assert "energy" not in drawn(wide_table, run(), [trial(1)])


def test_energy_that_is_not_known_is_told() -> None:
    away = energy(
        joules=None, mean_watts=None, peak_watts=None, joules_per_token=None, coverage=None,
        absent="0 readings in 30 s; [3] are the least",
    )  # fmt: skip
    text = drawn(wide_table, run(), [trial(1, energy=away)])
    assert "energy of 1 of its trials is not known: 0 readings in 30 s; [3] are the least" in text
    assert "mean power" not in text
    (row,) = summarise([trial(1, energy=away)])
    assert row.energy is not None
    assert (row.energy.trials, row.figures["joules"], row.energy.absent) == (0, None, 1)


def test_energy_that_cannot_be_hides_no_other() -> None:
    """A board that charges meanwhile, or a meter that counts in steps, says 0 J or less."""
    odd = energy(joules=0.0, mean_watts=0.0, joules_per_token=0.0)
    trials = [trial(1, energy=energy()), trial(2, energy=odd)]
    assert "energy of 1 of its trials is not known: its meter says 0 J" in drawn(
        wide_table, run(), trials
    )
    (row,) = summarise(trials)
    assert row.energy is not None
    assert (row.energy.trials, row.figures["joules"], row.figures["joules_per_token"]) == (
        1, pytest.approx(40), pytest.approx(1.25),
    )  # fmt: skip


def test_a_row_without_figures_has_no_checks_that_held() -> None:
    """Its program printed tokens that nobody counted: what the board did meanwhile is not it."""
    uncounted = TimingRecord(perf_format="command", arrivals=40, token_lines=None)
    held = (
        Check(name="tokens", ok=None, detail="the number of generated tokens is unknown"),
        Check(name="quiet", ok=True, detail="3% of a CPU"),
    )
    text = drawn(wide_table, run(), [trial(1, timing=uncounted, checks=held)])
    assert row_of(text, "q2_k")["checks"] == "none"
    assert row_of(drawn(wide_table, run(), [trial(1, checks=held)]), "q2_k")["checks"] == "ok"


def test_warm_ups_and_failures_are_no_result() -> None:
    crash = Failure.of(ProgramFailed("llama-cli was killed by SIGILL"))
    (row,) = summarise(
        [
            trial(1, repeat=0, timing=timing([900])),
            trial(2, state=TrialState.FAILED, failure=crash, timing=timing([1])),
            trial(3, state=TrialState.SKIPPED, timing=None),
        ]
    )
    assert (row.trials_ok, row.trials_failed, row.trials_skipped) == (0, 1, 1)
    assert row.figures["token_p50_ns"] is None
    assert row.ratio is None


def test_the_table_shows_results_checks_and_failures() -> None:
    bad = trial(2, checks=(Check(name="token count", ok=False, detail="3 of 4"),))
    crash = Failure.of(ProgramFailed("llama-cli was killed by SIGILL"))
    failed = trial(3, **Q8, state=TrialState.FAILED, failure=crash, timing=None)
    text = drawn(wide_table, run(), [trial(1), bad, failed])
    row = next(line for line in text.splitlines() if line.startswith("q2_k"))
    for cell in ("Q2_K, 5.20 bits", "88.0 MB", "2/2", "2.00 s", "110 ms", "9.09", "1.00"):
        assert cell in row
    assert "FAILED: token count" in row
    assert "no result" in text
    assert "q8_0: job: llama-cli was killed by SIGILL" in text
    assert "EMULATED" not in text


@pytest.mark.parametrize(
    ("checks", "shown"),
    [
        ([(True,), (True, None)], "ok"),
        ([(), ()], "none"),
        ([(None,), (None, None)], "none"),
        ([(True,), ()], "none"),
        ([(True, False), ()], "FAILED: c1"),
    ],
)
def test_ok_is_said_only_of_what_was_checked(
    checks: list[tuple[bool | None, ...]], shown: str
) -> None:
    trials = [
        trial(n, checks=tuple(Check(name=f"c{i}", ok=ok, detail="d") for i, ok in enumerate(oks)))
        for n, oks in enumerate(checks, 1)
    ]
    text = drawn(wide_table, run(), trials)
    row = next(line for line in text.splitlines() if line.startswith("q2_k "))
    assert " ".join(row.split()).endswith(f" {shown}")


def test_what_is_not_judged_is_named_and_is_not_ok() -> None:
    held = Check(name="tokens", ok=True, detail="4 of 4")
    rest = [Check(name="span", ok=None, detail="fewer than two tokens")]
    why = {"drift": "emulated", "memory": "the board does not report it", "steal": "emulated"}
    rest += [Check(name=name, ok=None, detail=f"not judged: {of}") for name, of in why.items()]
    trials = [trial(n, checks=(held, *rest)) for n in (1, 2)]
    wide = drawn(wide_table, run(), trials)
    assert "ok; not judged: drift, memory, steal" in " ".join(wide.split())
    narrow = drawn(print_timing_table, run(), trials)
    assert re.search(r"^q2_k .* partly$", narrow, re.M)
    told = "not judged: drift, steal (emulated); memory (the board does not report it)"
    assert told in " ".join(narrow.split())


def test_checks_of_a_trial_without_figures_are_none() -> None:
    quiet = Check(name="quiet", ok=True, detail="everything else used 1% of one CPU")
    (row,) = summarise([trial(1, timing=TimingRecord(arrivals=3), checks=(quiet,))])
    assert row.checked is False


def test_phases_memory_and_reads_have_a_table_of_their_own() -> None:
    def measured(number: int, rss: int) -> TrialRecord:
        job = JobStatus(
            outcome="exited", exit_status=0, start_mono_ns=0, end_mono_ns=9, wall_ns=4 * 10**9,
            max_rss_bytes=rss, stdout_bytes=0, stderr_bytes=0, boot_id="b", epoch=1,
        )  # fmt: skip
        evidence = TelemetrySummary(samples=9, read_bytes_per_token=3_180_000_000)
        return trial(number, job=job, evidence=evidence, timing=timing([100], load_ns=10**9))

    text = drawn(wide_table, run(), [measured(1, 100_000_000), measured(2, 200_000_000)])
    head = next(n for n, line in enumerate(text.splitlines()) if "end to end" in line)
    cells = text.splitlines()[head + 1].split("  ")
    assert [cell.strip() for cell in cells if cell] == [
        "q2_k", "1.00 s", "500 ms", "-", "4.00 s", "200 MB", "3.18 GB",
    ]  # fmt: skip
    bare = drawn(wide_table, run(), [trial(1, timing=TimingRecord())])
    assert "end to end" not in bare


def test_a_run_that_moved_says_so_first() -> None:
    table = drawn(wide_table, run(), [trial(1), trial(2, board="rk[2]"), trial(3)])
    assert (
        "measured on 2 boards: rk1 (trials 1,3), rk[2] (trials 2); each round of repeats is"
        " whole on one of them" in table
    )
    assert "boards:" not in drawn(wide_table, run(), [trial(1), trial(2)])


def test_ratios_are_to_the_recipes_first_variant_whichever_ran_first() -> None:
    slow = trial(1, **Q8, timing=timing([300, 300, 300]))
    rows = summarise([slow, trial(2, timing=timing([100, 100, 100]))], ("q2_k", "q8_0", "never"))
    assert [(row.variant, row.ratio) for row in rows] == [("q2_k", 1.0), ("q8_0", 3.0)]
    shown = drawn(wide_table, run(variants=("q2_k", "q8_0")), [slow, trial(2)])
    assert shown.index("q2_k ") < shown.index("q8_0 ")


def test_an_emulated_table_says_so_first() -> None:
    facts = BoardFacts(
        execution=Execution.EMULATED,
        machine="x86_64",
        kernel="6",
        boot_id="b",
        emulator="qemu -cpu a76",
    )
    text = drawn(wide_table, run(facts=facts), [trial(1)])
    assert text.splitlines()[1].startswith("EMULATED (qemu -cpu a76)")


def test_text_from_records_is_not_markup() -> None:
    crash = Failure.of(ProgramFailed("[bold]x[/nope]"))
    text = drawn(
        wide_table,
        run(board="[red]rk1"),
        [trial(1, state=TrialState.FAILED, failure=crash, timing=None)],
    )
    assert "[red]rk1" in text
    assert "[bold]x[/nope]" in text


def test_the_experiment_form_lists_every_token_with_mean_and_ratio() -> None:
    slow = trial(2, **Q8, timing=timing([300, 300, 300]))
    text = drawn(print_experiment, run(), [trial(1), slow])
    assert "0.100   0.110   0.120" in text
    assert "mean 0.110 s a token over 3, ratio 1.00" in text
    assert "mean 0.300 s a token over 3, ratio 2.73" in text


def test_the_experiment_form_has_the_tables_figures_of_several_trials() -> None:
    """All tokens put together were a third figure: 0.150 s, and 1.87 times as long."""
    trials = [
        trial(n, repeat=n, timing=timing([ms] * 4)) for n, ms in ((1, 100), (2, 110), (3, 240))
    ]
    slow = ((1, 150), (2, 330), (3, 360))
    trials += [trial(3 + n, repeat=n, **Q8, timing=timing([ms] * 4)) for n, ms in slow]
    asked = run(variants=("q2_k", "q8_0"))
    text = drawn(print_experiment, asked, trials)
    assert "geometric mean of 3 trials' means 0.138 s a token over 12, ratio 1.00" in text
    assert "geometric mean of 3 trials' means 0.261 s a token over 12, ratio 1.89" in text
    table = drawn(wide_table, asked, trials)
    assert row_of(table, "q8_0")["per token"] == "261 ms"
    assert row_of(table, "q8_0")["ratio"] == "~1.89"  # 0.70 to 5.11 is no interval


def test_tokens_that_came_together_are_in_the_mean_but_are_no_single_token() -> None:
    merged = timing(
        [100, 200, 100, 100],
        generated_tokens=6,
        merged_chunks=(1,),
        mean_ns=100_000_000,
        p90_ns=100_000_000,
    )
    (row,) = summarise([trial(1, timing=merged)])
    assert (row.figures["token_p50_ns"], row.figures["token_p90_ns"]) == (100_000_000, 100_000_000)
    text = drawn(print_experiment, run(), [trial(1, timing=merged)])
    assert "mean 0.100 s a token over 5" in text


def test_the_experiment_form_counts_no_token_that_was_in_no_gap() -> None:
    ends = timing([100, 100, 100], generated_tokens=6, unseen_first=1, unseen_last=1)
    text = drawn(print_experiment, run(), [trial(1, timing=ends)])
    assert "mean 0.100 s a token over 3, ratio 1.00" in text
    unknown = timing([100, 100, 100], generated_tokens=6, mean_ns=None)
    text = drawn(print_experiment, run(), [trial(1, timing=unknown)])
    assert "mean 0" not in text
    assert "no mean: the number of tokens is unknown" in text


def test_a_record_without_a_token_time_adds_none() -> None:
    unseen = timing([100, 800], generated_tokens=11, merged_chunks=(1,), p50_ns=None)
    (row,) = summarise([trial(1, timing=unseen)])
    assert row.figures["token_p50_ns"] is None
    # The median of single tokens stands in for no mean, nor its reciprocal for a rate.
    withheld = timing([100, 110, 120], mean_ns=None, tokens_per_second=None)
    (row,) = summarise([trial(1, timing=withheld)])
    assert (row.figures["token_p50_ns"], row.token_ns) == (110_000_000, None)
    assert (row.figures["tokens_per_second"], row.ratio) == (None, None)


def test_without_the_first_row_there_is_no_ratio() -> None:
    crash = Failure.of(ProgramFailed("llama-cli was killed by SIGILL"))
    failed = trial(1, **Q8, state=TrialState.FAILED, failure=crash, timing=None)
    rows = summarise([failed, trial(2)])
    assert [row.ratio for row in rows] == [None, None]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"),
        (381_430_000, "381 ms"),
        (18_180_000_000, "18.2 s"),
        (120_000_000_000, "120 s"),
        (3_600_000_000_000, "60.0 min"),
        (999, "999 ns"),
        (1500, "1.50 µs"),
    ],
)
def test_durations(ns: int | None, text: str) -> None:
    assert duration(ns) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (0.01984, "0.0198"), (9.996, "10.0"), (99.96, "100"), (1234.5, "1234")],
)
def test_slow_rates_keep_three_digits(value: float, text: str) -> None:
    assert digits(value) == text


def test_sizes() -> None:
    assert [size(n) for n in (None, 999, 145_000_000, 3_180_000_000)] == [
        "-",
        "999 B",
        "145 MB",
        "3.18 GB",
    ]


def bench_timing(**changes: object):  # type: ignore[no-untyped-def]
    tests = (
        BenchTest.of(
            prompt_tokens=16, generated_tokens=0, depth=0, samples_ns=(100_000_000, 200_000_000)
        ),
        BenchTest.of(
            prompt_tokens=0, generated_tokens=8, depth=64, samples_ns=(400_000_000, 800_000_000)
        ),
    )
    values = {"tests": tests, "prompt_tokens": 16, "prompt_eval_ns": 150_000_000}
    return TimingRecord.model_validate({**values, **changes})


def test_a_benchmark_has_a_row_for_each_test_over_all_trials() -> None:
    text = drawn(wide_table, run(), [trial(n, timing=bench_timing()) for n in (1, 2)])
    prompt, decode = (line for line in text.splitlines() if "pp16" in line or "tg8@d64" in line)
    for cell in ("q2_k", "pp16", "4", "150 ms", "110 ms", "190 ms", "107"):
        assert cell in prompt.split("  ") or cell in prompt
    assert "13.3" in decode
    (row,) = summarise([trial(1, timing=bench_timing())])
    assert row.figures["prefill_tokens_per_second"] == pytest.approx(16 / 0.15)


def test_other_measures_have_a_table_with_their_units() -> None:
    measures = (
        Measure(name="perplexity", unit="1", values=(9.5,), value=9.5, error=0.25),
        Measure(name="peak", unit="bytes", values=(2e6,), value=2e6),
    )
    text = drawn(wide_table, run(), [trial(1, timing=TimingRecord(measures=measures))])
    perplexity, peak = (line.split() for line in text.splitlines() if " pe" in line[:16])
    assert perplexity == ["q2_k", "perplexity", "1", "9.5", "-", "-", "0.25"]
    assert peak == ["q2_k", "peak", "1", "2.00", "MB", "-", "-", "-"]


def test_records_without_them_show_neither_table() -> None:
    text = drawn(wide_table, run(), [trial(1)])
    assert "repetitions" not in text
    assert "measure" not in text


def test_no_word_of_a_program_reaches_the_terminal_as_more_than_a_word() -> None:
    evil = "\x1b]0;owned\x07[bold]x"
    shape = Measure(name=evil, unit="1", values=(1.0,), value=1.0)
    said = Check(name="build", ok=False, detail=f"the program says {evil}")
    text = drawn(wide_table, run(), [trial(timing=TimingRecord(measures=(shape,)), checks=(said,))])
    assert "\x1b" not in text
    assert text.count("\\x1b]0;owned\\x07[bold]x") == 2


def on_terminal(columns: int, *arguments, **options) -> list[str]:  # type: ignore[no-untyped-def]
    """The lines of a table as a terminal of so many columns shows them."""
    console = Console(file=StringIO(), width=columns, force_terminal=True, color_system=None)
    print_timing_table(console, *arguments, **options)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


LONG = ("llama-3.1-8b-instruct-q4_k_m-threads4", "llama-3.1-8b-instruct-q8_0-threads4")


def slow_trials(names: tuple[str, ...]) -> list[TrialRecord]:
    """Three trials each, whose figures are as wide as they come."""
    lost = Check(name="frequency", ok=False, detail="the clock fell")
    return [
        trial(
            3 * which + n,
            repeat=n,
            variant=name,
            timing=timing([9990.0 + n] * 4, ttft_ns=599_000_000_000),
            checks=(lost,),
        )
        for which, name in enumerate(names)
        for n in (1, 2, 3)
    ]


def test_in_80_columns_the_table_has_seven_columns_and_no_row_breaks() -> None:
    lines = on_terminal(80, run(variants=LONG), slow_trials(LONG))
    assert max(map(len, lines)) <= 80
    head, first, second = lines[1:4]
    assert re.split("  +", head) == [
        "variant",
        "good",
        "TTFT",
        "time per token ± 95%",
        "tokens/s",
        "ratio",
        "checks",
    ]
    assert re.split("  +", first)[1:] == [
        "3/3",
        "599 s",
        "9.99 s ± 0.025%",
        "0.100",
        "1.00",
        "FAILED",
    ]
    # Shortened names still tell the rows apart.
    names = [line.split()[0] for line in (first, second)]
    assert len(set(names)) == 2
    assert all("…" in name for name in names)


def test_the_wide_table_and_a_pipe_have_whole_names() -> None:
    wide = on_terminal(80, run(variants=LONG), slow_trials(LONG), wide=True)
    piped = drawn(print_timing_table, run(variants=LONG), slow_trials(LONG))
    for name in LONG:
        assert any(line.startswith(f"{name} ") for line in wide)
        assert any(line.startswith(f"{name} ") for line in piped.splitlines())
    assert "FAILED: frequency" in "\n".join(wide)


def test_an_estimate_of_some_of_the_trials_says_so() -> None:
    """A program that stops at its first token has no time per token, and no failed check."""
    one = TimingRecord(generated_tokens=1, arrivals=1, ttft_ns=2_000_000_000)
    trials = [trial(1), trial(2), trial(3, timing=one)]
    told = "q2_k: the time per token is of 2 of 3 good trials: the others have none"
    assert told in drawn(print_timing_table, run(), trials)
    assert "the others have none" not in drawn(print_timing_table, run(), trials[:2])
    nothing = [trial(n, timing=one) for n in (1, 2)]
    assert "the others have none" not in drawn(print_timing_table, run(), nothing)


def test_details_need_wide_and_results_do_not() -> None:
    timed = [trial(1, timing=timing([100, 110], load_ns=5), energy=energy())]
    assert "tokens inside" not in drawn(print_timing_table, run(), timed)
    text = drawn(wide_table, run(), timed)
    assert all(word in text for word in ("tokens inside", "prompt eval", "energy of"))
    assert "--wide" not in text
    assert "More: --wide" in drawn(print_timing_table, run(), timed)
    # What a benchmark measures is its result.
    assert "pp16" in drawn(print_timing_table, run(), [trial(1, timing=bench_timing())])


def test_an_interval_with_two_sides_is_shown_by_the_wider_one() -> None:
    two = [trial(1, timing=timing([100])), trial(2, timing=timing([104]))]
    shown = drawn(print_timing_table, run(), two)
    assert "102 ms ± 28%" in shown  # 79.5 ms to 131 ms
    assert "79.5 ms - 131 ms" in drawn(wide_table, run(), two)
    assert "100 ms  " in drawn(print_timing_table, run(), [trial(1, timing=timing([100]))])


def test_warm_ups_never_count() -> None:
    crash = Failure.of(ProgramFailed("llama-cli was killed by SIGILL"))
    warm_up = trial(
        1, repeat=0, slug="q2_k-w1", state=TrialState.FAILED, failure=crash, timing=None
    )
    skipped = [
        trial(1 + n, repeat=n, state=TrialState.SKIPPED, timing=None, skip_reason="trial 1 failed")
        for n in range(1, 6)
    ]
    text = drawn(print_timing_table, run(), [warm_up, *skipped])
    assert " 0/5 " in text
    assert "SIGILL" in text  # why there is nothing
    good = [trial(1, repeat=0), *(trial(1 + n, repeat=n) for n in range(1, 6))]
    assert " 5/5 " in drawn(print_timing_table, run(), good)


def made_table() -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "engine", "needs"):
        table.add_column(heading)
    table.add_row("q8_latency", "llama_cpp, completion", "build llama.cpp; missing: q8_0")
    return table


def fitted(columns: int, *, terminal: bool = True, spare: int = 0) -> list[str]:
    file = StringIO()
    console = Console(file=file, width=columns, force_terminal=terminal, color_system=None)
    print_fitting(console, made_table(), spare=spare)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_cells_wrap_between_words_the_last_first() -> None:
    assert fitted(55) == [
        "name        engine                 needs",
        "q8_latency  llama_cpp, completion  build llama.cpp;",
        "                                   missing: q8_0",
    ]
    assert fitted(40)[1:] == [
        "q8_latency  llama_cpp,        build",
        "            completion        llama.cpp;",
        "                              missing:",
        "                              q8_0",
    ]
    assert all(len(line) <= 40 for line in fitted(40))


def test_spare_columns_go_where_no_wrapping_helps() -> None:
    assert fitted(30, spare=1)[1:] == ["q8_latency  llama_cpp,", "            completion"]


def test_elsewhere_a_table_is_whole() -> None:
    assert fitted(40, terminal=False, spare=2)[1:] == [
        "q8_latency  llama_cpp, completion  build llama.cpp; missing: q8_0"
    ]
