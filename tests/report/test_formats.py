"""Markdown and CSV of a result say what its table says."""

import csv
import io
from pathlib import Path

from records_made import model, run, timing, trial
from rich.console import Console

from labctl.errors import ProgramFailed
from labctl.records.board import BoardFacts, Execution
from labctl.records.run import GateRecord
from labctl.records.timing import BenchTest
from labctl.records.trial import Failure, TrialRecord, TrialState
from labctl.report.formats import result_text
from labctl.report.tables import print_timing_table

CRASH = Failure.of(ProgramFailed("llama-cli was killed by SIGILL\n| x | \x1b[2J<b>"))
MISSED = GateRecord(
    variant="q2_k", metric="tokens_per_second", limit=">= 20", value=9.1, passed=False, detail="9.1"
)
EMULATED = BoardFacts(
    execution=Execution.EMULATED, machine="x86_64", kernel="6", boot_id="b", emulator="qemu -cpu a7"
)
Q8 = {"variant": "q8_0", "model": model("q8_0", "Q8_0")}


def text_of(form: str, trials: list[TrialRecord], *gates: GateRecord, **changes: object) -> str:
    return result_text(form, run(**changes), trials, gates, Path())


def rows_of(trials: list[TrialRecord]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text_of("csv", trials))))


def test_markdown_has_failures_skips_gates_moves_and_the_emulator() -> None:
    failed = trial(2, **Q8, state=TrialState.FAILED, failure=CRASH, timing=None)
    skipped = trial(3, **Q8, state=TrialState.SKIPPED, skip_reason="max_time is over", timing=None)
    text = text_of("md", [trial(1), failed, skipped, trial(4, board="rk2")], MISSED, facts=EMULATED)
    for part in (
        "EMULATED (qemu -cpu a7): does not show the speed of a board",
        "- gate MISSED: q2_k tokens_per_second >= 20: 9.1",
        "- measured on 2 boards: rk1 (trials 1-3), rk2 (trials 4)",
        "- q8_0: job: llama-cli was killed by SIGILL",
        "- q8_0: 1 of its trials were not measured: max_time is over",
    ):
        assert part in text
    assert "\x1b" not in text
    assert "\n| x |" not in text  # the program's words make no row
    assert "<b>" not in text.replace("\\<", "")


def test_markdown_has_the_results_of_benchmarks() -> None:
    test = BenchTest(
        name="pp16", prompt_tokens=16, generated_tokens=0, depth=0, samples_ns=(10**9,),
        p50_ns=10**9, tokens_per_second=16,
    )  # fmt: skip
    text = text_of("md", [trial(1, timing=timing([100], tests=(test,)))])
    assert "| q2_k | pp16 |" in text


def test_csv_says_why_there_is_no_result() -> None:
    failed = trial(2, **Q8, state=TrialState.FAILED, failure=CRASH, timing=None)
    good, bad = rows_of([trial(1), failed])
    assert good["failures"] == ""
    assert bad["failures"].startswith("job: llama-cli was killed by SIGILL")
    assert "\x1b" not in bad["failures"]


def test_no_cell_of_csv_is_a_formula() -> None:
    (row,) = rows_of([trial(1, variant="=1+1", timing=timing([100]))])
    assert row["variant"].startswith("'=1")
    assert row["token_ns"] == "100000000"


def test_csv_has_no_control_character_and_no_change_of_direction() -> None:
    evil = "\x1b]0;owned\x07\u202egpj"
    text = text_of("csv", [trial(1, variant=evil)], recipe=evil, board=evil)
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert text.count(r"\x1b]0;owned\x07\x202egpj") == 3


def test_an_interval_over_100_percent_is_no_precision() -> None:
    """Two trials that differ by chance can have one over forty orders of magnitude."""
    apart = [trial(1, timing=timing([1])), trial(2, timing=timing([160]))]
    note = "q2_k: its 2 trials differ too much: the interval is wider than ± 100%"
    for wide in (False, True):
        console = Console(file=io.StringIO(), width=200)
        print_timing_table(console, run(), apart, wide=wide)
        assert isinstance(console.file, io.StringIO)
        shown = console.file.getvalue()
        assert note in shown
        assert len(shown) < 1500  # no figure of twenty digits
        assert " %" not in shown.replace("± 100%", "").replace("± 95%", "")
    assert note in text_of("md", apart)
    (row,) = rows_of(apart)
    assert row["token_low_ns"].isdecimal()
    assert row["token_high_ns"].isdecimal()


def test_rows_count_the_trials_that_have_a_rate() -> None:
    (row,) = rows_of([trial(1), trial(2, timing=timing([100], mean_ns=None))])
    assert (row["trials_ok"], row["trials_timed"]) == ("2", "1")
