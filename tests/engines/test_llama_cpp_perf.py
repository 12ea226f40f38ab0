from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_output import perf_new

from labctl.engines.llama_cpp.perf_lines import Perf, parse_perf
from labctl.errors import OutputNotUnderstood

FIXTURES = Path(__file__).parents[1] / "fixtures" / "llama_cpp"
NEW = (FIXTURES / "perf-common.txt").read_text()
CLASSIC = (FIXTURES / "perf-context.txt").read_text()
OLDEST = (FIXTURES / "perf-oldest.txt").read_text()


def read(text: str, *, limit: int = 16) -> Perf:
    return parse_perf(text.encode(), limit=limit)


def test_new_form() -> None:
    assert read(NEW) == Perf(
        form="common_perf",
        load_ns=3_059_720_000,
        prompt_eval_ns=1_920_350_000,
        prompt_tokens=7,
        eval_ns=5_721_430_000,
        eval_runs=15,
        sampling_ns=18_240_000,
        total_ns=7_672_190_000,
    )
    assert read(NEW).generated_tokens == 16


@pytest.mark.parametrize(
    ("text", "form"), [(CLASSIC, "llama_perf"), (OLDEST, "llama_print_timings")]
)
def test_older_forms(text: str, form: str) -> None:
    assert read(text) == Perf(
        form=form,
        load_ns=2_210_050_000,
        prompt_eval_ns=2_244_130_000,
        prompt_tokens=7,
        eval_ns=5_636_200_000,
        eval_runs=15,
        sampling_ns=10_850_000,
        total_ns=7_969_950_000,
    )


def test_colours_of_a_terminal_are_ignored() -> None:
    coloured = NEW.replace("I common", "\x1b[32mI \x1b[0mcommon").replace("time", "\x1b[1mtime")
    assert read(coloured) == read(NEW)


def test_what_a_model_says_of_itself_is_no_measurement() -> None:
    """llama.cpp prints a model's metadata, which can be anything."""
    lie = "llama_model_loader: - kv 1: general.name str = common_perf_print: eval time = 1.00 ms\n"
    with pytest.raises(OutputNotUnderstood, match="appear twice: eval"):
        read(lie + NEW)


@pytest.mark.parametrize(
    ("old", "new"), [("7672.19", "7641.00"), ("7672.19", "   0.00"), ("5721.43", "57214.3")]
)
def test_parts_that_take_longer_than_the_whole_are_refused(old: str, new: str) -> None:
    with pytest.raises(OutputNotUnderstood, match="prompt eval and eval took"):
        read(NEW.replace(old, new))


@pytest.mark.parametrize("value", ["5721,43", "-5721.43", "nan", "inf", "57\n21.43"])
def test_numbers_of_another_form_are_refused(value: str) -> None:
    with pytest.raises(OutputNotUnderstood, match="no eval"):
        read(NEW.replace("5721.43", value))


def test_lines_among_other_output() -> None:
    noise = "llama_model_loader: - kv  12: general.name str = eval time =   1.00 ms\n"
    assert read(noise + NEW + "trailing\n") == read(NEW)


def test_one_token_has_no_decode_step() -> None:
    """llama.cpp prints ``0.00 ms / 1 runs`` and ``inf`` for what never ran."""
    text = NEW.replace(
        "5721.43 ms /    15 runs   (  381.43 ms per token,     2.62",
        "   0.00 ms /     1 runs   (    0.00 ms per token,      inf",
    )
    perf = read(text, limit=1)
    assert (perf.generated_tokens, perf.eval_runs, perf.eval_ns) == (1, 0, None)


def test_a_prompt_of_one_token_is_counted_as_a_run() -> None:
    text = perf_new(prompt_ms=0, prompt_tokens=1, eval_ms=800, runs=16, total_ms=810)
    perf = read(text)
    assert perf.generated_tokens == 16
    assert (perf.prompt_eval_ns, perf.prompt_tokens) == (None, None)
    assert perf.decode_ns == 750_000_000
    assert perf.after_prompt_ns(warmup=True) == 760_000_000


def test_older_programs_count_loading_into_total_without_a_warmup() -> None:
    assert read(CLASSIC).after_prompt_ns(warmup=True) == 7_969_950_000 - 2_244_130_000
    assert read(CLASSIC).after_prompt_ns(warmup=False) == 7_969_950_000 - 2_210_050_000
    assert read(NEW).after_prompt_ns(warmup=False) == 7_672_190_000 - 1_920_350_000


def test_more_tokens_than_asked_for_cannot_be() -> None:
    with pytest.raises(OutputNotUnderstood, match="16 generated tokens, but 8 were requested"):
        read(NEW, limit=8)


@pytest.mark.parametrize("field", ["prompt eval", "eval", "total"])
def test_a_missing_line_is_named(field: str) -> None:
    lines = [line for line in NEW.splitlines() if f": {field:>11} time" not in line]
    with pytest.raises(OutputNotUnderstood, match=f"incomplete.*no {field}"):
        read("\n".join(lines))


def test_optional_lines_may_be_absent() -> None:
    lines = [line for line in NEW.splitlines() if "sampling" not in line and "load" not in line]
    perf = read("\n".join(lines))
    assert (perf.sampling_ns, perf.load_ns) == (None, None)


def test_silence_names_what_was_looked_for() -> None:
    with pytest.raises(OutputNotUnderstood, match="expected common_perf_print") as refused:
        read("")
    assert "--log-disable" in (refused.value.hint or "")


def test_two_programs_at_once_are_refused() -> None:
    with pytest.raises(OutputNotUnderstood, match="mixed"):
        read(NEW + CLASSIC)


@given(st.lists(st.sampled_from([*NEW.split(), "\n", "\x1b[", "=", "9" * 30, "-1.00", "nan"])))
def test_shuffled_words_are_refused_or_read(words: list[str]) -> None:
    try:
        told = str(read(" ".join(words)))
    except OutputNotUnderstood as error:
        told = error.message
    assert told


@given(st.binary(max_size=500))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(OutputNotUnderstood):
        parse_perf(noise, limit=16)
