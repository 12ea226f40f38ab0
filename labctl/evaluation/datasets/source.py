"""Keys of a recipe for its data set: the file or repository, its fields, and the subset."""

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from labctl.config.models import is_repository
from labctl.config.types import Line, Name, Sha256
from labctl.config.yaml.document import StrictModel, refuse
from labctl.text_types import HostPath, Word

#: Reading of an answer: ``gsm8k``: a derivation that ends with ``#### N``; ``plain``: the answer
#: alone; ``choice``: the index (from 0) or the letter of one of several choices.
Format = Literal["gsm8k", "plain", "choice"]

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]+")
_KINDS = ("file", "hub")
_ONE_SOURCE = ConfigDict(json_schema_extra={"oneOf": [{"required": [kind]} for kind in _KINDS]})


def _repository(text: str) -> str:
    if not is_repository(text):
        raise ValueError("must be OWNER/NAME")
    return text


def _file_in_repository(text: str) -> str:
    if text.startswith("/") or any(part in ("", ".", "..") for part in text.split("/")):
        raise ValueError("must be the path of one file in the repository")
    if not text.endswith((".jsonl", ".parquet")):
        raise ValueError("must be a .jsonl or .parquet file")
    return text


class HubDataset(StrictModel):
    """A data set of Hugging Face."""

    repository: Annotated[Line, AfterValidator(_repository)]
    """The repository, OWNER/NAME: `openai/gsm8k`."""
    config: Word | None = None
    """Configuration of the data set, if it has several: `main`."""
    split: Word = "test"
    """Split of the data set."""
    file: Annotated[Line, AfterValidator(_file_in_repository)] | None = None
    """The file's path in the repository, .jsonl or .parquet; by default the one file whose path has
    the configuration and the split in it."""
    revision: Word | None = None
    """Branch, tag or commit; by default the main branch. A commit fixes the bytes."""
    sha256: Sha256 | None = None
    """SHA-256 that the file must have."""


class _FileOrHub(StrictModel):
    model_config = _ONE_SOURCE

    file: HostPath | None = None
    """A file with a JSON object on each line; a relative path begins at the lab's folder."""
    hub: HubDataset | None = None
    """A data set of Hugging Face; it is fetched once and kept."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.file is None) == (self.hub is None):
            raise refuse("give exactly one of file or hub")
        return self


class Shots(StrictModel):
    """Worked examples that come before each question."""

    model_config = ConfigDict(json_schema_extra={"not": {"required": list(_KINDS)}})

    count: Annotated[int, Field(ge=1, le=64)]
    """Number of examples."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Seed of their choice; the same seed and file give the same examples."""
    file: HostPath | None = None
    """File of the examples, in the same format. Without file and hub they are taken from the data
    set itself, and not asked."""
    hub: HubDataset | None = None
    """Data set of the examples, written like `hub` of the data set."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.file is not None and self.hub is not None:
            raise refuse("give file or hub, not both", "hub")
        return self


class DatasetSource(_FileOrHub):
    """The questions."""

    name: Name | None = None
    """Name of the data set, in the questions' ids; by default the repository's, or the file's."""
    format: Format = "plain"
    """`gsm8k`: the answer is a derivation that ends with `#### N`; `plain`: the answer alone;
    `choice`: the index (from 0) or the letter of one of `choices`."""
    question: Line = "question"
    """Field that holds the question; `a.b` is the field b inside a."""
    answer: Line = "answer"
    """Field that holds the answer."""
    solution: Line | None = None
    """Field that holds a derivation of the answer, for worked examples."""
    choices: Line = "choices"
    """Field that holds the list of choices, with `format: choice`."""
    labels: Line | None = None
    """Field that holds the labels of the choices, if the answer is one of them."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Number of questions to ask; by default all."""
    subset_seed: Annotated[int, Field(ge=0)] | None = None
    """Seed of the order of the questions, and so of the choice that `limit` makes. With the same
    seed, `limit: 100` takes the first 100 of `limit: 200`. By default the file's order."""
    shots: Shots | None = None
    """Worked examples before each question; by default none."""

    @model_validator(mode="after")
    def _fields_of_its_format(self) -> Self:
        fields = type(self).model_fields
        for key in ("choices", "labels"):
            # Records contain the defaults, too.
            if self.format != "choice" and getattr(self, key) != fields[key].default:
                raise refuse("goes with format: choice", key)
        if self.format == "gsm8k" and self.solution is not None:
            raise refuse("with format: gsm8k the answer holds the derivation too", "solution")
        return self

    @property
    def label(self) -> str:
        """Return the data set's name: as given, else the name of its repository or file."""
        if self.name is not None:
            return self.name
        if self.hub is not None:
            raw = self.hub.repository.partition("/")[2]
        else:
            raw = PurePosixPath(self.file or "").name.partition(".")[0]
        return _NOT_IN_NAMES.sub("-", raw).strip("-").lower() or "questions"
