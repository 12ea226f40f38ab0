"""``labctl tune`` with llama.cpp on this host: a race, a proof, a sentence."""

import json

import pytest
from labs import LabUnderTest, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

RECIPE = """\
name: search
target: host-x86_64
engine: {name: llama_cpp}
models:
  tiny: {file: models/tiny.gguf}
prompt: once upon
parameters: {tokens: 24, context: 128, threads: 1}
tune:
  space: {threads: [1, 2], repack: [true, false], poll: [0, 50]}
max_time: 40s
"""


def test_a_search_on_this_host(native_lab: LabUnderTest, native_llama: None) -> None:
    recipe = native_lab.recipe(RECIPE.replace(", poll: [0, 50]", ""), "search")
    done = native_lab.run("tune", recipe, "--seed", "7")
    print(said(done))
    for path in native_lab.root.glob("runs/*/tuning.json"):
        print(json.dumps(json.loads(path.read_text()), indent=1))
    assert done.exit_status == 0
