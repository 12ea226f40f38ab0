"""Trials as Apache Parquet: typed columns, for programs that read many trials."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from labctl.figures.trials import FIGURES
from labctl.index.index import IndexedTrial
from labctl.index.rows import parameter_text
from labctl.report.rows import arrow_kinds, parquet_bytes, parquet_library
from labctl.report.trial_export import NESTED, kinds_of, trial_columns, trial_document

if TYPE_CHECKING:
    import pyarrow

_MOMENTS = ("started", "finished")
#: Units with another name in the schema.
_UNITS = {"mC": "0.001 degC"}


def trials_parquet(trials: Sequence[IndexedTrial]) -> bytes:
    """Return a Parquet file with a row for each trial.

    Moments are timestamps in UTC, tags a list; parameters, conditions and comparability are structs
    with a field for each key of any trial. A field with values of several kinds is text. Unknown
    values are null. Raises ConfigError if pyarrow is not installed.
    """
    pyarrow = parquet_library()
    documents = [_typed(trial_document(one)) for one in trials]
    return parquet_bytes(pyarrow.Table.from_pylist(documents, schema=_schema(documents)))


def _typed(document: Mapping[str, object]) -> dict[str, Any]:
    moments = {name: datetime.fromisoformat(str(document[name])) for name in _MOMENTS}
    return {**document, **moments}


def _schema(documents: Sequence[Mapping[str, Any]]) -> "pyarrow.Schema":
    """Return the columns, with the types of nested values; convert values of mixed types."""
    import pyarrow

    kinds = arrow_kinds(pyarrow)
    units = {"model_bytes": "bytes"}
    units |= {one.column: _UNITS.get(one.unit, one.unit) for one in FIGURES}
    fields = []
    for name, kind in trial_columns().items():
        if name == "tags":
            fields.append(pyarrow.field(name, pyarrow.list_(pyarrow.string())))
            continue
        unit = units.get(name)
        moment = pyarrow.timestamp("us", tz="UTC")
        metadata = {"unit": unit} if unit else None
        fields.append(
            pyarrow.field(name, moment if name in _MOMENTS else kinds[kind], metadata=metadata)
        )
    for name in NESTED:
        mappings = [document[name] for document in documents]
        inner = kinds_of(mappings)
        for mapping in mappings:
            mapping.update(
                (key, parameter_text(value))
                for key, value in mapping.items()
                if inner[key] is str and value is not None
            )
        if inner:  # a struct without fields cannot be written
            struct = pyarrow.struct([(key, kinds[kind]) for key, kind in inner.items()])
            fields.append(pyarrow.field(name, struct))
    return pyarrow.schema(fields)
