"""Programs, models and commands of servers, as they are found on this host."""

from importlib.metadata import version
from pathlib import Path

import pytest
from artifacts_made import make_artifact
from tiny_gguf import write_tiny_gguf
from tiny_lora import write_tiny_lora

from labctl.config.models import ModelSource
from labctl.config.recipe import EngineChoice
from labctl.engines.base import Inputs, Listen, Tool
from labctl.engines.registry import make_engine, make_server
from labctl.errors import ConfigError
from labctl.progress import silent
from labctl.records.trial import DraftedModel
from labctl.runs.inputs.servers import ServerFiles, WantedServer

BUILD = "labctl build --target rk3568 --product llama.cpp --tool llama-server"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))


def found(root: Path, task: str = "serve", **parameters: int | str) -> ServerFiles:
    write_tiny_gguf(root / "tiny.gguf")
    choice, models = (
        EngineChoice(name="llama_cpp", task=task),
        {"tiny": ModelSource(file="tiny.gguf")},
    )
    return WantedServer(choice, "rk3568", models, "tiny", parameters).find(root, silent)


def test_what_is_not_built_is_named_with_its_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no llama\.cpp \(new\) is built") as refused:
        found(tmp_path)
    assert refused.value.hint == BUILD
    make_artifact(tmp_path, "llama-bench")
    with pytest.raises(ConfigError, match="is built without llama-server") as refused:
        found(tmp_path)
    assert refused.value.hint == BUILD


def test_what_is_there_is_what_a_board_needs(tmp_path: Path) -> None:
    artifact = make_artifact(tmp_path, "llama-server", zig=version("ziglang"))
    files = found(tmp_path)
    assert [item.name for item in files.objects] == ["llama-server", "tiny.gguf"]
    assert files.artifact is not None
    assert files.artifact.key == artifact.manifest.key
    assert files.program.notes == ()


def test_each_parallel_question_has_a_context_of_its_own(tmp_path: Path) -> None:
    make_artifact(tmp_path, "llama-server", "llama-completion")
    files = found(tmp_path, context=256, parallel=4)
    engine, model = files.engine, files.model.identity
    one, four = (
        engine.parameters({"context": 256, "parallel": count, "repack": False}) for count in (1, 4)
    )
    listen = Inputs("/p", "/m", listen=Listen(8000, "x"))
    argv = engine.command(files.program.tool, four, listen)
    assert argv[argv.index("-np") + 1] == "4"
    assert argv[argv.index("-c") + 1] == "1024"
    assert "--no-kv-unified" in argv
    assert "--metrics" in argv
    needs = [engine.memory(parameters, model) for parameters in (one, four)]
    assert needs[0] is not None
    assert needs[1] is not None
    assert needs[0].kv_bytes
    assert needs[1].kv_bytes == 4 * needs[0].kv_bytes


def test_wrong_parameters_and_what_is_no_server_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="parallel"):
        found(tmp_path, parallel=0)
    with pytest.raises(ConfigError, match=r"paralel.*did you mean .parallel"):
        found(tmp_path, paralel=2)
    with pytest.raises(ConfigError, match="bench is no server"):
        found(tmp_path, task="bench")


def with_draft(root: Path, draft: str | None = "small", **parameters: int | str) -> ServerFiles:
    for name in ("tiny", "small"):
        write_tiny_gguf(root / f"{name}.gguf", seed=len(name))
    write_tiny_lora(root / "style.gguf")
    models = {name: ModelSource(file=f"{name}.gguf") for name in ("tiny", "small")}
    wanted = WantedServer(
        EngineChoice(name="llama_cpp", task="serve"), "rk3568", models, "tiny",
        {"context": 256, **parameters}, draft, (("style.gguf", 0.5),),
    )  # fmt: skip
    return wanted.find(root, silent)


def test_a_draft_and_adapters_are_sent_and_counted(tmp_path: Path) -> None:
    make_artifact(tmp_path, "llama-server", "llama-completion")
    files = with_draft(tmp_path, speculation="draft-simple", cache_type_k="q8_0")
    sent = [item.name for item in files.objects]
    assert sent == ["llama-server", "tiny.gguf", "small.gguf", "style.gguf"]
    engine, model = files.engine, files.model.identity
    asked = engine.parameters({"speculation": "draft-simple", "cache_type_k": "q8_0"})
    decided = engine.for_version(files.program.tool, asked)
    assert (decided.draft_max, decided.draft_min) == (3, 0)
    inputs = Inputs("/p", "/m", listen=Listen(8000, "x"), draft="/d", adapters=(("/l", 0.5),))
    argv = " ".join(engine.command(files.program.tool, decided, inputs))
    assert "--spec-type draft-simple -md /d --spec-draft-n-max 3 --spec-draft-n-min 0" in argv
    assert "--lora-scaled /l:0.5 " in argv
    assert files.draft is not None
    alone = engine.memory(decided, model)
    both = engine.memory(decided, DraftedModel.of(model, files.draft.identity))
    draft = engine.memory(engine.parameters({}), files.draft.identity)
    assert alone is not None
    assert draft is not None
    assert both == alone.beside(draft)
    assert alone.adapter_bytes == both.adapter_bytes == 4096
    assert both.kv_bytes == (alone.kv_bytes or 0) + (draft.kv_bytes or 0)
    assert both.mapped_bytes == alone.mapped_bytes + draft.mapped_bytes


def test_speculation_is_refused_where_it_cannot_be(tmp_path: Path) -> None:
    make_artifact(tmp_path, "llama-server", "llama-completion")
    with pytest.raises(ConfigError, match="go together; the parameter is missing"):
        with_draft(tmp_path)
    with pytest.raises(ConfigError, match="go together; the draft is missing"):
        with_draft(tmp_path, None, speculation="draft-simple")
    with pytest.raises(ConfigError, match="draft_max goes with speculation: draft-simple"):
        with_draft(tmp_path, None, speculation="ngram-mod", draft_max=4)
    with pytest.raises(ConfigError, match="draft_min 9 is above draft_max, 3"):
        with_draft(tmp_path, speculation="draft-simple", draft_min=9)
    with_draft(tmp_path, None, speculation="ngram-mod")


def test_only_a_new_server_speculates() -> None:
    engine = make_server(EngineChoice(name="llama_cpp", task="serve"))
    asked = engine.parameters({"speculation": "ngram-mod"})
    listen = Inputs("/p", "/m", listen=Listen(8000, "x"))
    with pytest.raises(ConfigError, match="speculation: this version of llama-server decodes"):
        engine.command(Tool("llama-server", "classic"), asked, listen)
    for task in ("completion", "bench", "perplexity", "kl_divergence"):
        other = make_engine(EngineChoice(name="llama_cpp", task=task))
        with pytest.raises(ConfigError, match="speculation: unknown key"):
            other.parameters({"tokens": 4, "speculation": "ngram-mod"})
