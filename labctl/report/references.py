"""Published figures, quoted in separate tables beside a run's figures, and never in statistics."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from labctl.config.lab import find_lab_root
from labctl.config.references import Reference, known_references
from labctl.errors import ConfigError
from labctl.records.evaluation import EvaluationRecord
from labctl.records.run import RunRecord
from labctl.suggestions import unknown
from labctl.units import digits, duration, with_unit

#: Name that stands for all known references.
ALL = "all"
#: Note in every table: the figures were not measured here.
HEADLINE = "QUOTED from publications, not measured by labctl; part of no statistic"
COLUMNS = ("quoted", "device", "model", ">as published", ">per token", ">tokens/s", "source")


@dataclass(frozen=True)
class ReferenceRow:
    """A published figure, as text and as values.

    ``token_ns`` and ``tokens_per_second`` are the same figure in other units; None for an accuracy,
    whose ``value`` is in percent.
    """

    name: str
    device: str
    model: str
    quantization: str | None
    program: str | None
    value: float
    unit: str
    dataset: str | None
    conditions: str | None
    token_ns: int | None
    tokens_per_second: float | None
    source: str
    address: str | None
    quoted: bool = True

    @property
    def cells(self) -> tuple[str, ...]:
        """Texts for the headings :data:`COLUMNS`."""
        what = " ".join(filter(None, (self.model, self.quantization)))
        more = ", ".join(filter(None, (self.program, self.dataset, self.conditions)))
        source = " ".join(filter(None, (self.source, self.address)))
        return (
            self.name,
            self.device,
            f"{what} ({more})" if more else what,
            with_unit(self.value, self.unit),
            duration(self.token_ns),
            "-" if self.tokens_per_second is None else digits(self.tokens_per_second),
            source,
        )

    def document(self) -> dict[str, object]:
        """Return the row as JSON."""
        return asdict(self)


def reference_rows(
    run: RunRecord | EvaluationRecord, lab_root: Path | None, names: Sequence[str] | None = None
) -> tuple[ReferenceRow, ...]:
    """Return the published figures that a run's recipe requests, in the recipe's order.

    Args:
        run: the key ``references`` of its recipe names the figures.
        lab_root: the lab; its references.yaml extends labctl's file.
        names: names of figures to show instead; ``all`` stands for every known name.

    Raises ConfigError for an unknown name in ``names``, and for an invalid references.yaml. An
    unknown name in the recipe, for example of another lab's run, is left out.
    """
    recorded = run.recipe_resolved.get("references")
    asked = [str(name) for name in recorded] if isinstance(recorded, list) else []
    if not asked and not names:
        return ()
    known = known_references(lab_root)
    if names:
        asked = [one for name in names for one in (known if name == ALL else (name,))]
        for name in asked:
            if name not in known:
                what = unknown("reference", name, known)
                raise ConfigError(what, hint=f"--references {ALL} shows every known one")
    return tuple(_row(name, known[name]) for name in dict.fromkeys(asked) if name in known)


def references_of(
    run: RunRecord | EvaluationRecord, directory: Path, names: Sequence[str] | None = None
) -> tuple[ReferenceRow, ...]:
    """Return :func:`reference_rows` for the lab that contains a run directory."""
    return reference_rows(run, find_lab_root(directory), names)


def _row(name: str, found: Reference) -> ReferenceRow:
    return ReferenceRow(
        name=name,
        device=found.device,
        model=found.model,
        quantization=found.quantization,
        program=found.program,
        value=found.value,
        unit=found.unit,
        dataset=found.dataset,
        conditions=found.conditions,
        token_ns=found.token_ns,
        tokens_per_second=None if found.token_ns is None else 1e9 / found.token_ns,
        source=found.source,
        address=found.address,
    )
