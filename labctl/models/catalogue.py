"""The lab's ``models.yaml``, edited by commands and by hand; existing text stays."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import yaml

from labctl.config.models import CATALOGUE_FILE, Catalogue, ModelSource, load_catalogue
from labctl.config.yaml.document import parse
from labctl.config.yaml.edit import CHANGED_TEXT, add_entry, change_file, remove_entry
from labctl.errors import ConfigError
from labctl.folders import state_dir
from labctl.locks import locked
from labctl.suggestions import unknown
from labctl.text_types import NAME_RULE, is_name

_HEAD = """\
# The models of this lab. Recipes name one as `models: {q8: {lab: NAME}}`.
# Keys: docs/models.md. Which bytes each stands for is kept in models.lock.yaml.
models:
"""
_SECTION = "models"
_LOCK_SECONDS = 60.0


def parse_entry(name: str, entry: dict[str, object]) -> ModelSource:
    """Parse an entry of models.yaml. Raises ConfigError (bad name, unknown source)."""
    if not is_name(name):
        raise ConfigError(f"not a name for a model: {name!r}", hint=f"a name is {NAME_RULE}")
    text = yaml.safe_dump(entry, sort_keys=False)
    return parse(text, ModelSource, f"the model {name!r}")


def add_model(lab_root: Path, name: str, entry: dict[str, object]) -> None:
    """Add a model to the lab's models.yaml, after the existing ones; comments and order stay.

    Raises ConfigError (bad name, name taken, no such source), HostError.
    """
    source = parse_entry(name, entry)
    path = lab_root / CATALOGUE_FILE
    with locked(state_dir() / "locks" / "models-file", timeout=_LOCK_SECONDS):
        known = load_catalogue(lab_root).models
        if name in known:
            raise ConfigError(
                f"{path} has a model {name!r} already", hint="choose another name, or edit the file"
            )
        block = yaml.safe_dump({name: entry}, sort_keys=False, allow_unicode=True, width=200)
        _change(path, lambda text: add_entry(text, _SECTION, block), {**known, name: source})


def remove_models(lab_root: Path, names: Collection[str]) -> None:
    """Remove models from the lab's models.yaml; comments and order of all others stay.

    Raises ConfigError (no such model, another model is derived from it, a file that cannot be
    edited this way), HostError.
    """
    path = lab_root / CATALOGUE_FILE
    with locked(state_dir() / "locks" / "models-file", timeout=_LOCK_SECONDS):
        known = load_catalogue(lab_root).models
        for name in names:
            if name not in known:
                raise ConfigError(unknown("model", name, known, where=f" in {path.name}"))
        made = [
            (other, source.derive.source)
            for other, source in known.items()
            if source.derive is not None and source.derive.source in names and other not in names
        ]
        for other, base in made:
            raise ConfigError(
                f"the model {other!r} is made from {base!r}",
                hint=f"remove both: labctl models remove {base} {other}",
            )

        def without(text: str) -> str:
            for name in names:
                text = remove_entry(text, _SECTION, name)
            return text

        _change(path, without, {key: known[key] for key in known if key not in names})


def _change(path: Path, change: Callable[[str], str], wanted: Mapping[str, ModelSource]) -> None:
    def read(text: str) -> Mapping[str, ModelSource]:
        return parse(text, Catalogue, CHANGED_TEXT).models

    change_file(path, change, read=read, wanted=wanted, head=_HEAD)
