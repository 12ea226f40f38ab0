"""Programs that labctl does not know, as a recipe describes them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_output import Session
from records_made import model

from labctl.config.recipe import EngineChoice
from labctl.engines.base import Inputs, RawOutput, Tool
from labctl.engines.command import Command
from labctl.engines.command.arguments import filled, placeholders
from labctl.engines.command.matching import find_all
from labctl.engines.command.numbers import in_base_unit
from labctl.engines.registry import make_engine
from labctl.errors import ConfigError, OutputNotUnderstood, ProgramFailed
from labctl.records.board import BoardFacts, Execution
from labctl.records.timing import TimingRecord
from labctl.records.trial import Check, JobStatus

MS = 1_000_000
TOOL = Tool("/bin/p", "run")
LOAD = {"pattern": "load (?P<l>[0-9.]+)", "values": {"l": {"metric": "load", "unit": "ms"}}}


def engine(**changes: Any) -> Command:
    values: dict[str, Any] = {
        "name": "command",
        "program": {"board": "/bin/p"},
        "arguments": ["{model}", "-n", "{tokens}"],
        "output": [LOAD],
    }
    written = {k: v for k, v in {**values, **changes}.items() if v is not None}
    made = make_engine(EngineChoice.model_validate(written))
    assert isinstance(made, Command)
    return made


def parse(stdout: str, *readers: dict[str, Any], stderr: str = "") -> TimingRecord:
    found = engine(output=list(readers))
    raw = RawOutput(stdout.encode(), stderr.encode(), b"")
    return found.parse(raw, found.parameters({"tokens": 4}))


def reader(pattern: str | None, metric: str, unit: str, **more: Any) -> dict[str, Any]:
    return {"pattern": pattern, "values": {"x": {"metric": metric, "unit": unit}}, **more}


def status(exit_status: int | None = 0, outcome: str = "exited", **more: Any) -> JobStatus:
    return JobStatus(
        outcome=outcome, exit_status=exit_status, start_mono_ns=0, end_mono_ns=1, wall_ns=1,
        stdout_bytes=1, stderr_bytes=1, boot_id="b", epoch=1, **more,
    )  # fmt: skip


# arguments


def test_every_argument_stays_one_word() -> None:
    made = engine(
        arguments=["--model={model}", "{prompt}", "{tokens}", "{fast}", "{{x}}", "{file:vocab}"]
    )
    assert (made.uses_prompt, made.files) == (True, ("vocab",))
    inputs = Inputs("/bin/p", "/b/m x", "$(reboot); {tokens}\n'", {"vocab": "/b/v"})
    words = made.command(TOOL, made.parameters({"tokens": 4, "fast": True}), inputs)
    assert words == [
        "/bin/p", "--model=/b/m x", "$(reboot); {tokens}\n'", "4", "true", "{x}", "/b/v",
    ]  # fmt: skip


@given(st.lists(st.text(max_size=20), max_size=5), st.text(max_size=30))
def test_what_is_put_in_is_never_looked_into(others: list[str], value: str) -> None:
    literal = [other.replace("{", "{{").replace("}", "}}") for other in others]
    assert placeholders(literal) == []
    assert filled([*literal, "{prompt}"], {"prompt": value}) == [*others, value]


@pytest.mark.parametrize("argument", ["{", "a}b", "{model", "{a b}", "{}", "{file:}", "{Model}"])
def test_braces_that_mean_nothing_are_refused(argument: str) -> None:
    with pytest.raises(ConfigError, match=r"engine\.arguments"):
        engine(arguments=[argument])


def test_placeholders_are_the_parameters() -> None:
    made = engine(arguments=["{model}", "{threads}", "{tokens}"])
    for values, why in [
        ({"threads": 2}, "tokens: this key is required"),
        ({"tokens": 2, "threads": 2, "thread": 1}, "did you mean 'threads'"),
        ({"tokens": 0, "threads": 2}, "tokens: must be at least 1"),
        ({"tokens": "4", "threads": 2}, "must be a whole number"),
        ({"tokens": 4, "threads": "a\0b"}, "NUL"),
    ]:
        with pytest.raises(ConfigError) as refused:
            made.parameters(values)
        assert why in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"program": None}, "engine.program: this key is required"),
        ({"arguments": None}, "engine.arguments: this key is required"),
        ({"output": None}, "engine: needs output or tokens"),
        ({"tokens": {"count": "model"}}, "engine.tokens.count: model is not a parameter"),
        (
            {"output": [reader("(?P<x>.)", "load", "tokens")]},
            "engine.output[0].values.x: load is in ns, us, ms or s, not in tokens",
        ),
        ({"output": [reader("(?P<x>.)", "load", "s", occurs="every")]}, "load is one number"),
        ({"output": [LOAD, LOAD]}, "engine.output[1].values.l: load is read twice"),
        ({"name": "llama_cpp", "output": None}, "engine.program: unknown key"),
        ({"outputs": []}, "engine.outputs: unknown key (did you mean 'output'?)"),
        ({"program": {"board": "/bin/p", "file": "p"}}, "exactly one of product, file or board"),
        ({"program": {"product": "p"}}, "give product and tool together"),
        ({"output": [reader("(?P<x>", "a", "s")]}, "not a regular expression"),
        ({"output": [reader("(?P<y>.)", "a", "s")]}, "the pattern has no group (?P<x>"),
        ({"output": [reader(None, "a", "s")]}, "either a pattern or json_lines"),
        ({"output": [reader("(?P<x>.)", "a", "hours")]}, "output[0].values.x.unit: must be ns, us"),
        ({"success": {"require": "["}}, "engine.success.require: not a regular expression"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        engine(**changes)
    assert why in str(refused.value)


# reading


def test_fields_and_measures_in_their_units() -> None:
    timing = parse(
        "load 12.5 ms\nprefill 7 tokens in 0.25 s\n",
        reader(r"load (?P<x>\S+) ms", "load", "ms"),
        {
            "pattern": r"prefill (?P<n>\d+) tokens in (?P<t>\S+) s",
            "values": {
                "n": {"metric": "prompt_tokens", "unit": "tokens"},
                "t": {"metric": "prompt_eval", "unit": "s"},
            },
        },
        reader(r"peak (?P<x>\d+)", "peak", "KiB", stream="stderr"),
        stderr="peak 3\n",
    )
    assert (timing.load_ns, timing.prompt_eval_ns) == (12_500_000, 250_000_000)
    assert timing.prompt_tokens == 7
    (peak,) = timing.measures
    assert (peak.name, peak.unit, peak.values) == ("peak", "bytes", (3072.0,))
    assert timing.perf_format == "command run"


def test_json_lines_by_path() -> None:
    text = 'starting\n{"event": 1}\n{"t": {"load": 2.5, "runs": [{"ns": 7}, {"ns": "9"}]}}\n'
    timing = parse(
        text,
        {
            "json_lines": True,
            "values": {
                "t.load": {"metric": "load", "unit": "s"},
                "t.runs.1.ns": {"metric": "second", "unit": "ns"},
            },
        },
    )
    assert timing.load_ns == 2_500_000_000
    assert timing.measures[0].value == 9


@pytest.mark.parametrize(
    ("occurs", "values"), [("first", (1.0,)), ("last", (3.0,)), ("every", (1.0, 2.0, 3.0))]
)
def test_which_match_counts(occurs: str, values: tuple[float, ...]) -> None:
    timing = parse("r 1\nr 2\nr 3\n", reader(r"^r (?P<x>\d)$", "run", "us", occurs=occurs))
    assert timing.measures[0].values == tuple(v * 1000 for v in values)


@pytest.mark.parametrize(
    ("text", "more", "why"),
    [
        ("nothing", {}, "is missing in the program's output on stdout"),
        ("v 1\nv 2\n", {}, "is 2 times in the program's output"),
        ("v nan\n", {}, "'nan' is not a number"),
        ("v 1e999999999\n", {}, "is not a number"),
        ("v -1\n", {}, "below 0"),
        ("v 12,5\n", {}, "'12,5' is not a number"),
        ("v 1e30\n", {}, "1e30 s is impossible"),
        ("v \n", {"pattern": r"v (?P<x>\d)?"}, "matches without a value for x"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, more: dict[str, Any], why: str) -> None:
    with pytest.raises(OutputNotUnderstood) as refused:
        parse(text, {**reader(r"v (?P<x>\S+)", "thing", "s"), **more})
    assert why in str(refused.value)


def test_what_is_optional_may_be_absent() -> None:
    timing = parse("load 1", LOAD, reader("v (?P<x>.)", "sampling", "s", optional=True))
    assert timing.sampling_ns is None


def test_a_line_of_json_may_hold_half_a_character() -> None:
    made = engine(output=[{"json_lines": True, "values": {"t": {"metric": "a", "unit": "s"}}}])
    raw = RawOutput(b'{"text": "\xe2\x82", "t": 2}\r\n', b"", b"")
    assert made.parse(raw, made.parameters({"tokens": 4})).measures[0].value == 2e9


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e400", "true", "null", "[1]"])
def test_a_value_of_json_that_is_no_number_is_refused(value: str) -> None:
    readers = {"json_lines": True, "values": {"t": {"metric": "a", "unit": "s"}}}
    with pytest.raises(OutputNotUnderstood):
        parse(f'{{"t": {value}}}', readers)


@pytest.mark.parametrize("line", ['{"t": }', "{" * 100_000, '{"t": 1e5, "t": 2}x'])
def test_json_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(OutputNotUnderstood, match="is not JSON"):
        parse(line, {"json_lines": True, "values": {"t": {"metric": "a", "unit": "s"}}})


def test_a_catastrophic_pattern_is_given_up() -> None:
    with pytest.raises(OutputNotUnderstood, match=r"in this output did not end within 1 s of CPU"):
        find_all([("(a+)+b", b"a" * 60)], cpu_seconds=1)


def test_groups_are_cut_before_they_fill_the_memory() -> None:
    """A hundred thousand matches that each hold the rest of the text."""
    ((first, *rest),) = find_all([("(?=(?P<x>.*))x(?P<y>z)?", b"x" * 90_000)])
    assert (len(first["x"] or ""), first["y"], len(rest)) == (200, None, 89_999)


def test_too_many_matches_are_refused() -> None:
    with pytest.raises(OutputNotUnderstood, match="matches more than 100000 times"):
        find_all([("(?P<x>.)", b"x" * 100_001)])


def test_a_search_that_wants_too_much_memory_is_given_up() -> None:
    with pytest.raises(OutputNotUnderstood, match="too much memory"):
        find_all([("(?P<x>b)", b"a" * (100 << 20))], memory_bytes=120 << 20)


def test_long_output_and_any_bytes_are_searched() -> None:
    noise = bytes(range(256)) * 10_000
    found = find_all([(r"x=(?P<x>\d+)", noise + b"x=5\n"), ("^(?P<y>q)$", b"p\nq\n")])
    assert found == [[{"x": "5"}], [{"y": "q"}]]


@given(st.integers(min_value=0, max_value=10**15))
def test_times_are_exact(ns: int) -> None:
    assert in_base_unit(f"{ns / 1000:.3f}" if ns < 10**12 else str(ns), "us") % 1 == 0
    assert in_base_unit(str(ns), "ns") == ns


# the timeline

SAID = reader("^made (?P<x>[0-9]+)$", "generated_tokens", "tokens", stream="stderr")


def streamed(
    each: str, *pieces: tuple[float, bytes], count: int | None = 4, said: int | None = None
) -> TimingRecord:
    """What is read of pieces of stdout.

    ``count``: of tokens, as a parameter of the recipe says it; ``said``: as the program does.
    """
    timing, _ = checked(each, *pieces, count=count, said=said)
    return timing


def checked(
    each: str, *pieces: tuple[float, bytes], count: int | None = 4, said: int | None = None
) -> tuple[TimingRecord, dict[str, Check]]:
    """And what is checked of it."""
    made = engine(
        tokens={"stream": "stdout", "each": each, **({"count": "n"} if count else {})},
        output=[SAID] if said else None,
        arguments=[],
    )
    session = Session()
    for at_ms, data in pieces:
        session.out(at_ms, data)
    if said:
        session.err(pieces[-1][0] + 1, b"made %d\n" % said)
    given = made.parameters({"n": count} if count else {})
    timing = made.parse(session.raw(), given)
    return timing, {check.name: check for check in made.checks(timing, given)}


def test_each_chunk_is_a_token() -> None:
    timing = streamed("chunk", (100, b"a"), (150, b"b c"), (250, b"d"), count=3)
    assert timing.ttft_ns == 100_000_000
    assert timing.token_ns == (50_000_000, 100_000_000)
    assert (timing.generated_tokens, timing.arrivals) == (3, 3)
    assert timing.tokens_per_second == pytest.approx(2 / 0.15)


def test_each_line_is_a_token_also_where_lines_come_in_pieces() -> None:
    timing = streamed("line", (10, b"on"), (20, b"e\n"), (30, b"two\nthree\n"), (50, b"four\nrest"))
    assert (timing.generated_tokens, timing.arrivals) == (4, 3)
    assert timing.token_ns == (10_000_000, 20_000_000)


def test_tokens_that_came_with_the_first_are_not_counted_after_it() -> None:
    steps = [(40 + 10 * n, b"x\n") for n in range(6)]
    timing, checks = checked("line", (10, b"a\nb\n"), (20, b"c\n"), *steps, count=9)
    assert (timing.generated_tokens, timing.arrivals) == (9, 8)
    assert timing.ttft_ns is None
    assert timing.tokens_per_second == pytest.approx(7 / 0.08)
    assert checks["arrivals"].detail == (
        "9 lines in 8 arrivals for 9 tokens; not seen by themselves: the first"
    )


def test_lines_that_waited_for_the_end_are_in_no_rate() -> None:
    steps = [(100 + 10 * n, b"x\n") for n in range(13)]
    timing, checks = checked("line", *steps, (700, b"y\nz\n"), count=15)
    assert timing.mean_ns == 10_000_000
    assert timing.p99_ns == 10_000_000
    assert timing.ttft_ns == 100_000_000
    assert "not seen by themselves: the last 2" in checks["arrivals"].detail


def test_what_came_with_the_end_is_all_that_was_not_seen() -> None:
    """The last piece is an arrival, and its lines are not: one more than all that is missing."""
    steps = [(100 + 10 * n, b"x\n") for n in range(30)]
    timing, checks = checked("line", *steps, (700, b"x\n" * 10), count=40)
    assert (timing.token_lines, timing.arrivals) == (40, 31)
    assert checks["arrivals"].detail == (
        "40 lines in 31 arrivals for 40 tokens; not seen by themselves: the last 10"
    )


def test_a_first_token_that_is_not_seen_may_hide_a_stall() -> None:
    """Its step took 500 ms: without it the mean is 3 % too low, and nothing shows that."""
    steps = [(600 + 100 * n, b"x") for n in range(127)]
    timing, checks = checked("chunk", *steps, count=128)
    assert (timing.ttft_ns, timing.mean_ns, timing.tokens_per_second) == (None, None, None)
    assert "which is not known; no rate is given" in checks["arrivals"].detail


#: 32 tokens, 62.5 ms each, the first at 20 ms, as programs write them: what is wrong without a
#: count that is asked for.
MADE = [20 + 62.5 * n for n in range(32)]
WRITES: dict[str, tuple[str, list[tuple[float, bytes]]]] = {
    "two tokens a write": ("chunk", [(at, b"a b ") for at in MADE[1::2]]),
    "a character in three writes": (
        "chunk",
        [(at + 0.05 * part, "€".encode()[part : part + 1]) for at in MADE for part in range(3)],
    ),
    "a buffer of whole lines": ("line", [(2000, b"x\n" * 32)]),
    "a buffer of a piece": ("chunk", [(2000, b"x " * 32)]),
    "four lines a write": ("line", [(at, b"x\n" * 4) for at in MADE[3::4]]),
    "a buffer that ends in a line": (
        "line",
        [(MADE[n], text) for n, text in [(6, b"word\n" * 6 + b"w"), (12, b"ord\n" + b"word\n" * 5),
                                         (19, b"word\n" * 7), (25, b"word\n" * 6 + b"wo")]]
        + [(2900, b"rd\n" + b"word\n" * 6)],
    ),
    "a banner before": ("line", [(5, b"model loaded\n"), *((at, b"x\n") for at in MADE)]),
}  # fmt: skip


@pytest.mark.parametrize("writes", WRITES)
@pytest.mark.parametrize("told", ["parameter", "output", "nowhere"])
def test_a_figure_is_right_or_withheld_however_a_program_writes(writes: str, told: str) -> None:
    each, pieces = WRITES[writes]
    count, said = (32 if told == name else None for name in ("parameter", "output"))
    timing, checks = checked(each, *pieces, count=count, said=said)
    assert timing.generated_tokens == (None if told == "nowhere" else 32)
    assert timing.ttft_ns is None
    assert (timing.p50_ns, timing.p90_ns, timing.p99_ns) == (None, None, None)
    assert (timing.mean_ns, timing.tokens_per_second, timing.token_ns) == (None, None, ())
    assert not any(check.ok for check in checks.values())
    if told == "nowhere":
        assert "the number of generated tokens is unknown" in checks["tokens"].detail
    else:
        assert checks["arrivals"].ok is False


@pytest.mark.parametrize("each", ["chunk", "line"])
def test_without_a_count_nothing_is_told_of_tokens(each: str) -> None:
    pieces = [(at, b"x\n") for at in MADE]
    timing, checks = checked(each, *pieces, count=None)
    assert timing == TimingRecord(
        perf_format="command run", arrivals=32, token_lines=32 if each == "line" else None
    )
    assert checks["tokens"].ok is None
    timing, checks = checked(each, *pieces, count=32)
    assert timing.ttft_ns == 20_000_000
    assert timing.mean_ns == timing.p99_ns == 62_500_000
    assert timing.counted_by == "recipe"
    assert {name: check.ok for name, check in checks.items()} == {"arrivals": True}


def test_what_the_program_says_wins_over_the_parameter() -> None:
    steps = [(10 * n, b"x") for n in range(1, 5)]
    timing, checks = checked("chunk", *steps, count=9, said=4)
    assert (timing.generated_tokens, timing.counted_by) == (4, "program")
    assert timing.mean_ns == 10_000_000
    assert {name: check.ok for name, check in checks.items()} == {"tokens": False, "arrivals": True}
    assert checks["tokens"].detail == "4 of 9 generated"


def test_one_token_of_very_many_that_is_not_seen_leaves_the_typical_time() -> None:
    pieces = [(10.0 * n, b"x") for n in range(1, 300)]
    timing, checks = checked("chunk", *pieces, count=300)
    assert timing.tokens_per_second is None
    assert timing.p50_ns == 10_000_000
    assert timing.ttft_ns is None
    assert "which is not known" in checks["arrivals"].detail


def test_fewer_lines_than_tokens_are_told() -> None:
    timing, checks = checked("line", (10, b"a\n"), (20, b"b\n"))
    assert timing.tokens_per_second is None
    assert checks["arrivals"].ok is False
    assert checks["arrivals"].detail.startswith("2 arrivals for 4 tokens")


@pytest.mark.parametrize("count", ["model", "prompt"])
def test_the_count_is_a_parameter(count: str) -> None:
    with pytest.raises(ConfigError, match=f"{count} is not a parameter"):
        engine(tokens={"count": count})
    made = engine(tokens={"count": "n"}, arguments=[])
    with pytest.raises(ConfigError, match="n: must be at least 1"):
        made.parameters({"n": 0})


def test_a_stream_without_tokens_is_refused() -> None:
    with pytest.raises(OutputNotUnderstood, match="no token was printed"):
        streamed("line", (10, b"no end"))


# success


def test_exit_status_and_words_decide() -> None:
    made = engine(success={"exit_status": [0, 3], "require": "^done$", "refuse": "ERROR"})

    def diagnosed(job: JobStatus, stdout: bytes, stderr: bytes = b"") -> str | None:
        failure = made.diagnose(job, RawOutput(stdout, stderr, b""))
        assert failure is None or isinstance(failure, ProgramFailed)
        return failure.message if failure else None

    assert diagnosed(status(3), b"x\ndone\n") is None
    assert "did not print the recipe's success pattern" in str(diagnosed(status(), b"x"))
    assert "failure pattern" in str(diagnosed(status(), b"done\n", b"ERROR 5"))
    assert "ended with status 2" in str(diagnosed(status(2), b"done\n"))
    assert "SIGILL" in str(diagnosed(status(None, "signaled", signal=4), b"done\n"))


def test_a_status_of_0_can_be_a_failure() -> None:
    made = engine(success={"exit_status": [1]})
    failure = made.diagnose(status(0), RawOutput(b"", b"", b""))
    assert failure is not None
    assert "/bin/p ended with status 0" in failure.message


# what the rest of labctl is told


def test_the_key_of_comparability_holds_program_arguments_and_parameters() -> None:
    made = engine()
    key = made.comparability(TOOL, made.parameters({"tokens": 4}))
    assert key["program"] == "/bin/p"
    assert key["arguments"] == ["{model}", "-n", "{tokens}"]
    assert key["tokens"] == 4


def test_nothing_is_claimed_of_its_memory() -> None:
    made = engine()
    facts = BoardFacts(execution=Execution.BOARD, machine="aarch64", kernel="5", boot_id="b")
    parameters = made.parameters({"tokens": 4})
    assert made.memory(parameters, model()) is None
    assert made.resolve_defaults(parameters, facts, model()).parameters == parameters


def test_tokens_that_nobody_counts_are_noted() -> None:
    facts = BoardFacts(execution=Execution.BOARD, machine="aarch64", kernel="5", boot_id="b")

    def notes(**changes: Any) -> tuple[str, ...]:
        made = engine(arguments=[], **changes)
        given = {"n": 4} if changes.get("tokens", {}).get("count") else {}
        return made.resolve_defaults(made.parameters(given), facts, model()).notes

    (note,) = notes(tokens={"each": "line"})
    assert "no token is timed" in note
    assert "engine.tokens.count" in note
    assert notes(tokens={"each": "line", "count": "n"}) == ()
    assert notes(tokens={"each": "line"}, output=[SAID]) == ()
    assert notes() == ()


def test_a_tool_of_a_product() -> None:
    made = engine(program={"product": "llama.cpp", "tool": "llama-cli"})
    assert made.tool(("llama-cli",), offered=()).name == "llama-cli"
    with pytest.raises(ConfigError, match="the artifact has no llama-cli"):
        made.tool((), offered=("llama-cli",))
    with pytest.raises(ConfigError, match=r"llama\.cpp has no tool llama-cli"):
        made.tool((), offered=("llama-bench",))


def test_each_figure_is_told_by_whose_clock_it_is() -> None:
    """The board's stamps come first; the program's own times only where there are none."""
    ttft = reader("^first (?P<x>[0-9]+)$", "ttft", "ms", stream="stderr")
    rate = reader("^rate (?P<x>[0-9.]+)$", "tokens_per_second", "tokens_per_s", stream="stderr")

    def timed(count: int | None, pieces: int) -> TimingRecord:
        session = Session()
        for n in range(pieces):
            session.out(100 * (n + 1), b"a")
        session.err(100 * pieces + 1, b"first 7\nrate 99\n")
        tokens = {"count": "n"} if count else None
        made = engine(tokens=tokens, output=[ttft, rate], arguments=[])
        return made.parse(session.raw(), made.parameters({"n": count} if count else {}))

    found = timed(None, 4)
    assert (found.token_clock, found.ttft_ns, found.tokens_per_second) == ("program", 7 * MS, 99)
    found = timed(4, 4)
    assert (found.token_clock, found.ttft_ns, found.tokens_per_second) == ("agent", 100 * MS, 10)
    found = timed(5, 4)  # the first piece may hold two, and so may any other
    assert (found.token_clock, found.ttft_ns, found.tokens_per_second) == ("both", 7 * MS, 99)
