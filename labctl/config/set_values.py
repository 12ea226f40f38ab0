"""Change a recipe from the command line: ``--set KEY=VALUE``.

A key is a dotted path (``parameters.tokens``, ``repeats``, ``models.q8_0.file``), or the short name
of something in ``matrix`` or ``parameters`` that the recipe already has (``tokens``). A value is
written as in the file: a plain word, a quoted text, a list in brackets or a mapping in braces.
Other text of several words needs no quotes. An empty value unsets the key.
"""

from collections.abc import Collection, Iterable

from labctl.config.yaml.document import Document
from labctl.config.yaml.loader import NotYaml, Path, Value, is_unicode, plain_value, read_yaml
from labctl.config.yaml.messages import shown
from labctl.errors import ConfigError
from labctl.suggestions import did_you_mean

_HINT = "for example --set tokens=8, --set parameters.threads=4 or --set 'matrix.threads=[1, 2]'"


def apply_settings(document: Document, settings: Iterable[str], *, known: Collection[str]) -> None:
    """Change a recipe's document; ``known``: keys that recipes have. Raises ConfigError."""
    for setting in settings:
        key, equals, text = setting.partition("=")
        readable = setting.isprintable() and len(setting) <= 100
        origin = f"--set {setting}" if readable else f"--set {shown(key)}=…"
        if not is_unicode(setting):
            raise ConfigError(f"{origin}: not UTF-8 text")
        if not equals or not key or not all(key.split(".")):
            raise ConfigError(f"{origin}: must be KEY=VALUE", hint=_HINT)
        value = _value(text, origin)
        path = _path(document, key, origin, known)
        if path[:1] == ("matrix",) and len(path) == 2 and not isinstance(value, list | None):
            value = [value]
        if text:
            document.override(path, value, origin)
        else:
            document.remove(path, origin)


def set_values(settings: Iterable[str]) -> dict[str, Value]:
    """Return the values of ``NAME=VALUE`` words, without a document. Raises ConfigError."""
    found = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {shown(setting)}: must be NAME=VALUE")
        found[name] = _value(text, f"--set {setting}")
    return found


def _path(document: Document, key: str, origin: str, known: Collection[str]) -> Path:
    steps = tuple(key.split("."))
    if len(steps) > 1 or not isinstance(document.value, dict):
        return steps
    inside = {
        place: inner
        for place in ("matrix", "parameters")
        if isinstance(inner := document.value.get(place), dict)
    }
    # `model` is a key of recipes and the name of an axis: the axis is meant if it varies.
    for place, inner in inside.items():
        if key in inner:
            return (place, key)
    if key in known:
        return steps
    near = did_you_mean(key, [*known, *(name for inner in inside.values() for name in inner)])
    raise ConfigError(
        f"{origin}: the recipe has no {key!r}{near}",
        hint=None
        if near
        else f"a parameter that it does not have yet: {origin.replace(' ', ' parameters.', 1)}",
    )


def _value(text: str, origin: str) -> Value:
    if text[:1] not in ("[", "{", '"', "'"):
        return plain_value(text)
    try:
        marked = read_yaml(text)
    except NotYaml as error:
        raise ConfigError(f"{origin}: {error.message}", hint=_HINT) from None
    if marked.problems:
        raise ConfigError(f"{origin}: {marked.problems[0].message}", hint=_HINT)
    return marked.value
