"""Reads what the user writes: a YAML document into a pydantic model, or one clear error.

All problems of a document are reported at once, a line for each::

    devices.yaml:7:5: boards.rk1.taget: unknown key (did you mean 'target'?)

Values are checked strictly (text is not a number, a number is not text), by the rules that
pydantic has for strict JSON. Rules between several keys of a model are checked when its keys by
themselves are right.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from labctl.checked import listed
from labctl.config.types import InterruptibleModel
from labctl.config.yaml import loader as yamltext
from labctl.config.yaml import messages as wording
from labctl.config.yaml.loader import Path, Value
from labctl.errors import ConfigError
from labctl.files import settled_stamp

MOST_BYTES = 1_000_000
MOST_PROBLEMS = 20

M = TypeVar("M", bound=BaseModel)


class StrictModel(InterruptibleModel):
    """Base of all models of what the user writes: unknown keys are refused, values are final."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def load(path: FilePath, model: type[M], *, context: dict[str, Any] | None = None) -> M:
    """Load the document in a file as a ``model``; ``context`` is passed to the model's validators.

    A file that stays as it is is read once: values are final. Raises ConfigError when the file
    cannot be read, or with a line for each problem in it.
    """
    if context is None and (stamp := settled_stamp(path)) is not None:
        found = _loaded(path, model, stamp)
        assert isinstance(found, model)
        return found
    return Document.read(path).validated(model, context=context)


@lru_cache(maxsize=256)
def _loaded(path: FilePath, model: type[BaseModel], _stamp: tuple[int, ...]) -> BaseModel:
    return Document.read(path).validated(model)


def parse(text: str, model: type[M], name: str, *, context: dict[str, Any] | None = None) -> M:
    """As ``load``, for a text that problems call ``name``."""
    return Document.parse(text, name).validated(model, context=context)


def refuse(message: str, *path: str | int) -> PydanticCustomError:
    """Make the error that a validator raises to point at ``path`` inside its own value."""
    return refuse_all([(path, message)])


def refuse_all(problems: Iterable[tuple[Path, str]]) -> PydanticCustomError:
    """As ``refuse``, for several problems at once."""
    return refuse_explained((path, message, False) for path, message in problems)


def refuse_explained(problems: Iterable[tuple[Path, str, bool]]) -> PydanticCustomError:
    """As ``refuse_all``, for what :func:`~labctl.config.yaml.messages.explain` finds."""
    found = list(problems)
    text = "; ".join(f"{wording.path_text(path)}: {message}" for path, message, _ in found)
    return PydanticCustomError(wording.REFUSED, "{text}", {"text": text, "problems": found})


