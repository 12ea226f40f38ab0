"""Programs, models and commands of servers, as they are found on this host."""

from importlib.metadata import version
from pathlib import Path

import pytest
from artifacts_made import make_artifact
from tiny_gguf import write_tiny_gguf

from labctl.config.models import ModelSource
from labctl.config.recipe import EngineChoice
from labctl.engines.base import Inputs, Listen
from labctl.errors import ConfigError
from labctl.progress import silent
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
