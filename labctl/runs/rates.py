"""How fast a board moves and computes: from its last probe, else from what its target promises."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from labctl.config.target import Expectations
from labctl.records import BoardProbe


@dataclass(frozen=True)
class Rates:
    """Bytes per second, and weights per second by quantisation; None = not known.

    ``source`` says where they come from, for people.
    """

    dram: float | None
    storage: float | None
    source: str
    weights: Mapping[str, float] = field(default_factory=dict)


def rates_of(probe: BoardProbe | None, expectations: Expectations | None) -> Rates | None:
    """What is known; what was measured wins. None when that is nothing.

    Weights are read by page faults on a mapping, so that is the storage's rate where it was
    measured and proven to be uncached.
    """
    expected = expectations.dram_read_bytes_per_s if expectations else None
    promised = expectations.storage_read_bytes_per_s if expectations else None
    if probe is None:
        found = Rates(expected, promised, "the target's expectations")
        return found if expectations else None
    uncached = [rate for rate in probe.storage if rate.uncached]
    mapped = [r.bytes_per_second for r in uncached if r.pattern == "mapping"]
    straight = [r.bytes_per_second for r in uncached if r.pattern == "sequential"]
    weights: dict[str, float] = {}
    for rate in probe.compute:
        speed = rate.weights_per_second
        if speed is not None:
            weights[rate.quantization] = max(speed, weights.get(rate.quantization, 0.0))
    return Rates(
        max((rate.bytes_per_second for rate in probe.memory), default=expected),
        max(mapped or straight, default=promised),
        f"the probe of {probe.taken:%Y-%m-%d}",
        weights,
    )
