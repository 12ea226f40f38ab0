"""Parameters that a build spec needs from the user: SDKs (paths on the build machine) and words."""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from labctl.build.manifest import BuilderKind
from labctl.build.spec import BuildSpec, Parameter
from labctl.build.workspace import Workspace
from labctl.errors import ConfigError
from labctl.suggestions import unknown

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")


def resolve(spec: BuildSpec, given: Mapping[str, str], builder: BuilderKind) -> dict[str, str]:
    """Return the value of every parameter. Paths are absolute and not checked yet.

    Raises ConfigError for unknown, missing or invalid parameters.
    """
    for name in given:
        if name not in spec.parameters:
            known = spec.parameters or ["none"]
            raise ConfigError(unknown("parameter", name, known, where=f" of {spec.product}"))
    return {
        name: _value(spec.product, name, wanted, given.get(name), builder)
        for name, wanted in spec.parameters.items()
    }


def _value(
    product: str, name: str, wanted: Parameter, given: str | None, builder: BuilderKind
) -> str:
    text = wanted.default if given is None else given
    if text is None:
        raise ConfigError(
            f"{product} needs the parameter '{name}': {wanted.description}",
            hint=f"--param {name}={'PATH' if wanted.kind == 'path' else 'WORD'}",
        )
    if wanted.kind == "word":
        if not _WORD.fullmatch(text):
            raise ConfigError(f"parameter {name} of {product}: {text!r} is not one plain word")
        return text
    if not text or not text.isprintable():
        raise ConfigError(f"parameter {name} of {product}: {text!r} is not a path")
    if builder is BuilderKind.SSH and not PurePosixPath(text).is_absolute():
        raise ConfigError(
            f"parameter {name} of {product}: {text} is not absolute",
            hint="it is a folder on the build host",
        )
    return text if builder is BuilderKind.SSH else str(Path(text).expanduser().resolve())


def check(spec: BuildSpec, values: Mapping[str, str], workspace: Workspace) -> None:
    """Raise ConfigError unless every path exists, with the file that must be in it."""
    for name in spec.paths:
        wanted, path = spec.parameters[name], values[name]
        hint = f"{name} is: {wanted.description}"
        if not workspace.exists(path):
            raise ConfigError(f"parameter {name} of {spec.product}: there is no {path}", hint=hint)
        if wanted.check is not None and not workspace.exists(f"{path}/{wanted.check}"):
            raise ConfigError(
                f"parameter {name} of {spec.product}: {path} has no {wanted.check}", hint=hint
            )
