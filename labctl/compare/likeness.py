"""Likeness of two sides: every value that must agree before numbers may be compared."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from labctl.compare.sides import Side
from labctl.index.rows import TrialRow, parameter_text
from labctl.records.trial import FOLLOWS
from labctl.results.comparability import REVISION
from labctl.units import size

#: Keys of the build.
_BUILD = ("build_spec", "compiler")
EXECUTION = "execution"
MODEL = "model"
MODEL_CACHE = "model_cache"
#: Keys that name the board: boards of other labs are other boards.
PLACE = ("board", "lab")
#: Parts of a trial's record that must agree, in addition to its ``comparability``.
_IDENTITY = ("board", "target", EXECUTION)
#: Facts of another board. They are named, but do not forbid a comparison: ``board`` does.
MACHINE = ("cpu", "memory", "ceiling", "transport")
_DIGITS = 12


@dataclass(frozen=True)
class Difference:
    """A key in which two sides differ, with both values as text for people.

    ``allowed``: reason to compare the sides nevertheless: ``revision``, ``varied`` (by the recipe),
    ``resolved`` (it follows from the model that the recipe varies), ``allowed`` (by the user) or
    ``machine`` (it describes another board).
    None: the sides are not compared.
    """

    key: str
    left: str
    right: str
    allowed: str | None = None

    def __str__(self) -> str:
        return f"{self.key}: {self.left} / {self.right}"


def differences(left: Side, right: Side, allow: Collection[str] = ()) -> list[Difference]:
    """Return all differences of two sides, by key.

    Allowed are the source's revision, values that a recipe varies between variants of one run,
    values that follow from these, and the keys in ``allow``. A different kind of machine (board,
    host, emulated) is never allowed.
    """
    mine, theirs = _values(left), _values(right)
    if not mine or not theirs:
        return []  # without a good repeat the value is unknown
    same_build = mine.get("build_key") == theirs.get("build_key") and "build_key" in mine
    found = []
    varied = left.varied if left.runs == right.runs else frozenset()
    across = any(mine.get(key) != theirs.get(key) for key in PLACE)
    for key in sorted(mine.keys() | theirs.keys()):
        if mine.get(key) == theirs.get(key) or (key in _BUILD and same_build):
            continue
        if key == "compiler" and "build_spec" in mine and "build_spec" in theirs:
            continue  # the specification contains it
        if key in MACHINE and not across:
            continue
        reasons = {
            "revision": REVISION,
            "varied": varied | followers(varied),
            "allowed": allow,
            "machine": MACHINE,
            "resolved": _resolved(left, right) if MODEL in varied else (),
        }
        why = next((word for word, keys in reasons.items() if key in keys), None)
        why = None if key == EXECUTION else why
        names = _files(left, right) if key == MODEL else {}
        left_text, right_text = (_text(values.get(key), names) for values in (mine, theirs))
        found.append(Difference(key, left_text, right_text, why))
    return found


def followers(varied: Collection[str]) -> set[str]:
    """Return the recorded values that follow from parameters."""
    return {key for key, parameter in FOLLOWS.items() if parameter in varied}


def fits_one_run(left: Side, right: Side, found: Iterable[Difference]) -> bool:
    """Return True if one run can contain both sides: only models and parameters differ."""
    varied = {MODEL} | {key for side in (left, right) for r in side.repeats for key in r.parameters}
    own = {one.key for one in found} - {MODEL_CACHE}
    return left.runs == right.runs or (bool(own) and own <= varied)


def _resolved(left: Side, right: Side) -> set[str]:
    """Return the keys that follow from the model, for two variants of one run.

    Both variants have the same recipe. A parameter that the recipe does not vary can differ only if
    labctl sets it to fit the model into memory. A model that does not fit is never completely in
    memory.
    """
    return {
        MODEL_CACHE,
        *(key for side in (left, right) for r in side.repeats for key in r.parameters),
    }


def _values(side: Side) -> dict[str, frozenset[str]]:
    """Return all values of the repeats by key; most keys have one value."""
    found: dict[str, set[str]] = {}
    for session in side.sessions:
        for row in session.repeats:
            for key, value in {**session.facts, **row_values(row)}.items():
                if value is not None:
                    found.setdefault(key, set()).add(parameter_text(value))
        for bound in session.bounds:
            if bound.ceiling_bytes_per_second is not None:
                kind = max(bound.shares, key=bound.shares.__getitem__, default=bound.kind)
                text = f"{kind} {size(bound.ceiling_bytes_per_second)}/s"
                found.setdefault("ceiling", set()).add(text)
    return {key: frozenset(values) for key, values in found.items()}


def row_values(row: TrialRow) -> dict[str, object]:
    """Return all values of one trial that must agree."""
    return {
        **row.comparability,
        MODEL: row.model_sha256,
        **{name: getattr(row, name) for name in _IDENTITY},
    }


def _files(*sides: Side) -> dict[str, str]:
    """Return the names of models' files by hash, with the hash if a name has several."""
    repeats = [row for side in sides for row in side.repeats]
    rows = {row.model_sha256: row.model_file for row in repeats if row.model_sha256 is not None}
    several = len(set(rows.values())) < len(rows)
    return {sha: f"{file} {short_hash(sha)}" if several else file for sha, file in rows.items()}


def _text(values: frozenset[str] | None, names: Mapping[str, str]) -> str:
    if not values:
        return "not known"
    return " and ".join(sorted(names.get(value, short_hash(value)) for value in values))


def short_hash(text: str) -> str:
    """Return the beginning of a hash; return other texts whole."""
    is_hash = len(text) in (40, 64) and all(c in "0123456789abcdef" for c in text)
    return text[:_DIGITS] if is_hash else text or "''"
