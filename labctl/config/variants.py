"""The combinations of a recipe's matrix."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

#: The value of an engine's parameter.
Scalar: TypeAlias = bool | int | float | str

MOST_VARIANTS = 1000
_LONGEST_SLUG = 80


@dataclass(frozen=True)
class Variant:
    """One combination.

    Args:
        slug: unique among the recipe's variants, also where case is ignored; a file name of
            ``a-z``, ``0-9``, ``.``, ``_`` and ``-``.
        model_key: the recipe's model.
        parameters: the engine's parameters, fixed and from the matrix.
    """

    slug: str
    model_key: str
    parameters: Mapping[str, Scalar]


def expand(
    model_keys: Sequence[str],
    parameters: Mapping[str, Scalar],
    axes: Mapping[str, Sequence[Scalar]],
) -> list[Variant]:
    """All combinations, the last axis varying fastest, models slowest."""
    taken: set[str] = set()
    variants = []
    for model in model_keys:
        for values in itertools.product(*axes.values()):
            chosen = dict(zip(axes, values, strict=True))
            words = [model, *(f"{axis}-{_word(value)}" for axis, value in chosen.items())]
            slug = next(s for s in _candidates("-".join(words)) if s not in taken)
            taken.add(slug)
            variants.append(Variant(slug, model, {**parameters, **chosen}))
    return variants


def _word(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _candidates(text: str) -> Iterator[str]:
    """Yield the text as a file name, then with numbers, since different texts can give the same
    name.
    """
    slug = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-.")[:_LONGEST_SLUG] or "variant"
    yield slug
    for number in itertools.count(2):
        yield f"{slug}-{number}"
