"""Conditions of timing runs: everything except the model that influences the time of a token.

Repeats are pooled only if all conditions agree. Two models may have different conditions, since
each may need its own best settings; only the board and the type of the KV cache must agree.
"""

from collections.abc import Iterable, Mapping, Sequence

from pydantic import JsonValue

from labctl.compare.likeness import short_hash
from labctl.engines.registry import Declared, declared
from labctl.errors import ConfigError
from labctl.records.trial import TrialRecord

BOARD = "board"
KV_TYPE = "KV type"
#: Values of each condition, as texts: the state of a board may change between repeats.
Conditions = Mapping[str, frozenset[str]]

#: Keys that describe the work, not its speed; an engine declares further keys. Lengths are
#: accounted for, sampling is compared separately.
_WORK = {
    "dialect", "files_sha256", "imported", "intent", "model_filename", "prompt_sha256", "sample_ms",
}  # fmt: skip
#: Keys that differ between repeats of the same run.
_MOMENT = {"cooling", "model_cache"}
_NOT_SET = frozenset({"not set"})


def engine_of(trial: TrialRecord) -> Declared:
    """Return the engine's declarations about the parameters of a trial."""
    name = trial.comparability.get("engine")
    return declared(name if isinstance(name, str) else None)


def conditions(trials: Iterable[TrialRecord]) -> Conditions:
    """Return all conditions of these trials."""
    found: dict[str, set[str]] = {}
    for one in trials:
        keys = {**one.parameters, **one.comparability}
        engine = engine_of(one)
        apart = {*_WORK, *_MOMENT, *engine.workload, *engine.cache_types}
        values: dict[str, JsonValue] = {
            BOARD: f"{one.board} ({one.execution})",
            KV_TYPE: engine.cache_type(keys),
            **{k: v for k, v in keys.items() if k not in apart},
        }
        for key, value in values.items():
            if value is not None:
                found.setdefault(key, set()).add(short_hash(str(value)))
    return {key: frozenset(values) for key, values in found.items()}


def check_one_setup(model: str, groups: Mapping[tuple[str, str], Sequence[TrialRecord]]) -> None:
    """Raise ConfigError if trials of several variants or conditions would be pooled.

    ``groups``: the trials of a model, by run and variant.
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
    """Return the different conditions by key: ``threads: q2_k 4, q8_0 2``.

    An unknown KV type differs from no other.
    """
    keys = dict.fromkeys(key for one in sides.values() for key in one)
    return {
        key: f"{key}: " + ", ".join(f"{name} {_text(one, key)}" for name, one in sides.items())
        for key in keys
        if len({one.get(key) for one in sides.values() if key in one or key != KV_TYPE}) > 1
    }


def _text(one: Conditions, key: str) -> str:
    return " and ".join(sorted(one.get(key, _NOT_SET)))