@dataclass
class Document:
    """The value of a YAML text, and where in it everything is.

    Args:
        name: what problems call the document, the path of its file for instance.
        overridden: for paths that do not come from the document, who says so.
        text: the document as written; empty for one that was made.
    """

    name: str
    value: Value
    marks: yamltext.Marked
    overridden: dict[Path, str] = field(default_factory=dict)
    text: str = ""

    @classmethod
    def read(cls, path: FilePath) -> "Document":
        """Read the document in a file. Raises ConfigError."""
        return cls.parse(read_text(path), str(path))

    @classmethod
    def parse(cls, text: str, name: str) -> "Document":
        """Read the document in a text. Raises ConfigError."""
        try:
            marks = yamltext.read_yaml(text)
        except yamltext.NotYaml as error:
            place = f"{name}:{error.spot.line}:{error.spot.column}"
            refused = ConfigError(f"{place}: {error.message}")
            raise refused.at(name, error.spot.line) from None
        document = cls(name, marks.value, marks, text=text)
        if marks.problems:
            raise document._refusal((p.path, p.message, p.spot) for p in marks.problems)
        return document

    def override(self, path: Path, value: Value, origin: str) -> None:
        """Put ``value`` at ``path``, making mappings on the way; problems there are ``origin``'s.

        ``None`` is written as null, which may mean another thing than a missing key. Raises
        ConfigError when something on the way is not a mapping.
        """
        self._above(path, origin)[str(path[-1])] = value
        self.overridden[path] = origin

    def remove(self, path: Path, origin: str) -> None:
        """Remove the value at ``path``, if there is one. Raises as :meth:`override` does."""
        self._above(path, origin).pop(str(path[-1]), None)
        self.overridden[path] = origin

    def _above(self, path: Path, origin: str) -> dict[str, Value]:
        """Return the mapping that ``path`` is in, made on the way."""
        if not isinstance(self.value, dict):
            self._not_a_mapping(StrictModel)
        inner: dict[str, Value] = self.value
        for number, step in enumerate(path[:-1], 1):
            if step not in inner:
                self.overridden.setdefault(path[:number], origin)
            below = inner.setdefault(str(step), {})
            if not isinstance(below, dict):
                place = wording.path_text(path[:number])
                raise ConfigError(f"{origin}: {place} is not a mapping, it has no keys to set")
            inner = below
        return inner

    def validated(self, model: type[M], *, context: dict[str, Any] | None = None) -> M:
        """Return the document as a ``model``. Raises ConfigError with a line for each problem."""
        if not isinstance(self.value, dict):
            self._not_a_mapping(model)
        try:
            return model.model_validate_json(json.dumps(self.value), strict=True, context=context)
        except ValidationError as failure:
            found = wording.explain(failure.errors(include_url=False), self.value, model)
            placed = [(path, text, self._spot(path, key=key)) for path, text, key in found]
        raise self._refusal(placed)

    def refusal(self, problems: Iterable[tuple[Path, str]]) -> ConfigError:
        """Return the error for problems found after reading, each at its place."""
        return self._refusal((path, text, self._spot(path)) for path, text in problems)

    def _not_a_mapping(self, model: type[BaseModel]) -> NoReturn:
        required = [name for name, info in model.model_fields.items() if info.is_required()]
        needs = (
            f" with the key{'s' * (len(required) > 1)} {listed(required, joiner='and')}"
            if required
            else ""
        )
        spot = self._spot(())
        what = "the file is empty" if self.value is None else f"found {wording.shown(self.value)}"
        raise ConfigError(
            f"{self.name}:{spot.line}:{spot.column}: {what}, expected a mapping{needs}"
        ).at(self.name, spot.line)

    def _spot(self, path: Path, *, key: bool = False) -> yamltext.Spot:
        """Position of ``path``, or of the nearest thing around it."""
        exact = self.marks.keys if key else self.marks.values
        if path in exact:
            return exact[path]
        while path:
            path = path[:-1]
            if path in self.marks.keys:
                return self.marks.keys[path]
        return self.marks.values.get(path, yamltext.Spot(1, 1))

    def _origin(self, path: Path) -> str | None:
        """Return who says what is at ``path``, where that is not the document."""
        inner = (path[:length] for length in range(len(path), -1, -1))
        return next((self.overridden[p] for p in inner if p in self.overridden), None)

    def _place(self, path: Path, spot: yamltext.Spot) -> str:
        if (origin := self._origin(path)) is not None:
            return origin
        place = f"{self.name}:{spot.line}:{spot.column}"
        inside = [o for p, o in self.overridden.items() if p[: len(path)] == path]
        return f"{place} (with {', '.join(inside)})" if inside else place

    def _refusal(self, problems: Iterable[tuple[Path, str, yamltext.Spot]]) -> ConfigError:
        ordered = sorted(problems, key=lambda p: (p[2].line, p[2].column))
        lines = [
            ": ".join(filter(None, (self._place(path, spot), wording.path_text(path), message)))
            for path, message, spot in ordered
        ]
        if len(lines) > MOST_PROBLEMS:
            lines[MOST_PROBLEMS:] = [f"{self.name}: and {len(lines) - MOST_PROBLEMS} more problems"]
        own = (spot.line for path, _, spot in ordered if self._origin(path) is None)
        line = next(own, None)
        return ConfigError("\n".join(lines)).at(None if line is None else self.name, line)


def read_text(path: FilePath) -> str:
    """Return the UTF-8 text of a small file of the user. Raises ConfigError."""
    where = str(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file").at(where) from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: this is a directory, not a file").at(where) from None
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"{path}: cannot be read: {reason}").at(where) from None
    except ValueError as error:
        raise ConfigError(f"{where!r}: not a path: {error}") from None
    if len(raw) > MOST_BYTES:
        most = MOST_BYTES // 1000
        raise ConfigError(f"{path}: larger than {most} kB; is this the right file?").at(where)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        refused = ConfigError(f"{path}:{line}: not UTF-8 text (byte 0x{raw[error.start]:02x})")
        raise refused.at(where, line) from None
