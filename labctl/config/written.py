"""The base of recipes of all kinds: each keeps the document that it was read from."""

from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import PrivateAttr

from labctl.config.yaml.document import Document, StrictModel
from labctl.config.yaml.loader import Path as DocumentPath
from labctl.config.yaml.messages import path_text
from labctl.errors import ConfigError


@dataclass
class _Origin:
    """File and folder of a recipe; two recipes that differ only in them are equal."""

    document: Document | None = field(default=None, compare=False)


class WrittenRecipe(StrictModel):
    """A recipe of any kind, with the document that it was read from."""

    _origin: _Origin = PrivateAttr(default_factory=_Origin)

    @property
    def as_written(self) -> str | None:
        """Text of its file, without what ``settings`` changed; None if nobody wrote it."""
        return (self._origin.document.text if self._origin.document else None) or None

    @property
    def settings(self) -> tuple[str, ...]:
        """Changes to what was written, by the command line, as ``--set KEY=VALUE``."""
        document = self._origin.document if self.as_written else None
        return tuple(dict.fromkeys(document.overridden.values())) if document else ()

    def resolved(self) -> dict[str, Any]:
        """Return the recipe as it is run, defaults included, as JSON; the model reads it back."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def refusal(self, path: DocumentPath, problem: str) -> ConfigError:
        """Return the error for a key that cannot be served, with its line if there is a file."""
        document = self._origin.document
        if document is None:
            return ConfigError(f"{path_text(path)}: {problem}")
        return document.refusal([(path, problem)])

    def written_in(self, document: Document) -> Self:
        """Keep the document that the recipe was read from; return the recipe."""
        self._origin.document = document
        return self


#: What a recipe of each kind does, what it is a recipe of, and the command that runs it.
_KINDS = {
    "timing": ("measures times", "a timing run", "run"),
    "evaluation": ("asks questions", "an evaluation", "eval"),
    "load test": ("loads a server", "a load test", "load-test"),
}


def check_kind(document: Document, wanted: str) -> None:
    """Raise ConfigError with the right command for a recipe of another kind."""
    value = document.value
    if not isinstance(value, dict):
        return
    found = wanted
    if "engine" in value:
        found = "timing"
    elif is_evaluation(document):
        found = "evaluation"
    elif is_load_test(document):
        found = "load test"
    if found != wanted:
        does, kind, command = _KINDS[found]
        raise ConfigError(
            f"{document.name} {does}: it is a recipe of {kind}",
            hint=f"run it with `labctl {command} {document.name}`",
        )


def is_evaluation(document: Document) -> bool:
    """Tell whether a recipe asks questions (``labctl eval``) instead of measuring times."""
    value = document.value
    return isinstance(value, dict) and "dataset" in value and "engine" not in value


def is_load_test(document: Document) -> bool:
    """Tell whether a recipe loads a server (``labctl load-test``)."""
    value = document.value
    return isinstance(value, dict) and "endpoint" in value and not {"engine", "dataset"} & {*value}
