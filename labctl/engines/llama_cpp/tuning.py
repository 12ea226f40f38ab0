"""The space that a search tries by default: docs/tuning.md lists it."""

from collections.abc import Collection, Mapping
from typing import Any

from labctl.records.board import BoardFacts

#: Values by parameter; a program has some of them. ``prio`` needs root, and is left out.
_ALWAYS: Mapping[str, tuple[Any, ...]] = {
    "repack": (True, False),
    "mmap": (True, False),
    "mlock": (False, True),
    "poll": (50, 0, 100),
    "flash_attention": (True, False),
    "cache_type_k": ("f16", "q8_0"),
    "cache_type_v": ("f16", "q8_0"),
}
#: They change how a prompt is read only.
_FOR_PROMPTS: Mapping[str, tuple[Any, ...]] = {"batch": (2048, 256), "ubatch": (512, 128, 32)}


def built_in_space(
    known: Collection[str], facts: BoardFacts, objectives: Collection[str]
) -> dict[str, tuple[Any, ...]]:
    """Return the values to try of the parameters that a program has (``known``)."""
    prompts = "prefill" in objectives
    found: dict[str, tuple[Any, ...]] = {}
    if {*objectives} != {"prefill"}:  # which threads_batch decides
        found["threads"] = thread_counts(facts.cores or 1)
    if prompts:
        found["threads_batch"] = thread_counts(facts.cores or 1)
    found |= {**_ALWAYS, **(_FOR_PROMPTS if prompts else {})}
    return {key: values for key, values in found.items() if key in known and len(values) > 1}


def thread_counts(cores: int) -> tuple[int, ...]:
    """Return all numbers of threads of up to four cores; of more cores, a few."""
    if cores <= 4:
        return tuple(range(1, cores + 1))
    return tuple(sorted({2, cores // 4, cores // 2, cores * 3 // 4, cores - 1, cores} - {0, 1}))
