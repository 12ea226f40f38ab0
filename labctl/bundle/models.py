"""Describe the sources of a run's models, so that a stranger can get the same bytes."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit, urlunsplit

from labctl.bundle.form import ModelOrigin, ModelOrigins
from labctl.config.models import ModelSource, load_catalogue
from labctl.config.recipe import Recipe
from labctl.errors import ConfigError
from labctl.models.lock import state_of
from labctl.records.run import RunRecord
from labctl.records.trial import ModelIdentity


def model_origins(run: RunRecord, recipe: Recipe, lab_root: Path) -> ModelOrigins:
    """Return the measured models and their base models, base models first.

    Hashes come from the run, else from the lab's lock file. Raises ConfigError if the lab's
    models.yaml cannot be read or no longer has a model of the run.
    """
    sources = _without_lab(recipe, lab_root)
    measured = {model.key: model for model in run.models}
    return ModelOrigins(
        models=tuple(
            _origin(key, sources, measured.get(key), lab_root) for key in _ordered(sources)
        )
    )


def _without_lab(recipe: Recipe, lab_root: Path) -> dict[str, ModelSource]:
    """Return the sources that the run needed, with the entries of the lab's models.yaml."""
    catalogue: Mapping[str, ModelSource] = {}
    found: dict[str, ModelSource] = {}
    names: dict[str, str] = {}  # model of the lab -> its key here

    def of_the_lab(name: str, key: str) -> None:
        if name not in catalogue:
            raise ConfigError(
                f"the run measured the lab's model {name!r}, which is no longer in models.yaml",
                hint=f"add its source again: labctl models add {name} SOURCE",
            )
        source = catalogue[name]
        names[name] = key
        if source.derive is not None:
            base = source.derive.source
            if base not in names:
                of_the_lab(base, base if base not in recipe.models else f"lab-{base}")
            derive = source.derive.model_copy(update={"source": names[base]})
            source = source.model_copy(update={"derive": derive})
        found[key] = source

    for measured in recipe.measured_models():
        for key in (measured, *recipe.ancestors(measured)):
            source = recipe.models[key]
            if source.lab is None:
                found[key] = source
                continue
            catalogue = catalogue or load_catalogue(lab_root).models
            of_the_lab(source.lab, key)
    return found


def _ordered(sources: Mapping[str, ModelSource]) -> list[str]:
    """Return the keys in an order that has each base model before the models made from it."""
    ordered: list[str] = []

    def place(key: str) -> None:
        derive = sources[key].derive
        if derive is not None and derive.source in sources:
            place(derive.source)
        if key not in ordered:
            ordered.append(key)

    for key in sources:
        place(key)
    return ordered


def _origin(
    key: str, sources: Mapping[str, ModelSource], model: ModelIdentity | None, lab_root: Path
) -> ModelOrigin:
    source = sources[key]
    locked = state_of(key, sources, lab_root).locked
    if locked is not None and model is not None and locked.sha256 != model.sha256:
        locked = None  # the lock file now has another file
    document = source.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"lock"})
    public = source.file is None
    if source.file is not None:
        document = {"file": PurePosixPath(source.file).name}
    elif source.url is not None and (address := public_address(source.url.address)) is None:
        document, public = {"file": PurePosixPath(urlsplit(source.url.address).path).name}, False
    elif source.url is not None:
        document = {"url": {**document["url"], "address": address}}
    elif source.derive is not None:
        base = _origin(source.derive.source, sources, None, lab_root)
        public = base.public and source.derive.imatrix is None
        if source.derive.imatrix is not None:
            document["derive"]["imatrix"] = PurePosixPath(source.derive.imatrix).name
    return ModelOrigin(
        key=key,
        file=model.file if model else None,
        sha256=model.sha256 if model else locked and locked.sha256,
        size_bytes=model.size_bytes if model else locked and locked.size_bytes,
        quantization=model.quantization if model else None,
        source=document,
        commit=locked.commit if locked else None,
        quantizer=locked.quantizer if locked else None,
        public=public,
    )


def public_address(address: str) -> str | None:
    """Return a web address without its query (it may contain a key); None for a local address."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    try:
        reachable = ipaddress.ip_address(host).is_global
    except ValueError:
        reachable = "." in host and not host.endswith((".local", ".lan", ".internal", ".home"))
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")) if reachable else None
