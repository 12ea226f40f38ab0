import pytest

from labctl.config.recipe import EngineChoice
from labctl.engines.base import Inputs, Tool
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.registry import make_engine
from labctl.errors import ConfigError
from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.records.trial import ModelIdentity, TensorMix

ENGINE = LlamaCpp()
NEW = Tool("llama-completion", "completion")
CLASSIC = Tool("llama-cli", "classic")
GIB = 1 << 30


def argv(tool: Tool, prompt: str = "hello", **parameters: int | float | bool) -> list[str]:
    checked = ENGINE.parameters({"tokens": 32, **parameters})
    return ENGINE.command(tool, checked, Inputs("/b/" + tool.name, "/b/m.gguf", prompt))


def after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


@pytest.mark.parametrize("tool", [NEW, CLASSIC])
def test_what_every_version_is_told(tool: Tool) -> None:
    words = argv(tool, threads=4, context=512)
    assert words[:3] == ["/b/" + tool.name, "-m", "/b/m.gguf"]
    assert {"-no-cnv", "--no-display-prompt", "--no-escape", "--ignore-eos"} <= set(words)
    assert after(words, "-n") == "32"
    assert after(words, "-c") == "512"
    assert after(words, "-t") == "4"
    assert after(words, "--temp") == "0"
    assert after(words, "--seed") == "1"
    assert "--no-warmup" not in words
    assert "--no-repack" not in words


def test_fit_is_switched_off_where_it_exists() -> None:
    assert after(argv(NEW), "-fit") == "off"
    assert "-fit" not in argv(CLASSIC)


@pytest.mark.parametrize("prompt", ["two\nlines", "back\\n slash", "-p", "it's $HOME `x`", "é"])
def test_a_prompt_is_one_word_byte_for_byte(prompt: str) -> None:
    assert argv(NEW, prompt)[-2:] == ["-p", prompt]


def test_storage_bound_runs_skip_what_costs_a_pass() -> None:
    words = argv(NEW, warmup=False, repack=False)
    assert "--no-warmup" in words
    assert "--no-repack" in words


def test_weights_are_locked_by_the_flag_of_the_version() -> None:
    assert after(argv(NEW, mlock=True), "-lm") == "mmap+mlock"
    assert "--mlock" not in argv(NEW, mlock=True)
    assert "--mlock" in argv(CLASSIC, mlock=True)
    for tool in (NEW, CLASSIC):
        assert not {"-lm", "--mlock"} & set(argv(tool))
    assert ENGINE.locks_memory(ENGINE.parameters({"tokens": 1, "mlock": True}))
    assert not ENGINE.locks_memory(ENGINE.parameters({"tokens": 1}))


def test_more_locked_than_there_is_is_said_beforehand() -> None:
    parameters = ENGINE.parameters({"tokens": 8, "mlock": True, "repack": False})
    said = "m: the memory to lock exceeds the free memory: the program may be killed"
    assert said in ENGINE.resolve_defaults(parameters, facts(GIB), model("Q8_0", 2 * GIB)).notes
    assert said not in ENGINE.resolve_defaults(parameters, facts(8 * GIB), model("Q8_0", GIB)).notes


def test_the_text_may_end_by_itself_when_asked() -> None:
    assert "--ignore-eos" not in argv(NEW, ignore_eos=False)


def test_empty_prompt_is_refused() -> None:
    with pytest.raises(ConfigError, match="prompt is empty"):
        argv(NEW, "")


@pytest.mark.parametrize(
    ("available", "offered", "tool"),
    [
        ({"llama-cli", "llama-completion"}, {"llama-cli", "llama-completion"}, NEW),
        ({"llama-completion"}, {"llama-cli", "llama-completion"}, NEW),
        ({"llama-completion"}, set(), NEW),
        ({"llama-cli"}, {"llama-cli", "llama-bench"}, CLASSIC),
        ({"llama-cli"}, set(), CLASSIC),
    ],
)
def test_program_by_version(available: set[str], offered: set[str], tool: Tool) -> None:
    assert ENGINE.tool(available, offered=offered) == tool


def test_a_new_llama_cli_only_chats() -> None:
    with pytest.raises(ConfigError, match="has no llama-completion, which completion needs"):
        ENGINE.tool({"llama-cli"}, offered={"llama-cli", "llama-completion"})


