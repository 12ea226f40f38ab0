"""Read YAML text into plain values, each with its place in the text.

PyYAML scans and composes. The values are made here, so that

- only text, numbers, true, false, null, lists and mappings come out (no tag makes an object);
- plain words mean what YAML 1.2 says;
- a key is always text; a duplicate key, the merge key ``<<`` and a list that contains itself are
  problems. Anchors and aliases work;
- depth, number of values and size of numbers are bounded for every file.

Plain words are those of YAML 1.2's core schema: ``no``, ``yes``, ``on``, ``off``, ``10:30`` and
``2026-01-31`` are text, ``012`` is twelve, and only ``true`` and ``false`` are booleans. (YAML 1.1,
PyYAML's default, reads them as booleans, sexagesimal and octal numbers, and dates.) ``.inf`` and
``.nan`` are text too, since nothing here can use them.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import yaml
from yaml.composer import ComposerError
from yaml.error import Mark, MarkedYAMLError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"

MOST_NUMBER = 2**63 - 1

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
#: Kind, pattern and first characters of plain words; anything else is text. Source: YAML 1.2.2,
#: section 10.3.2.
WORDS = (
    ("null", re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", re.compile(rf"(?:{_INT.pattern})$"), list("-+0123456789")),
    ("float", re.compile(rf"(?:{_FLOAT.pattern})$"), list("-+.0123456789")),
)


def plain_kind(text: str) -> str:
    """Return the kind of a plain word, ``int`` for instance; an unknown word is a ``str``."""
    return next((kind for kind, pattern, _ in WORDS if pattern.match(text)), "str")


def plain_value(text: str) -> Value:
    """Return the value of a plain word; the word itself if it has none."""
    try:
        return meaning(plain_kind(text), text)
    except ValueError:
        return text


def meaning(kind: str, text: str) -> Value:
    """Return the value of a scalar of this kind. Raises KeyError, ValueError with a sentence."""
    value = _MAKERS[kind](text)
    if isinstance(value, int | float) and abs(value) > MOST_NUMBER:
        raise ValueError("this number is too large")
    return value


def _text(text: str) -> str:
    if not is_unicode(text):
        raise ValueError("this text has half of a surrogate pair in it")
    return text


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _int(text: str) -> int:
    if not _INT.fullmatch(text):
        raise ValueError("must be a whole number")
    # Longer numbers are too large in any base; Python itself refuses very long ones.
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if len(text) < 100 else MOST_NUMBER + 1


def _float(text: str) -> float:
    if not _FLOAT.fullmatch(text):
        raise ValueError("must be a number")
    return float(text)


_MAKERS: dict[str, Callable[[str], Value]] = {
    "null": lambda _: None,
    "bool": _bool,
    "int": _int,
    "float": _float,
    "str": _text,
}


def is_unicode(text: str) -> bool:
    """Return True if a text can be written as UTF-8; half a surrogate pair cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


MOST_DEPTH = 40
MOST_VALUES = 50_000

#: Keys and list indices from the root of the document to a value.
Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True)
class Spot:
    """A place in a text; line and column start at 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Problem:
    """A problem and its place."""

    spot: Spot
    path: Path
    message: str


@dataclass(frozen=True)
class Marked:
    """Content of a text: its value, and the spots of key and value for every path in it."""

    value: Value
    keys: Mapping[Path, Spot]
    values: Mapping[Path, Spot]
    problems: tuple[Problem, ...]


class NotYaml(Exception):
    """The text is not YAML, or larger than any configuration."""

    def __init__(self, message: str, spot: Spot):
        super().__init__(message)
        self.message = message
        self.spot = spot


def read_yaml(text: str) -> Marked:
    """Return the value of a text with one YAML document; ``None`` if it is empty.

    Raises NotYaml if the text cannot be understood. Forbidden parts (a duplicate key, a tag) are in
    ``problems``, so that all are reported at once.
    """
    read = _read(text)
    return replace(read, value=deepcopy(read.value))  # the caller may change its copy


@lru_cache(maxsize=64)
def _read(text: str) -> Marked:
    """Read a text; cached, since each run reads the same targets and build specs, which is slow."""
    builder = _Builder()
    node = _compose(text)
    if node is None:
        return Marked(None, {}, {(): Spot(1, 1)}, ())
    value = builder.build(node, ())
    return Marked(value, builder.keys, builder.values, tuple(builder.problems))


class _Composer(yaml.composer.Composer, yaml.resolver.Resolver):
    """PyYAML's composer, with the plain words of YAML 1.2 and a bound on depth."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise ComposerError(
                problem=_TOO_DEEP,
                problem_mark=parent.start_mark if parent else None,
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_TOO_DEEP = f"lists and mappings are nested more than {MOST_DEPTH} deep"
_TAG = "tag:yaml.org,2002:"
for kind, pattern, first in WORDS:
    _Composer.add_implicit_resolver(_TAG + kind, pattern, first)


class _Loader(_Composer, yaml.SafeLoader):
    """Scans in Python, with the best messages and places."""


#: Texts on which libyaml and PyYAML disagree: some tabs, tags, ``?`` in lists, byte order marks,
#: comments behind ``|``, and the place of an empty value.
_READ_OTHERWISE = re.compile(r"[\t!?\ufeff]|[|>]\S*#|:\s*[,}\]]")


def _compose(text: str) -> Node | None:
    return _compose_fast(text) or _compose_slowly(text)


