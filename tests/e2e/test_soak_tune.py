"""Longer searches with llama.cpp on this host: a second seed confirms the first, or doubts it."""

import json
from typing import Any

import pytest
from labs import LabUnderTest, said
from test_tune import LLAMA

pytestmark = [pytest.mark.soak, pytest.mark.e2e, pytest.mark.timeout(1800)]


def proof_of(lab: LabUnderTest, seed: int) -> dict[str, Any] | None:
    """The proof of a search of five minutes; None if the race named no setting."""
    done = lab.run(
        "tune", "search", "--seed", str(seed), "--budget", "5m", "--set", "tokens=100", "--json",
        timeout=900,
    )  # fmt: skip
    assert done.exit_status == 0, said(done)
    found = json.loads(done.text)
    (sentence,) = found["tuning"]["sentences"]
    print(f"seed {seed}: {sentence}")
    kinds = [one["kind"] for one in found["tuning"]["rounds"]]
    assert kinds[0] == "first"
    assert kinds.count("race") >= 1
    proofs: list[dict[str, Any]] = found["tuning"]["proofs"]
    return proofs[0] if proofs else None


def test_two_searches_do_not_contradict_each_other(
    native_lab: LabUnderTest, native_llama: None
) -> None:
    native_lab.recipe(LLAMA, "search")
    one, other = proof_of(native_lab, 1), proof_of(native_lab, 2)
    if one is None or other is None or one["setting"] != other["setting"]:
        return  # each says what it shows of its own winner
    assert one["low"] <= other["high"]
    assert other["low"] <= one["high"]