def test_a_version_without_the_program_says_what_it_has() -> None:
    tools = {"llama-quantize", "llama-bench"}
    with pytest.raises(ConfigError, match="it has llama-bench and llama-quantize"):
        ENGINE.tool(tools, offered=tools)
    with pytest.raises(ConfigError, match="it has nothing"):
        ENGINE.tool(set(), offered=set())


def test_unknown_tools_and_engines_name_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'completion'"):
        make_engine(EngineChoice(name="llama_cpp", task="completions"))
    with pytest.raises(ConfigError, match="did you mean 'llama_cpp'"):
        make_engine(EngineChoice(name="llama-cpp"))


def test_without_a_tool_text_is_completed() -> None:
    assert make_engine(EngineChoice(name="llama_cpp")).task == "completion"


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "parameters.tokens: this key is required"),
        ({"tokens": 32, "thread": 4}, "did you mean 'threads'"),
        ({"tokens": 0}, "parameters.tokens: must be at least 1"),
        ({"tokens": "many"}, "must be a whole number, not 'many'"),
        ({"tokens": True}, "must be a whole number"),
        ({"tokens": 32, "temperature": "0.5"}, "must be a number"),
        ({"tokens": 32, "temperature": -1}, "parameters.temperature: must be at least 0"),
        ({"tokens": 32, "temperature": float("nan")}, "temperature"),
        ({"tokens": 32, "seed": 2**32 - 1}, "parameters.seed"),
        ({"tokens": 2048}, "context 2048 is too small for 2048 tokens"),
    ],
)
def test_wrong_parameters_are_refused(values: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ENGINE.parameters(values)
    assert why in str(refused.value)


def test_the_key_of_comparability_holds_every_parameter() -> None:
    key = ENGINE.comparability(NEW, ENGINE.parameters({"tokens": 32, "repack": False}))
    assert key["tool"] == "llama-completion"
    assert key["repack"] is False
    assert key["context"] == 2048


def facts(available: int | None, cores: int = 4) -> BoardFacts:
    return BoardFacts(
        execution=Execution.BOARD,
        machine="aarch64",
        kernel="5.10",
        boot_id="x",
        cpus=(CpuFacts(count=cores),) if cores else (),
        memory_available_bytes=available,
    )


def model(kind: str, size: int) -> ModelIdentity:
    return ModelIdentity(
        key="m",
        file="m.gguf",
        sha256="0" * 64,
        size_bytes=size,
        architecture="llama",
        quantization=kind,
        parameters=size,
        bits_per_weight=8,
        tensor_bytes=size,
        bytes_per_token=size,
        tensors=(TensorMix(type=kind, count=1, bytes=size),),
    )


@pytest.mark.parametrize(
    ("kind", "size", "available", "warmup", "repack"),
    [
        ("Q8_0", GIB // 2, 2 * GIB, True, True),
        ("Q8_0", GIB + GIB // 2, 2 * GIB, True, False),  # weights fit, their copies do not
        ("Q2_K", GIB + GIB // 2, 2 * GIB, True, True),  # this type is not copied
        ("Q8_0", 8 * GIB, 2 * GIB, False, False),
    ],
)
def test_warmup_and_repacking_only_where_it_fits(
    kind: str, size: int, available: int, warmup: bool, repack: bool
) -> None:
    asked = ENGINE.parameters({"tokens": 4})
    resolved = ENGINE.resolve_defaults(asked, facts(available), model(kind, size))
    assert resolved.parameters.threads == 4
    assert resolved.parameters.warmup is warmup
    assert resolved.parameters.repack is repack
    assert len(resolved.notes) == (not warmup) + (not repack)


def test_what_the_recipe_says_is_not_overruled() -> None:
    told = {"threads": 2, "threads_batch": 4, "warmup": True, "repack": True}
    asked = ENGINE.parameters({"tokens": 4, **told})
    assert ENGINE.resolve_defaults(asked, facts(GIB), model("Q8_0", 8 * GIB)).parameters == asked


def test_what_the_board_does_not_tell_is_noted() -> None:
    resolved = ENGINE.resolve_defaults(
        ENGINE.parameters({"tokens": 4}), facts(None, cores=0), model("Q8_0", GIB)
    )
    assert resolved.parameters.threads is None
    assert len(resolved.notes) == 2
