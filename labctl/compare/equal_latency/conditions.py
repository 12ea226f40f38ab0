"""Conditions of timing runs: all that influences the time of a token, except the model.

Repeats are pooled only if all conditions agree. Two models may differ in them, as each may have its
own best settings; only the board and the type of the KV cache must agree.
"""

from collections.abc import Iterable, Mapping, Sequence

from pydantic import JsonValue

from labctl.compare.likeness import short_hash
from labctl.errors import ConfigError
from labctl.records import TrialRecord

BOARD = "board"
KV_TYPE = "KV type"
#: Values of each condition, as texts: the state of a board may change between repeats.
Conditions = Mapping[str, frozenset[str]]

_CACHE = ("cache_type_k", "cache_type_v")
_DEFAULT_CACHE = "f16"
#: Keys of the work, not of its speed: lengths are accounted for, sampling is compared separately.
_WORK = {
    "chunks", "context", "depth", "dialect", "files_sha256", "ignore_eos", "imported", "intent",
    "log_jsonl", "model_filename", "prompt_sha256", "prompt_tokens", "repetitions", "sample_ms",
    "seed", "temperature", "tokens", "warmup",
}  # fmt: skip
#: Keys of the moment: they differ between repeats of the same run.
_MOMENT = {"cooling", "model_cache"}
_NOT_SET = frozenset({"not set"})


def cache_type(parameters: Mapping[str, JsonValue]) -> str:
    """Return the types of keys and values; llama.cpp's default is f16."""
    types = [str(parameters.get(name) or _DEFAULT_CACHE) for name in _CACHE]
    return "/".join(dict.fromkeys(types))


def conditions(trials: Iterable[TrialRecord]) -> Conditions:
    """Return all conditions of these trials."""
    found: dict[str, set[str]] = {}
    for one in trials:
        keys = {**one.parameters, **one.comparability}
        values: dict[str, JsonValue] = {
            BOARD: f"{one.board} ({one.execution})",
            KV_TYPE: cache_type(keys),
            **{k: v for k, v in keys.items() if k not in {*_WORK, *_MOMENT, *_CACHE}},
        }
        for key, value in values.items():
            if value is not None:
                found.setdefault(key, set()).add(short_hash(str(value)))
    return {key: frozenset(values) for key, values in found.items()}


def check_one_setup(model: str, groups: Mapping[tuple[str, str], Sequence[TrialRecord]]) -> None:
    """Raise ConfigError if trials of several variants or conditions would be pooled.

    ``groups`` are the trials of a model by run and variant.
    """
    names = list(groups)
    hint = f"choose one: `labctl latency-match … {':'.join(names[0])}`"
    if len({variant for _, variant in names}) > 1:
        listed = ", ".join(map(":".join, names))
        raise ConfigError(f"model {model} was measured in several variants: {listed}", hint=hint)
    several = {":".join(name): conditions(trials) for name, trials in groups.items()}
    if found := unlike(several):
        raise ConfigError(
            f"model {model} was measured under different conditions",
            hint=hint,
            details="\n".join(found.values()),
        )


def unlike(sides: Mapping[str, Conditions]) -> dict[str, str]:
    """Return the differences by key: ``threads: q2_k 4, q8_0 2``."""
    keys = dict.fromkeys(key for one in sides.values() for key in one)
    return {
        key: f"{key}: " + ", ".join(f"{name} {_text(one, key)}" for name, one in sides.items())
        for key in keys
        if len({one.get(key) for one in sides.values()}) > 1
    }


def _text(one: Conditions, key: str) -> str:
    return " and ".join(sorted(one.get(key, _NOT_SET)))
