"""Conditions of timing runs by what an engine declares of its parameters."""

from pathlib import Path

import pytest
from records_made import trial
from third_party import SOURCE, write_package

from labctl.compare.equal_latency.conditions import KV_TYPE, check_one_setup, conditions, unlike
from labctl.errors import ConfigError
from labctl.records.trial import TrialRecord

DECLARED = """
    workload_parameters = ("polish",)
    cache_types = {"cache": "q4_1"}
    reads_gguf = False
"""
CODE = (SOURCE / "abacus_engine.py").read_text().replace('name = "abacus"', 'name = "other"')


@pytest.fixture(autouse=True)
def other_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine `other`, installed: its tokens are `n_beads`, its threads `n_workers`."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    code = CODE.replace("    reads_gguf = False\n", DECLARED)
    write_package(tmp_path / "site", "bead-conditions", code)


def measured(engine: str | None, **parameters: int | str) -> list[TrialRecord]:
    key = {} if engine is None else {"engine": engine}
    return [trial(1, parameters=parameters, comparability={**key, **parameters})]


def test_the_lengths_of_any_engine_may_differ() -> None:
    short = measured("other", n_beads=5, polish="a", n_workers=2)
    long = measured("other", n_beads=9, polish="b", n_workers=2)
    more = measured("other", n_beads=9, n_workers=3)
    check_one_setup("wood", {("one", "v"): short, ("two", "v"): long})
    with pytest.raises(ConfigError) as refused:
        check_one_setup("wood", {("one", "v"): short, ("two", "v"): more})
    assert refused.value.details == "n_workers: one:v 2, two:v 3"


def test_the_type_of_the_cache_is_what_the_engine_says() -> None:
    assert conditions(measured("other"))[KV_TYPE] == {"q4_1"}
    assert conditions(measured("other", cache="q8_0"))[KV_TYPE] == {"q8_0"}


@pytest.mark.parametrize("engine", [None, "llama_cpp"])
def test_llama_cpp_has_its_own(engine: str | None) -> None:
    """Records of an import name no engine."""
    short = measured(engine, tokens=5, seed=1, context=64)
    long = measured(engine, tokens=9, seed=2, depth=64, cache_type_k="f16")
    assert conditions(short) == conditions(long)
    assert conditions(short)[KV_TYPE] == {"f16"}
    mixed = conditions(measured(engine, cache_type_k="q8_0"))
    assert mixed[KV_TYPE] == {"q8_0/f16"}


@pytest.mark.parametrize("engine", ["command", "not_installed"])
def test_a_type_that_is_not_known_is_no_difference(engine: str) -> None:
    unknown, known = conditions(measured(engine)), conditions(measured("llama_cpp"))
    assert KV_TYPE not in unknown
    assert KV_TYPE not in unlike({"a": unknown, "b": known})
    other = conditions(measured("llama_cpp", cache_type_k="q8_0"))
    assert KV_TYPE in unlike({"a": unknown, "b": known, "c": other})
