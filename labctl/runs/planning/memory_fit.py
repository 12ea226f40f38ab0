"""Memory that a variant needs on a board, its fit, and the effect if it does not fit.

The engine counts the need (:class:`~labctl.engines.base.MemoryNeed`); the board reports its memory.
"""

from dataclasses import dataclass

from labctl.engines.base import MemoryNeed
from labctl.performance.prediction import ModelWorkload, Rates
from labctl.records.board import BoardFacts
from labctl.stats.roofline import UNSURE, Prediction, near_border, surely_fits
from labctl.units import duration, size


@dataclass(frozen=True)
class MemoryFit:
    """One variant against one board.

    ``memory_bytes`` is the available memory, ``total_bytes`` the total memory; None if not
    reported. ``seconds_per_token`` is predicted for weights read from storage, if its rate is
    known, ``resident_seconds`` for weights that stay in memory; ``upper_seconds`` is the longest
    expected time near the border.
    """

    variant: str
    need: MemoryNeed
    bytes_per_token: int
    memory_bytes: int | None
    total_bytes: int | None
    seconds_per_token: float | None = None
    storage_bytes_per_second: float | None = None
    resident_seconds: float | None = None
    upper_seconds: float | None = None

    def document(self) -> dict[str, object]:
        """Return need and memory as a JSON document."""
        return {
            "variant": self.variant,
            "mapped_bytes": self.need.mapped_bytes,
            "repacked_bytes": self.need.repacked_bytes,
            "kv_bytes": self.need.kv_bytes,
            "compute_bytes": self.need.compute_bytes,
            "adapter_bytes": self.need.adapter_bytes,
            "available_bytes": self.memory_bytes,
            "warning": self.warning(),
        }

    @classmethod
    def of(
        cls,
        variant: str,
        work: ModelWorkload,
        prediction: Prediction | None,
        facts: BoardFacts,
        rates: Rates | None,
    ) -> "MemoryFit":
        """Compare the need of a variant with the facts of a board."""
        storage = rates.storage if rates else None
        both = prediction.both if prediction else None
        # This is also for an expected board, with the storage rate of its target.
        paged = both[1] if both else prediction
        return cls(
            variant,
            work.need,
            work.bytes_per_token,
            facts.memory_available_bytes or facts.memory_total_bytes,
            facts.memory_total_bytes,
            paged.seconds_per_token if paged else work.seconds(storage),
            storage.value if storage else None,
            both[0].seconds_per_token if both else None,
            prediction.upper_seconds if prediction else None,
        )

    def message(self) -> str:
        """Describe the parts of the need, and the available memory."""
        need = self.need
        parts = [f"{size(need.mapped_bytes)} weights mapped"]
        if need.repacked_bytes:
            parts.append(f"{size(need.repacked_bytes)} repacked")
        if not need.mapped_bytes:
            parts = [f"{size(need.repacked_bytes)} weights read into memory"]
        for count, what in ((need.kv_bytes, "KV cache"), (need.compute_bytes, "compute buffers")):
            parts.append(f"{what} unknown" if count is None else f"{size(count)} {what}")
        if need.adapter_bytes:
            parts.append(f"{size(need.adapter_bytes)} adapters")
        if need.program_bytes:
            parts.append(f"{size(need.program_bytes)} program")
        there = "" if self.memory_bytes is None else f" of {size(self.memory_bytes)} available"
        return f"{self.variant}: {size(need.total_bytes)}{there}: {', '.join(parts)}"

    def warning(self) -> str | None:
        """Return a warning if it does not fit; None if it fits, or nothing is known."""
        if self.total_bytes is not None and self.need.anonymous_bytes > self.total_bytes:
            return (
                f"{self.variant} needs {size(self.need.anonymous_bytes)} that the kernel cannot"
                f" drop, the board has {size(self.total_bytes)}: expect it to be killed"
            )
        need, there = self.need.resident_bytes, self.memory_bytes
        if there is None or surely_fits(need, there):
            return None
        if self.need.anonymous_bytes > there:
            return (
                f"{self.variant} needs {size(self.need.anonymous_bytes)} that the kernel cannot"
                f" drop, {size(there)} is available: it may be killed"
            )
        again = f"re-read {size(self.bytes_per_token)} from storage for every token{self._pace()}"
        if not near_border(need, there):
            return f"{self.variant} will not fit in {size(there)}: expect to {again}"
        text = (
            f"{self.variant} needs {size(need)} of {size(there)}, within {UNSURE:.0%} of what fits"
        )
        if self.resident_seconds is None:
            return f"{text}: it may {again}"
        upper = ""
        if self.upper_seconds is not None:
            upper = f" (up to {duration(self.upper_seconds * 1e9)} if it reads single pages)"
        resident = duration(self.resident_seconds * 1e9)
        return f"{text}: expect {resident} a token, or to {again}{upper}"

    def _pace(self) -> str:
        if self.seconds_per_token is None or self.storage_bytes_per_second is None:
            return ""
        return (
            f", about {duration(self.seconds_per_token * 1e9)} a token at"
            f" {size(self.storage_bytes_per_second)}/s"
        )
