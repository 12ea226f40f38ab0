"""The recipe that a load test or an evaluation writes is the recipe that is read."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_answers import Answer
from scripted_endpoint import scripted_endpoint

from labctl.cli.root import run_cli
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.evaluation.serving.recipe import LoadTestRecipe

APIS = ("openai-chat", "openai-completions", "llama-server")
SECONDS = st.integers(1, 5000).map(lambda ms: f"{ms}ms")
LENGTHS = st.one_of(
    st.integers(1, 4096),
    st.tuples(st.integers(1, 99), st.integers(100, 999)).map(
        lambda ends: {"min": ends[0], "max": ends[1]}
    ),
)
#: A server that runs already, with each API, and one that labctl starts.
SERVERS = st.one_of(
    st.fixed_dictionaries(
        {"url": st.just("http://127.0.0.1:1/v1"), "api": st.sampled_from(APIS)},
        optional={"served_name": st.just("tiny"), "key_env": st.just("KEY")},
    ),
    st.fixed_dictionaries(
        {"start": st.just("host")},
        optional={"parameters": st.just({"context": 512}), "version": st.just("b1")},
    ),
    st.fixed_dictionaries({"start": st.just("board")}, optional={"board": st.just("b")}),
)
BODY = st.dictionaries(
    st.sampled_from(["n", "stop", "seed"]), st.sampled_from([None, 2, [None], {"a": None}])
)


def sparse(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings with any of these keys: a key that is left out has its default."""
    return st.fixed_dictionaries({}, optional=keys)


def _written(server: dict[str, Any]) -> dict[str, Any]:
    model = {"file": "m.gguf"} if "start" in server else {"declared": {"name": "Tiny"}}
    return {"name": "any", "models": {"m": model}}


@st.composite
def load_tests(draw: st.DrawFn) -> dict[str, Any]:
    """Load tests as a file or options give them: each kind of server, workload and load."""
    server = draw(SERVERS)
    layouts = ["plain", "chatml", "raw-chatml"]
    layouts += ["chat"] if server.get("api", "openai-chat") == "openai-chat" else []
    workload = {
        "prompt": st.sampled_from(layouts).map(lambda one: {"layout": one}),
        "output_tokens": LENGTHS,
        "ignore_eos": st.booleans(),
        "prompt_cache": st.booleans(),
        "temperature": st.sampled_from([0, 0.7]),
        "extra_body": BODY,
    }
    source = draw(
        st.sampled_from(
            [
                {"prompt_tokens": LENGTHS},
                {"dataset": st.just({"file": "a.jsonl"})},
                {"dataset": st.just({"hub": {"repository": "a/b"}})},
            ]
        )
    )
    loads = draw(st.sampled_from([{"concurrency": [1, 4]}, {"rates": [0.5, 2]}, {"sweep": True}]))
    more = sparse(
        workload=sparse(**workload, **source),
        arrivals=st.sampled_from(["poisson", "constant"]),
        requests=st.integers(1, 999),
        duration=SECONDS,
        warm_up=st.integers(0, 9),
        limits=sparse(ttft=SECONDS, tpot=SECONDS, latency=SECONDS),
        seed=st.integers(0, 99),
        timeout=SECONDS,
        max_time=st.just("1h"),
        server_metrics=st.booleans(),
        gates=st.just([{"metric": "ttft_p99_ms", "max": 0.5}, {"metric": "goodput", "min": 1}]),
    )
    return {**_written(server), "endpoint": {**server, "model": "m"}, **loads, **draw(more)}


@given(load_tests())
def test_a_load_test_is_read_as_it_was_written(recipe: dict[str, Any]) -> None:
    read = LoadTestRecipe.model_validate_json(json.dumps(recipe))
    written = json.loads(json.dumps(read.resolved()))
    assert LoadTestRecipe.model_validate(written) == read


@given(
    SERVERS,
    sparse(
        budgets=st.sampled_from([[16], ["unlimited"], [16, "unlimited"]]),
        sampling=st.just({"temperature": 0.5, "samples": 2}),
        stop_when=st.just({"half_width": "3%"}),
        max_time=st.just("1h"),
    ),
)
def test_an_evaluation_is_read_as_it_was_written(
    server: dict[str, Any], more: dict[str, Any]
) -> None:
    chat = server.get("api", "openai-chat") == "openai-chat"
    recipe = {
        **_written(server),
        "endpoints": {"e": {**server, "model": "m"}},
        "dataset": {"file": "a.jsonl"},
        "prompts": {"p": {"layout": "chat" if chat else "plain"}},
        **more,
    }
    read = EvaluationRecipe.model_validate_json(json.dumps(recipe))
    written = json.loads(json.dumps(read.resolved()))
    assert EvaluationRecipe.model_validate(written) == read


@pytest.mark.parametrize("api", APIS)
def test_each_api_gets_its_table_from_options_alone(
    api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    monkeypatch.chdir(tmp_path)
    with scripted_endpoint({"": Answer([" word"] * 3)}) as server:
        words = ["--url", server.address, "--api", api, "-c", "1", "-n", "3"]
        status = run_cli(["load-test", *words, "--warm-up", "0", "--output-tokens", "4"])
    assert (status, "3/3" in capsys.readouterr().out) == (0, True)
    assert run_cli(["report", "latest"]) == 0
    assert "3/3" in capsys.readouterr().out
