"""How fast a board can generate at best, from bytes and bandwidths.

Every generated token needs every weight once, so the time of a token is at least the weights' bytes
divided by the bandwidth of the place they come from (the memory roof of S. Williams et al.,
"Roofline", CACM 52(4), 2009):

- Weights that fit in memory come from DRAM. This is a lower bound: an in-order core's arithmetic is
  often slower than its DRAM.
- Weights that do not fit are read from storage *in whole* for every token: they are used in the
  same order each time, and for a cyclic scan that is larger than the cache, least-recently-used
  replacement evicts every page just before it is needed again. Paging storage is so slow that this
  is close to the real time, not only a bound.

The embedding table is looked up one row at a time and is in neither sum, unless it is also the
output matrix.
"""

import math
from dataclasses import dataclass
from typing import Literal

Bound = Literal["dram", "storage", "compute"]


@dataclass(frozen=True)
class Prediction:
    """Lower bounds in seconds; near the real time when ``bound`` is storage."""

    seconds_per_token: float
    load_seconds: float
    prompt_seconds: float
    bound: Bound
    explanation: str

    def seconds(self, tokens: int, *, warmup: bool) -> float:
        """Load, one more pass for a warm-up, the prompt, and all tokens but the first."""
        passes = tokens - 1 + (1 if warmup else 0)
        return self.load_seconds + self.prompt_seconds + passes * self.seconds_per_token


def bandwidth_from(bytes_per_token: int, seconds_per_token: float) -> float:
    """Bytes per second that a measured time of a token shows."""
    if bytes_per_token <= 0 or seconds_per_token <= 0:
        raise ValueError("bytes and seconds per token must be above 0")
    return bytes_per_token / seconds_per_token


def predict(
    *,
    bytes_per_token: int,
    resident_bytes: int,
    memory_bytes: int,
    dram_bytes_per_second: float,
    storage_bytes_per_second: float,
    compute_seconds_per_token: float | None = None,
    prompt_tokens: int = 1,
    ubatch: int = 512,
) -> Prediction:
    """Predict the times of a generation.

    Args:
        bytes_per_token: weights that one token needs.
        resident_bytes: what must stay in memory for them not to be read again: the same weights,
            copies in another layout, the KV cache.
        memory_bytes: what the board has available for that.
        dram_bytes_per_second: read bandwidth of the board's memory.
        storage_bytes_per_second: sequential read bandwidth of the storage that holds the model.
        compute_seconds_per_token: what the arithmetic alone takes, where it was measured.
        prompt_tokens: length of the prompt; ``ubatch`` of them share one pass over the weights.
        ubatch: physical batch size.

    Raises ValueError for sizes and rates that are not above 0.
    """
    if min(bytes_per_token, resident_bytes, memory_bytes, prompt_tokens, ubatch) <= 0:
        raise ValueError("sizes must be above 0")
    if min(dram_bytes_per_second, storage_bytes_per_second) <= 0:
        raise ValueError("bandwidths must be above 0")
    from_storage = bytes_per_token / storage_bytes_per_second
    fits = resident_bytes <= memory_bytes
    bandwidth = dram_bytes_per_second if fits else storage_bytes_per_second
    per_token = bytes_per_token / bandwidth
    passes = math.ceil(prompt_tokens / ubatch)
    size = f"{bytes_per_token / 1e9:.2f} GB a token"
    need = f"{resident_bytes / 1e9:.2f} GB of {memory_bytes / 1e9:.2f} GB memory"
    if fits:
        if compute_seconds_per_token is not None and compute_seconds_per_token > per_token:
            return Prediction(
                compute_seconds_per_token,
                from_storage,
                passes * compute_seconds_per_token,
                "compute",
                f"fits in memory ({need}); its arithmetic takes {compute_seconds_per_token:.3g} s a"
                f" token, its bytes {per_token:.3g} s",
            )
        # The first pass, whoever makes it, brings the weights from storage.
        return Prediction(
            per_token,
            from_storage,
            passes * per_token,
            "dram",
            f"fits in memory ({need}): {size} at {bandwidth / 1e9:.2f} GB/s from DRAM, at best",
        )
    return Prediction(
        per_token,
        0.0,
        passes * per_token,
        "storage",
        f"does not fit in memory ({need}): every token reads {size} at"
        f" {bandwidth / 1e6:.0f} MB/s from storage",
    )