def _compose_fast(text: str) -> Node | None:
    """Scan with libyaml; None if PyYAML does not have it, or if it cannot read the text."""
    if not yaml.__with_libyaml__ or _READ_OTHERWISE.search(text):
        return None

    class Loader(_Composer, yaml.CSafeLoader):
        def __init__(self) -> None:
            yaml.composer.Composer.__init__(self)
            yaml.CSafeLoader.__init__(self, text)

    with suppress(yaml.YAMLError, ValueError, OverflowError):
        return Loader().get_single_node()
    return None


def _compose_slowly(text: str) -> Node | None:
    try:
        loader = _Loader(text)
    except ReaderError as error:
        raise NotYaml(*_unprintable(text, error.position)) from None
    try:
        return loader.get_single_node()
    except MarkedYAMLError as error:
        open_quote = error.context_mark if "end of stream" in (error.problem or "") else None
        mark = open_quote or error.problem_mark or loader.get_mark()
        raise NotYaml(_for_people(error), _spot(mark)) from None
    except (ValueError, OverflowError):
        # PyYAML's scanner passes escapes such as "\UFFFFFFFF" to chr() unchecked.
        raise NotYaml("this escape or number is out of range", _spot(loader.get_mark())) from None
    finally:
        loader.dispose()


def _spot(mark: Mark) -> Spot:
    return Spot(mark.line + 1, mark.column + 1)


def _unprintable(text: str, position: int) -> tuple[str, Spot]:
    before = text[:position]
    spot = Spot(before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)
    code = f"U+{ord(text[position]):04X}" if position < len(text) else "unknown"
    return f"a character that text files do not have ({code})", spot


_PLAIN_WORDS = (
    (r"found character '\\t'", "a tab is used for indentation; YAML wants spaces"),
    (r"found character '(.)'", "text that begins with {0} must be in quotes"),
    (
        r"mapping values are not allowed",
        "a ':' cannot stand here; check the indentation, or put the text in quotes",
    ),
    (r"could not find expected ':'", "a ':' is missing after this key"),
    (r"expected <block end>", "the indentation does not fit the lines above"),
    (r"expected ',' or '(.)'", "a ',' or '{0}' is missing"),
    (r"found unexpected end of stream", "a quote is opened and never closed"),
    (r"found undefined alias '(.*)'", "the anchor &{0} does not exist"),
    (r"expected a single document", "a second document ('---') begins here; one file holds one"),
    (r"but found another document", "a second document ('---') begins here; one file holds one"),
    (r"found unknown escape character '(.*)'", "the escape \\{0} does not exist in double quotes"),
)


def _for_people(error: MarkedYAMLError) -> str:
    problem = error.problem or "not valid YAML"
    for pattern, words in _PLAIN_WORDS:
        if match := re.match(pattern, problem):
            return words.format(*match.groups())
    return problem if problem == _TOO_DEEP else f"not valid YAML: {problem}"


class _Builder:
    """Makes values from nodes, and remembers their places."""

    def __init__(self) -> None:
        self.keys: dict[Path, Spot] = {}
        self.values: dict[Path, Spot] = {}
        self.problems: list[Problem] = []
        self._open: list[Node] = []

    def build(self, node: Node, path: Path) -> Value:
        """Return the value of the node at ``path``."""
        spot = _spot(node.start_mark)
        if len(self.values) >= MOST_VALUES:
            # An alias to a list of aliases to lists of aliases is a small text with an endless
            # value.
            raise NotYaml(f"more than {MOST_VALUES} values, aliases counted out", spot)
        if len(self._open) > MOST_DEPTH:
            raise NotYaml(_TOO_DEEP, spot)
        self.values[path] = spot
        if any(node is outer for outer in self._open):
            self._problem(node, path, "an anchor contains itself")
            return None
        self._open.append(node)
        try:
            if isinstance(node, ScalarNode):
                return self._scalar(node, path)
            if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
                return [self.build(child, (*path, i)) for i, child in enumerate(node.value)]
            if isinstance(node, MappingNode) and node.tag == _TAG + "map":
                return self._mapping(node, path)
        finally:
            self._open.pop()
        self._tagged(node, path)
        return None

    def _problem(self, node: Node, path: Path, message: str) -> None:
        self.problems.append(Problem(_spot(node.start_mark), path, message))

    def _tagged(self, node: Node, path: Path) -> None:
        self._problem(node, path, f"the tag {node.tag.replace(_TAG, '!!')} has no meaning here")

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._problem(key_node, path, "a key must be text, not a list or mapping")
                continue
            key = key_node.value
            here = (*path, key)
            if key in found:
                first = self.keys[here].line
                self._problem(key_node, here, f"this key is given twice (first on line {first})")
                continue
            if key == "<<" and not key_node.style:  # None, or empty with libyaml
                self._problem(key_node, here, "merge keys are not supported; write the keys out")
                continue
            if not is_unicode(key):
                self._problem(key_node, path, "a key has half of a surrogate pair in it")
                continue
            self.keys[here] = _spot(key_node.start_mark)
            found[key] = self.build(value_node, here)
        return found

    def _scalar(self, node: ScalarNode, path: Path) -> Value:
        try:
            return meaning(node.tag.removeprefix(_TAG), node.value)
        except KeyError:
            self._tagged(node, path)
        except ValueError as error:
            self._problem(node, path, str(error))
        return None
