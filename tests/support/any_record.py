"""Any record that the models allow, for hypothesis: made from their own annotations."""

import enum
import types
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel, JsonValue

from labctl.config.recipe_parts import CpuList

Values = st.SearchStrategy[Any]
#: Everything that UTF-8 can hold.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC))
JSON: Values = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
PLAIN: dict[Any, Values] = {
    JsonValue: JSON,
    AwareDatetime: MOMENTS,
    datetime: MOMENTS,
    bool: st.booleans(),
    float: NUMBERS,
    str: TEXT,
    type(None): st.none(),
}


def records(kind: type[BaseModel], **fixed: Values) -> Values:
    """Records of a kind; ``fixed`` says of some fields what they are."""
    values = {
        name: fixed[name] if name in fixed else values_of(field.annotation, *field.metadata)
        for name, field in kind.model_fields.items()
        if name != "schema_version"
    }
    return st.fixed_dictionaries(values).map(lambda found: kind(**found))


def values_of(kind: Any, *constraints: Any) -> Values:
    if set(get_args(CpuList)[1:]) & set(constraints):
        return st.sampled_from(["0", "0-3", "0-1,4"])
    if get_origin(kind) is not None and kind not in PLAIN:
        return _composed(get_origin(kind), get_args(kind), constraints)
    if kind in PLAIN:
        return PLAIN[kind]
    if issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    if issubclass(kind, BaseModel):
        return st.deferred(lambda: records(kind))
    assert kind is int, f"no values of {kind}"
    least = [one.ge for one in constraints if isinstance(one, Ge)]
    least += [one.gt + 1 for one in constraints if isinstance(one, Gt)]  # type: ignore[operator]
    most = [one.le for one in constraints if isinstance(one, Le)]
    most += [one.lt - 1 for one in constraints if isinstance(one, Lt)]  # type: ignore[operator]
    return st.integers(max(least, default=-(1 << 62)), min(most, default=(1 << 63) - 1))


def _composed(origin: Any, inner: tuple[Any, ...], constraints: tuple[Any, ...]) -> Values:
    if origin is Annotated:
        return values_of(*inner)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(one, *constraints) for one in inner])
    if origin is Literal:
        return st.sampled_from(inner)
    if origin is tuple and inner[-1] is Ellipsis:
        return st.lists(values_of(inner[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, inner))
    assert origin in (dict, Mapping), f"no values of {origin}"
    return st.dictionaries(values_of(inner[0]), values_of(inner[1]), max_size=2)
