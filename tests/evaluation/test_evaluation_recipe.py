"""Recipes of evaluations: what is written is run, and each mistake is told with its line."""

from pathlib import Path

import pytest

from labctl.config.recipe import load_recipe
from labctl.config.yaml.document import Document
from labctl.errors import ConfigError
from labctl.evaluation.recipe import EvaluationRecipe, load_evaluation

GOOD = """\
name: sums
dataset: {file: sums.jsonl}
models:
  small: {declared: {name: Small Q2_K}}
  large: {declared: {name: Large Q8_0}}
endpoints:
  one: {url: "http://127.0.0.1:9/v1", api: openai-chat, model: small}
  two: {url: "http://127.0.0.1:10/v1", api: openai-chat, model: large, concurrency: 8}
  three: {url: "http://127.0.0.1:11/v1", api: openai-chat, model: large}
prompts:
  plain: {system: Be short.}
  told: {system: Be short., state_budget: true}
budgets: [200, unlimited, 100]
"""


def load(text: str, *settings: str) -> EvaluationRecipe:
    return load_evaluation(Document.parse(text, "sums.yaml"), settings)


def problems(text: str, *settings: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load(text, *settings)
    return refused.value.message


def test_a_recipe_says_what_is_asked_of_whom() -> None:
    recipe = load(GOOD, "concurrency=4", "dataset.limit=8")
    assert recipe.budgets.tokens == (100, 200, None)
    assert recipe.evaluated_models() == ["small", "large"]
    assert recipe.endpoints_of("large") == ["two", "three"]
    assert [recipe.concurrency_of(key) for key in recipe.endpoints] == [4, 8, 4]
    assert recipe.dataset.limit == 8
    assert recipe.graders == ("boxed",)
    assert recipe.sampling.temperature == 0
    assert recipe.settings == ("--set concurrency=4", "--set dataset.limit=8")


def test_a_recipe_is_read_back_from_its_record() -> None:
    recipe = load(GOOD)
    again = EvaluationRecipe.model_validate(recipe.resolved())
    assert again == recipe
    assert recipe.resolved()["budgets"]["tokens"] == [100, 200, "unlimited"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("budgets:", "budgts:", "sums.yaml:13:1: budgts: unknown key (did you mean 'budgets'?)"),
        ("[200, ", "[0, ", "sums.yaml:13:11: budgets[0]: must be a whole number of tokens"),
        ("[200, ", "[100, ", "budgets[2]: this budget is given twice"),
        ("[200, ", "[1, ", "prompts.told.state_budget: a budget of 1 would be stated as 0 tokens"),
        ("model: small}", "model: smal}", "endpoints.one.model: no model 'smal' (did you mean"),
        ("api: openai-chat, model: small", "model: small", "the key api is required with url"),
        (
            "api: openai-chat, model: small",
            "api: tgi, model: small",
            "endpoints.one.api: TGI speaks OpenAI's forms: write openai-chat or openai-completions",
        ),
        ("{declared: {name: Small Q2_K}}", "{}", "sums.yaml:4:10: models.small: a model comes"),
        (
            'url: "http://127.0.0.1:9/v1", api: openai-chat, model: small',
            "start: host, model: small",
            "model small is only declared, but a server that labctl starts needs its file",
        ),
        (
            "http://127.0.0.1:9/v1",
            "http://me:secret@127.0.0.1:9/v1",
            "must not hold a password: put the key into a variable, see key_env",
        ),
        (
            "api: openai-chat, model: small",
            "api: openai-completions, model: small",
            "openai-completions takes no messages, but prompt plain has layout: chat",
        ),
        (
            "plain: {",
            "plain: {layout: chatml, ",
            "openai-chat takes messages, but prompt plain is a text (layout: chatml)",
        ),
        ("model: small}", "model: large}", "models.small: no endpoint serves this model"),
        (
            "budgets: [200, unlimited, 100]",
            "budgets: {equal_to: small, tokens: [100], time_per_token: {small: 18.18s}}",
            "the time per token of large is missing",
        ),
        (
            "budgets: [200, unlimited, 100]",
            "budgets: {seconds: [10]}",
            "sums.yaml:13:10: budgets: needs either time_per_token or timing_run",
        ),
        (
            "name: sums",
            "name: sums\ngates: [{metric: accuracy, min: 0.5, where: {prompt: plian}}]",
            "gates[0].where.prompt: no prompt 'plian' (did you mean 'plain'?)",
        ),
        ("name: sums", "name: sums\ngraders: [boxd]", "no grader 'boxd' (did you mean 'boxed'?)"),
        ("name: sums", "name: sums\nsampling: {samples: 4}", "at temperature 0 all samples"),
    ],
)
def test_a_mistake_is_told_with_its_place(old: str, new: str, told: str) -> None:
    assert told in problems(GOOD.replace(old, new, 1))


def test_a_key_is_never_written_into_a_recipe() -> None:
    text = GOOD.replace("model: small}", "model: small, key_env: sk-12345}", 1)
    assert "must be the name of an environment variable, not the key itself" in problems(text)


def test_a_reader_of_one_kind_names_the_command_for_all(tmp_path: Path) -> None:
    file = tmp_path / "sums.yaml"
    file.write_text(GOOD)
    with pytest.raises(ConfigError) as refused:
        load_recipe(file)
    assert refused.value.hint == f"run it with `labctl run {file}`"
    timing = tmp_path / "times.yaml"
    timing.write_text("name: times\nengine: {name: llama_cpp}\n")
    with pytest.raises(ConfigError) as refused:
        load_evaluation(timing)
    assert refused.value.hint == f"run it with `labctl run {timing}`"


def test_a_draft_is_a_model_of_the_recipe_with_a_file() -> None:
    start = "{start: host, model: large, draft: small, lora: [{file: x.gguf, scale: 0.5}]}"
    text = GOOD[: GOOD.index("models:")] + (
        "models:\n  small: {file: small.gguf}\n  large: {file: large.gguf}\n"
        f"endpoints:\n  one: {start}\n" + GOOD[GOOD.index("prompts:") :]
    )
    recipe = load(text)
    assert recipe.measured_models() == ["large", "small"]
    assert recipe.evaluated_models() == ["large"]
    assert recipe.endpoints["one"].scaled_lora == (("x.gguf", 0.5),)
    assert "endpoints.one.draft: no model 'smal'" in problems(
        text.replace("draft: small", "draft: smal")
    )
    declared = text.replace("{file: small.gguf}", "{declared: {name: Small}}")
    assert "endpoints.one.draft: this model is declared" in problems(declared)
    url = text.replace("start: host", 'url: "http://127.0.0.1:9", api: llama-server')
    assert "endpoints.one.draft: goes with start" in problems(url)


def test_servers_of_one_model_have_the_same_adapters() -> None:
    text = GOOD[: GOOD.index("models:")] + (
        "models:\n  small: {file: small.gguf}\n"
        "endpoints:\n  plain: {start: host, model: small}\n"
        "  styled: {start: host, model: small, lora: [{file: x.gguf}]}\n"
        + GOOD[GOOD.index("prompts:") :]
    )
    assert (
        "endpoints.styled.lora: another endpoint of model small has other adapters, and the"
        " answers would count as one model's; name the file as a second model"
    ) in problems(text)
    load(text.replace("plain: {start: host,", "plain: {lora: [{file: x.gguf}], start: host,", 1))
