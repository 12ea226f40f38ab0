"""Upper bound of a board's generation rate, from bytes and bandwidths.

Every generated token needs every weight once. So the time of a token is at least the weights' bytes
divided by the bandwidth of their location (the memory roof of S. Williams et al., "Roofline", CACM
52(4), 2009):

- Weights that fit in memory come from DRAM, with the KV cache of all positions before the token.
  This is a lower bound: an in-order core's arithmetic is often slower than its DRAM.
- Weights that do not fit are read from storage *in whole* for every token. They are used in the
  same order each time. For such a cyclic scan that is larger than the cache, least-recently-used
  replacement evicts every page just before it is needed again. Paging storage is so slow that this
  is close to the real time, not only a bound. (A kernel that protects pages which were read again
  re-reads less if only little is missing.)
- Arithmetic takes the same time wherever the weights come from.

The embedding table is looked up one row at a time; it is not counted unless it is also the output
matrix. Every program reads the whole file once when it loads (llama.cpp maps it with MAP_POPULATE),
whether the pages stay in memory or not.

The needed memory is an estimate. If need and memory differ by less than ``UNSURE``, the weights may
stay or be read again, and both times are predicted. Near this border the kernel reads back single
pages that it dropped, slower than a scan: the upper time is ``PAGE_READS`` times the second one.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from labctl.units import digits, duration, size

Bound = Literal["dram", "storage", "compute"]

#: Maximum relative error of the estimated memory need.
UNSURE = 0.15
#: Near the border a token took 1.8 to 2.2 times as long as the scan of its weights (172 MB for a
#: need of 178.5 MB, 13.6 of 30 MB/s from storage; native, memory and disk limited by a cgroup, on a
#: loaded host), and 1.1 times in an emulated machine with a clock of its own (168.0 MB for that
#: need, 20 MB/s: tests/e2e/test_soak_memory_fit.py). The largest ratio is used: no idle host was
#: measured.
PAGE_READS = 2.2


def surely_fits(need_bytes: float, memory_bytes: float) -> bool:
    """Return True if a need fits, even if it was estimated too low."""
    return need_bytes * (1 + UNSURE) <= memory_bytes


def near_border(need_bytes: float, memory_bytes: float) -> bool:
    """Return True if an estimated need is too close to the memory size to decide if it fits."""
    return not surely_fits(need_bytes, memory_bytes) and not surely_fits(memory_bytes, need_bytes)


@dataclass(frozen=True)
class Prediction:
    """Lower bounds in seconds; close to the real time if ``bound`` is storage.

    ``load_seconds`` is 0 if the storage is unknown. ``otherwise``: near the memory limit, the
    prediction for the other side of it.
    """

    seconds_per_token: float
    load_seconds: float
    prompt_seconds: float
    bound: Bound
    explanation: str
    fits: bool
    otherwise: "Prediction | None" = None

    @property
    def both(self) -> "tuple[Prediction, Prediction] | None":
        """Near the memory limit: the predictions for weights that stay, and that are read again."""
        if self.otherwise is None:
            return None
        return (self, self.otherwise) if self.fits else (self.otherwise, self)

    @property
    def upper_seconds(self) -> float | None:
        """Near the memory limit: the longest expected time of a token, with single page reads."""
        return None if self.both is None else self.both[1].seconds_per_token * PAGE_READS

    @property
    def slower(self) -> "Prediction":
        """The slower prediction, for waiting."""
        return self if self.otherwise is None or not self.fits else self.otherwise

    def seconds(self, *, prompts: int, tokens: int) -> float:
        """Return the time in s to load, read the prompts, then generate the tokens one by one."""
        read = prompts * self.prompt_seconds
        return self.load_seconds + read + tokens * self.seconds_per_token


def experts_read(experts: int, per_token: int, tokens: int) -> float:
    """Return the share of a mixture's experts that ``tokens`` tokens read together.

    Assumes that all experts are equally likely: each token leaves an expert out with probability 1
    - per_token / experts.
    """
    return 1 - (1 - per_token / experts) ** tokens


@dataclass(frozen=True)
class Work:
    """Bytes and tokens of a generation. Raises ValueError if a size is <= 0.

    ``bytes_per_token``: weights for one token. ``prompt_bytes``: weights for a pass over a batch of
    the prompt; None: the same. ``resident_bytes``: data that must stay in memory so that weights
    are not read again (the weights, copies in another layout, the KV cache). ``load_bytes``: bytes
    read from storage before any computation. ``kv_bytes``: bytes of the KV cache read by a token in
    the middle of the generation. ``ubatch``: number of prompt tokens that share one pass.
    """

    bytes_per_token: int
    resident_bytes: int
    load_bytes: int
    kv_bytes: int = 0
    prompt_tokens: int = 1
    prompt_bytes: int | None = None
    ubatch: int = 512

    def __post_init__(self) -> None:
        sizes = (self.bytes_per_token, self.resident_bytes, self.load_bytes, self.prompt_tokens)
        if min(*sizes, self.ubatch) <= 0:
            raise ValueError("sizes must be above 0")


@dataclass(frozen=True)
class Machine:
    """Memory of a board, in bytes, and its rates, if known.

    ``dram``, ``storage``: bytes per second read from memory, and from the storage that holds the
    model. ``compute``, ``prompt_compute``: seconds of arithmetic per token, in generation and in a
    prompt. Raises ValueError if a value is <= 0.
    """

    memory_bytes: int
    dram: float | None
    storage: float | None
    compute: float | None = None
    prompt_compute: float | None = None

    def __post_init__(self) -> None:
        if self.memory_bytes <= 0:
            raise ValueError("sizes must be above 0")
        if any(rate is not None and rate <= 0 for rate in (self.dram, self.storage)):
            raise ValueError("bandwidths must be above 0")


def predict(work: Work, machine: Machine) -> Prediction | None:
    """Predict the times of a generation; None if the limiting rate is unknown."""
    resident, paged = (_when(work, machine, resident=one) for one in (True, False))
    fits = work.resident_bytes <= machine.memory_bytes
    found = resident if fits else paged
    there = f"({size(work.resident_bytes)} of {size(machine.memory_bytes)})"
    if found is None:
        return None
    is_near = near_border(work.resident_bytes, machine.memory_bytes)
    if not is_near or resident is None or paged is None:
        explanation = f"{'fits' if fits else 'does not fit'} in memory {there}: {found.explanation}"
        return replace(found, explanation=explanation)
    explanation = (
        f"within {UNSURE:.0%} of what fits in memory {there}:"
        f" {duration(resident.seconds_per_token * 1e9)} a token if it does"
        f" ({resident.explanation}), {duration(paged.seconds_per_token * 1e9)} if not"
        f" ({paged.explanation}), up to {duration(paged.seconds_per_token * PAGE_READS * 1e9)} if"
        " it reads single pages"
    )
    return replace(found, explanation=explanation, otherwise=paged if fits else resident)


def _when(work: Work, machine: Machine, *, resident: bool) -> Prediction | None:
    """Return the prediction for weights that stay in memory, or are read again for each token."""
    passes: dict[Bound, float] = {}  # over the weights, for a prompt
    tokens: dict[Bound, tuple[float, str]] = {}
    batch_bytes = work.prompt_bytes or work.bytes_per_token
    if not resident:
        if machine.storage is None:
            return None
        passes["storage"] = batch_bytes / machine.storage
        read = f"{size(work.bytes_per_token)} at {size(machine.storage)}/s from storage"
        tokens["storage"] = (work.bytes_per_token / machine.storage, f"every token reads {read}")
    if machine.dram:
        moved = work.bytes_per_token + work.kv_bytes
        passes["dram"] = batch_bytes / machine.dram
        rate = f"{size(machine.dram)}/s from DRAM, at best"
        tokens["dram"] = (moved / machine.dram, f"{size(moved)} a token at {rate}")
    if machine.compute:
        explanation = f"its arithmetic takes {digits(machine.compute)} s a token"
        tokens["compute"] = (machine.compute, explanation)
    if not tokens:
        return None
    bound = max(tokens, key=lambda kind: tokens[kind][0])
    seconds, why = tokens[bound]
    prompt = [math.ceil(work.prompt_tokens / work.ubatch) * max(passes.values(), default=0.0)]
    if machine.prompt_compute:
        prompt.append(work.prompt_tokens * machine.prompt_compute)
    load = work.load_bytes / machine.storage if machine.storage else 0.0
    return Prediction(seconds, load, max(prompt), bound, why, resident)
