"""llama-bench, with what both generations printed for a tiny model under an emulator."""

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from records_made import model

from labctl.engines.base import Inputs, RawOutput, Tool
from labctl.engines.llama_cpp.bench import LlamaBench
from labctl.errors import ConfigError, OutputNotUnderstood, ProgramFailed
from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.records.timing import TimingRecord
from labctl.records.trial import JobStatus

ENGINE = LlamaBench()
NEW = Tool("llama-bench", "new")
CLASSIC = Tool("llama-bench", "classic")
RECORDED = Path(__file__).parents[1] / "fixtures" / "llama_cpp" / "bench"
ASKED = {"prompt_tokens": 16, "tokens": 8, "repetitions": 3, "threads": 2}


def recorded(version: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDED / f"{version}.jsonl").read_text().splitlines()]


def parse(lines: list[dict[str, Any]], **asked: Any) -> TimingRecord:
    stdout = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return ENGINE.parse(RawOutput(stdout, b"", b""), ENGINE.parameters({**ASKED, **asked}))


@pytest.mark.parametrize(("version", "commit"), [("new", "0c1e570"), ("classic", "4227c9b")])
def test_both_versions_give_the_same_record(version: str, commit: str) -> None:
    lines = recorded(version)
    timing = parse(lines)
    prompt, decode = timing.tests
    assert (prompt.name, decode.name) == ("pp16", "tg8")
    assert list(prompt.samples_ns) == lines[0]["samples_ns"]
    assert list(decode.samples_ns) == lines[1]["samples_ns"]
    assert timing.prompt_eval_ns == median(lines[0]["samples_ns"])
    assert timing.tokens_per_second == pytest.approx(8e9 / median(lines[1]["samples_ns"]))
    assert timing.generated_tokens == 24
    assert timing.program_version == f"{commit} (0)"
    (check,) = ENGINE.checks(timing, ENGINE.parameters(ASKED))
    assert check.ok is True


def test_one_kind_of_test_alone() -> None:
    timing = parse(recorded("new")[1:], prompt_tokens=0)
    assert [test.name for test in timing.tests] == ["tg8"]
    assert (timing.prompt_eval_ns, timing.prompt_tokens) == (None, None)


def test_fewer_repetitions_than_asked_are_told() -> None:
    (check,) = ENGINE.checks(parse(recorded("new")), ENGINE.parameters({**ASKED, "repetitions": 5}))
    assert (check.ok, check.detail) == (False, "3, 3 of 5 a test")


@pytest.mark.parametrize(
    ("said", "revision", "ok"),
    [
        ("0c1e570", "0c1e570", True),
        ("0c1e570", "0c1e570-patched", False),
        ("0c1e570", "4227c9b", False),
        ("unknown", "0c1e570", None),
        ("0c1e570", None, None),
    ],
)
def test_the_build_that_it_says_it_is(said: str, revision: str | None, ok: bool | None) -> None:
    timing = parse([{**line, "build_commit": said} for line in recorded("new")])
    check = ENGINE.build_check(timing, revision)
    assert check is not None
    assert (check.name, check.ok) == ("build", ok)
    assert said in check.detail


def test_names_of_any_bytes_do_not_matter() -> None:
    stdout = (RECORDED / "new.jsonl").read_bytes()
    stdout = stdout.replace(b'"cpu_info": "', b'"cpu_info": "\xff\xfe')
    timing = ENGINE.parse(RawOutput(stdout, b"", b""), ENGINE.parameters(ASKED))
    assert timing == parse(recorded("new"))


def test_unknown_keys_are_left_alone() -> None:
    lines = recorded("new")
    assert parse([{**line, "of_next_year": [1]} for line in lines]) == parse(lines)


@pytest.mark.parametrize(
    "key", ["samples_ns", "avg_ns", "n_prompt", "n_gen", "n_threads", "type_k"]
)
def test_a_missing_key_is_refused(key: str) -> None:
    lines = recorded("new")
    del lines[1][key]
    with pytest.raises(OutputNotUnderstood, match=f"line 2 of llama-bench's output: {key}"):
        parse(lines)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"n_threads": 4}, "used threads 4 instead of 2"),
        ({"type_k": "q8_0"}, "used cache_type_k q8_0 instead of f16"),
        ({"poll": 0}, "used poll 0 instead of 50"),
        ({"cpu_strict": True}, "used cpu_strict True instead of False"),
        ({"avg_ns": 47846}, "is not that of its samples"),
        ({"samples_ns": [0, 1, 2]}, "a time of 0 or less"),
        ({"samples_ns": []}, "samples_ns"),
        ({"n_gen": "0"}, "n_gen: Input should be a valid integer"),
        ({"n_depth": True}, "n_depth: Input should be a valid integer"),
        ({"samples_ns": [1.5, 2, 3]}, r"samples_ns\[0\]"),
        ({"avg_ns": float("nan")}, "avg_ns"),
        ({"n_prompt": 32}, "asked for pp16, tg8 but gave pp32, tg8"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], why: str) -> None:
    lines = recorded("new")
    lines[0].update(change)
    with pytest.raises(OutputNotUnderstood, match=why):
        parse(lines)


