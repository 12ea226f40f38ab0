"""The lab's ``models.yaml``, written by commands and by hand: existing text is kept."""

from pathlib import Path

import yaml

from labctl.config.models import CATALOGUE_FILE, Catalogue, ModelSource, load_catalogue
from labctl.config.names import NAME_RULE, is_name
from labctl.config.yaml.document import parse, read_text
from labctl.errors import ConfigError
from labctl.files import locked, state_dir, write_atomic

_HEAD = """\
# The models of this lab. Recipes name one as `models: {q8: {lab: NAME}}`.
# Keys: docs/models.md. Which bytes each stands for is kept in models.lock.yaml.
models:
"""
_LOCK_SECONDS = 60.0


def parse_entry(name: str, entry: dict[str, object]) -> ModelSource:
    """Parse an entry of models.yaml. Raises ConfigError (bad name, unknown source)."""
    if not is_name(name):
        raise ConfigError(f"not a name for a model: {name!r}", hint=f"a name is {NAME_RULE}")
    text = yaml.safe_dump(entry, sort_keys=False)
    return parse(text, ModelSource, f"the model {name!r}")


def add_model(lab_root: Path, name: str, entry: dict[str, object]) -> None:
    """Add a model at the end of the lab's models.yaml; comments and order stay.

    Raises ConfigError (bad name, name taken, no such source), HostError.
    """
    source = parse_entry(name, entry)
    path = lab_root / CATALOGUE_FILE
    with locked(state_dir() / "locks" / "models-file", timeout=_LOCK_SECONDS):
        if name in load_catalogue(lab_root).models:
            raise ConfigError(
                f"{path} has a model {name!r} already", hint="choose another name, or edit the file"
            )
        before = read_text(path) if path.is_file() else _HEAD
        block = yaml.safe_dump({name: entry}, sort_keys=False, allow_unicode=True, width=200)
        lines = "".join(f"  {line}\n" for line in block.splitlines())
        text = before + ("" if before.endswith("\n") else "\n") + lines
        try:
            added = parse(text, Catalogue, str(path)).models.get(name)
        except ConfigError as error:
            raise _no_place(path, name, entry, error.message) from error
        if added != source:
            raise _no_place(path, name, entry)
        write_atomic(path, text)


def _no_place(
    path: Path, name: str, entry: dict[str, object], why: str | None = None
) -> ConfigError:
    return ConfigError(
        f"{path} does not end with its models, so {name!r} cannot be added at its end",
        hint=f"add it by hand: {name}: {entry}",
        details=why,
    )
