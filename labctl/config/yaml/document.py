"""Read a user's YAML document into a pydantic model, or raise one clear error.

All problems of a document are reported at once, one per line::

    devices.yaml:7:5: boards.rk1.taget: unknown key (did you mean 'target'?)

Values are checked strictly (text is not a number, a number is not text), by pydantic's rules for
strict JSON. Rules between several keys of a model are checked if each key is right by itself.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from labctl.config.types import InterruptibleModel
from labctl.config.yaml import loader as yamltext
from labctl.config.yaml import messages as wording
from labctl.config.yaml.loader import Path, Value
from labctl.errors import ConfigError
from labctl.file_hashes import settled_stamp
from labctl.suggestions import listed

MOST_BYTES = 1_000_000
MOST_PROBLEMS = 20

M = TypeVar("M", bound=BaseModel)


class StrictModel(InterruptibleModel):
    """Base of all models of users' files: unknown keys are refused, values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def load(path: FilePath, model: type[M], *, context: dict[str, Any] | None = None) -> M:
    """Load the document in a file as a ``model``; ``context`` is passed to the model's validators.

    An unchanged file is read only once: values are immutable. Raises ConfigError if the file cannot
    be read, or with a line for each problem in it.
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
    """Load the document in a text; messages call it ``name``."""
    return Document.parse(text, name).validated(model, context=context)


def refuse(message: str, *path: str | int) -> PydanticCustomError:
    """Make the error that a validator raises for ``path`` inside its own value."""
    return refuse_all([(path, message)])


def refuse_all(problems: Iterable[tuple[Path, str]]) -> PydanticCustomError:
    """Make one error for several problems, as ``refuse`` does."""
    return refuse_explained((path, message, False) for path, message in problems)


def refuse_explained(problems: Iterable[tuple[Path, str, bool]]) -> PydanticCustomError:
    """Make one error for the problems that :func:`~labctl.config.yaml.messages.explain` found."""
    found = list(problems)
    text = "; ".join(f"{wording.path_text(path)}: {message}" for path, message, _ in found)
    return PydanticCustomError(wording.REFUSED, "{text}", {"text": text, "problems": found})


@dataclass
class Document:
    """The value of a YAML text, with the places of its parts.

    Args:
        name: name of the document in messages, such as the path of its file.
        overridden: origin of each path that is not from the document.
        text: the document as written; empty if it was not read from a text.
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
        """Put ``value`` at ``path``, and make missing mappings. Messages name ``origin``.

        ``None`` is written as null, which may differ from a missing key. Raises ConfigError if a
        value above ``path`` is not a mapping.
        """
        self._above(path, origin)[str(path[-1])] = value
        self.overridden[path] = origin

    def remove(self, path: Path, origin: str) -> None:
        """Remove the value at ``path``, if there is one. Raises as :meth:`override` does."""
        self._above(path, origin).pop(str(path[-1]), None)
        self.overridden[path] = origin

    def _above(self, path: Path, origin: str) -> dict[str, Value]:
        """Return the mapping that contains ``path``; make missing mappings."""
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
        """Return the error for problems found after reading, each with its place."""
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
        """Return the position of ``path``, or of the nearest value around it."""
        exact = self.marks.keys if key else self.marks.values
        if path in exact:
            return exact[path]
        while path:
            path = path[:-1]
            if path in self.marks.keys:
                return self.marks.keys[path]
        return self.marks.values.get(path, yamltext.Spot(1, 1))

    def _origin(self, path: Path) -> str | None:
        """Return the origin of the value at ``path``; None if it is the document."""
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
    """Return the UTF-8 text of a user's small file. Raises ConfigError."""
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
