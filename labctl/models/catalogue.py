"""The lab's ``models.yaml``, written by commands and by hand: what is there stays as it is."""

from pathlib import Path

import yaml

from labctl.config.document import parse, read_text
from labctl.config.models import CATALOGUE_FILE, Catalogue, ModelSource, load_catalogue
from labctl.config.names import NAME_RULE, is_name
from labctl.errors import ConfigError
from labctl.files import locked, state_dir, write_atomic

_HEAD = """\
# The models of this lab. Recipes name one as `models: {q8: {lab: NAME}}`.
# Keys: docs/models.md. Which bytes each stands for is kept in models.lock.yaml.
models:
"""
_PATIENCE_SECONDS = 60.0


def add_model(lab_root: Path, name: str, entry: dict[str, object]) -> ModelSource:
    """Add a model at the end of the lab's models.yaml; comments and order stay.

    Raises ConfigError (bad name, name taken, no such source), HostError.
    """
    if not is_name(name):
        raise ConfigError(f"not a name for a model: {name!r}", hint=f"a name is {NAME_RULE}")
    path = lab_root / CATALOGUE_FILE
    with locked(state_dir() / "locks" / "models-file", timeout=_PATIENCE_SECONDS):
        if name in load_catalogue(lab_root).models:
            raise ConfigError(
                f"{path} has a model {name!r} already", hint="choose another name, or edit the file"
            )
        before = read_text(path) if path.is_file() else _HEAD
        block = yaml.safe_dump({name: entry}, sort_keys=False, allow_unicode=True, width=200)
        lines = "".join(f"  {line}\n" for line in block.splitlines())
        text = before + ("" if before.endswith("\n") else "\n") + lines
        try:
            source = parse(text, Catalogue, str(path)).models[name]
        except (ConfigError, KeyError) as error:
            raise _refused(path, name, entry, error) from error
        write_atomic(path, text)
    return source


def _refused(path: Path, name: str, entry: dict[str, object], error: Exception) -> ConfigError:
    try:  # the entry itself, or the place where it would stand?
        ModelSource.model_validate(entry)
        parse(yaml.safe_dump({"models": {name: entry}}), Catalogue, name)
    except ConfigError as wrong:
        return wrong
    except ValueError as wrong:
        return ConfigError(f"not a model: {name}: {wrong}")
    return ConfigError(
        f"{path} does not end with its models, so {name!r} cannot be added at its end",
        hint=f"add it by hand: {name}: {entry}",
        details=str(error),
    )
