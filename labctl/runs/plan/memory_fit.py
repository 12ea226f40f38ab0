"""Whether what a recipe runs fits in a board's memory, and what it costs where it does not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from labctl.config.variants import Variant
from labctl.engines import MemoryNeed, Passes
from labctl.performance.prediction import Work, predictions
from labctl.performance.rates import Rates
from labctl.records import BoardFacts
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.inputs.scheduling import as_scheduled
from labctl.stats import UNSURE, near_border, surely_fits
from labctl.units import duration, size


@dataclass(frozen=True)
class Fit:
    """One variant against one board.

    ``memory_bytes`` is what is available, ``total_bytes`` all there is; None where the board does
    not tell. ``seconds_per_token`` is predicted for weights that are read from storage, where its
    rate is known, ``resident_seconds`` for weights that stay in memory.
    """

    variant: str
    need: MemoryNeed
    bytes_per_token: int
    memory_bytes: int | None
    total_bytes: int | None
    seconds_per_token: float | None = None
    storage_bytes_per_second: float | None = None
    resident_seconds: float | None = None

    def told(self) -> str:
        """Each part of the need, and what there is."""
        need = self.need
        parts = [f"{size(need.mapped_bytes)} weights mapped"]
        if need.repacked_bytes:
            parts.append(f"{size(need.repacked_bytes)} repacked")
        if not need.mapped_bytes:
            parts = [f"{size(need.repacked_bytes)} weights read into memory"]
        for count, what in ((need.kv_bytes, "KV cache"), (need.compute_bytes, "compute buffers")):
            parts.append(f"{what} unknown" if count is None else f"{size(count)} {what}")
        if need.program_bytes:
            parts.append(f"{size(need.program_bytes)} program")
        there = "" if self.memory_bytes is None else f" of {size(self.memory_bytes)} available"
        return f"{self.variant}: {size(need.total_bytes)}{there}: {', '.join(parts)}"

    def warning(self) -> str | None:
        """What to expect where it does not fit; None where it does, or nothing is known."""
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
        told = (
            f"{self.variant} needs {size(need)} of {size(there)}, within {UNSURE:.0%} of what fits"
        )
        if self.resident_seconds is None:
            return f"{told}: it may {again}"
        return f"{told}: expect {duration(self.resident_seconds * 1e9)} a token, or to {again}"

    def _pace(self) -> str:
        if self.seconds_per_token is None or self.storage_bytes_per_second is None:
            return ""
        return (
            f", about {duration(self.seconds_per_token * 1e9)} a token at"
            f" {size(self.storage_bytes_per_second)}/s"
        )


def settled_variants(prepared: Prepared, facts: BoardFacts) -> tuple[list[Variant], list[str]]:
    """The variants with every open parameter decided, and what was decided.

    Raises ConfigError when the board does not have the CPUs that the recipe asks for.
    """
    variants: list[Variant] = []
    notes: list[str] = []
    facts = as_scheduled(prepared.recipe, facts)
    for variant in prepared.recipe.variants():
        settled = prepared.engine.settle(
            prepared.engine.parameters(variant.parameters),
            facts,
            prepared.models[variant.model_key].identity,
            _text_bytes(prepared),
        )
        decided = settled.parameters.model_dump(mode="json", exclude_none=True)
        variants.append(replace(variant, parameters=decided))
        notes += [note for note in settled.notes if note not in notes]
    return variants, notes


def passes_of(prepared: Prepared, variant: Variant) -> Passes | None:
    """What one run of a settled variant computes."""
    engine = prepared.engine
    return engine.passes(engine.parameters(variant.parameters), _text_bytes(prepared))


def _text_bytes(prepared: Prepared) -> int:
    if prepared.prompt is not None:
        return len(prepared.prompt.encode())
    return sum(item.size_bytes for item in prepared.files.values())


def works_of(prepared: Prepared, variants: Sequence[Variant]) -> dict[str, Work]:
    """What settled variants ask of a board, by slug; without those of which nobody can say."""
    works = {}
    for variant in variants:
        model = prepared.models[variant.model_key].identity
        parameters = prepared.engine.parameters(variant.parameters)
        need = prepared.engine.memory(parameters, model, _text_bytes(prepared))
        if need is not None and model.bytes_per_token is not None:
            workload = prepared.engine.roles.workload(variant.parameters)
            works[variant.slug] = Work.of(model, need, workload, passes_of(prepared, variant))
    return works


def fits_of(prepared: Prepared, facts: BoardFacts, rates: Rates | None) -> Sequence[Fit]:
    """Every variant of a recipe against a board, where the need for memory is known."""
    variants, _ = settled_variants(prepared, facts)
    works = works_of(prepared, variants)
    predicted = predictions(works, facts, rates)
    storage = rates.storage if rates else None
    found = []
    for slug, work in works.items():
        prediction = predicted.get(slug)
        both = prediction.both if prediction else None
        # Also of a board that is none: what the target's storage would make of it.
        paged = both[1] if both else prediction
        found.append(
            Fit(
                f"{prepared.recipe.name} {slug}",
                work.need,
                work.bytes_per_token,
                facts.memory_available_bytes or facts.memory_total_bytes,
                facts.memory_total_bytes,
                paged.seconds_per_token if paged else work.seconds(storage),
                storage.value if storage else None,
                both[0].seconds_per_token if both else None,
            )
        )
    return found