@pytest.mark.parametrize("stdout", [b"[", b"[\n", b"| model | size |\n", b"{}\n" + b"[" * 100_000])
def test_other_output_is_refused(stdout: bytes) -> None:
    with pytest.raises(OutputNotUnderstood, match="llama-bench's output"):
        ENGINE.parse(RawOutput(stdout, b"", b""), ENGINE.parameters(ASKED))


def test_a_test_that_is_missing_is_refused() -> None:
    with pytest.raises(OutputNotUnderstood, match="asked for pp16, tg8 but gave pp16"):
        parse(recorded("new")[:1])
    with pytest.raises(OutputNotUnderstood, match="gave nothing"):
        parse([])


@pytest.mark.parametrize("word", ["llama_bench", "main"])
def test_a_model_that_does_not_load_is_diagnosed(word: str) -> None:
    job = JobStatus(
        outcome="exited", exit_status=1, start_mono_ns=0, end_mono_ns=1, wall_ns=1,
        stdout_bytes=1, stderr_bytes=1, boot_id="b", epoch=1,
    )  # fmt: skip
    said = f"{word}: error: failed to load model '/b/m.gguf'\n".encode()
    failure = ENGINE.diagnose(job, RawOutput(b"[\n", said, b""))
    assert isinstance(failure, ProgramFailed)
    assert "the model cannot be loaded" in failure.message


def argv(tool: Tool, **parameters: Any) -> str:
    checked = ENGINE.parameters({**ASKED, **parameters})
    return " ".join(ENGINE.command(tool, checked, Inputs("/b/llama-bench", "/b/m.gguf")))


def test_the_command_of_each_version() -> None:
    common = "/b/llama-bench -m /b/m.gguf -o jsonl -p 16 -n 8 -d 0 -r 3"
    common += " -b 2048 -ub 512 -ctk f16 -ctv f16 -t 2"
    assert argv(NEW, warmup=True) == f"{common} -lm mmap --repack 1"
    assert argv(CLASSIC, warmup=True) == f"{common} -mmp 1"
    assert "--no-warmup" in argv(NEW, warmup=False)
    assert argv(NEW, mmap=False, repack=False).endswith("-lm none --repack 0")
    assert argv(CLASSIC, mmap=False).endswith("-mmp 0")
    types = {"cache_type_k": "Q8_0", "cache_type_v": "q4_0", "flash_attention": True}
    assert "-ctk q8_0 -ctv q4_0" in argv(NEW, **types)
    assert "-fa on" in argv(NEW, **types)
    assert "-fa 1" in argv(CLASSIC, **types)
    assert "-fa 0" in argv(CLASSIC, flash_attention=False)
    assert argv(NEW, cpu_strict=True, poll=0, prio=2).endswith(
        "-C 0x3 --cpu-strict 1 --poll 0 --prio 2"
    )
    with pytest.raises(ConfigError, match="threads_batch: unknown key"):
        argv(NEW, threads_batch=2)


def test_a_classic_version_cannot_be_kept_from_repacking() -> None:
    with pytest.raises(ConfigError, match="has no option to disable repacking"):
        argv(CLASSIC, repack=False)


def test_the_version_is_known_by_what_it_offers() -> None:
    tools = ("llama-bench", "llama-cli")
    assert ENGINE.tool(tools, offered=tools) == CLASSIC
    assert ENGINE.tool(tools, offered=(*tools, "llama-completion")) == NEW
    with pytest.raises(ConfigError, match="has no llama-bench, which bench needs"):
        ENGINE.tool(("llama-cli",), offered=tools)


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to measure"):
        ENGINE.parameters({"prompt_tokens": 0, "tokens": 0})


def test_flash_attention_is_what_was_asked_for() -> None:
    lines = [{**line, "flash_attn": False} for line in recorded("new")]
    stdout = "".join(json.dumps(line) + "\n" for line in lines).encode()
    with pytest.raises(OutputNotUnderstood, match="used flash_attention False instead of True"):
        ENGINE.parse(
            RawOutput(stdout, b"", b""), ENGINE.parameters({**ASKED, "flash_attention": True})
        )


def test_memory_counts_the_longer_test_and_the_cache_type() -> None:
    described = model(kv_bytes_per_position=64)
    plain = ENGINE.memory(ENGINE.parameters({"depth": 100}), described)
    assert plain.kv_bytes == 64 * (100 + 512)
    types = {"cache_type_k": "q8_0", "cache_type_v": "q8_0", "flash_attention": True}
    small = ENGINE.parameters({"depth": 100, **types})
    assert ENGINE.memory(small, described).kv_bytes == 34 * (100 + 512)


def test_what_the_recipe_leaves_open_is_decided() -> None:
    facts = BoardFacts(
        execution=Execution.BOARD, machine="aarch64", kernel="5", boot_id="b",
        cpus=(CpuFacts(count=4),), memory_available_bytes=10_000,
    )  # fmt: skip
    resolved = ENGINE.resolve_defaults(ENGINE.parameters({}), facts, model())
    assert (resolved.parameters.threads, resolved.parameters.warmup) == (4, False)
