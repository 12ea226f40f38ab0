"""Change a YAML file as text: comments, order and style of everything else stay.

A file is changed by lines, at the places of PyYAML's nodes. The result is parsed and compared: a
file whose style does not allow the change is refused, and never damaged.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import yaml

from labctl.config.yaml.document import read_text
from labctl.errors import ConfigError
from labctl.files import host_reads, write_named

T = TypeVar("T")
#: Name of the changed text in messages.
CHANGED_TEXT = "the changed text"
_BYTE_ORDER_MARK = "\ufeff"

#: A comment that holds a key: a disabled entry, not a remark.
_KEY = re.compile(r"\s*#[\s-]*[\w.-]+:(\s|$)")
#: An empty comment or a heading, which ends a paragraph of comments.
_RULE = re.compile(r"\s*#\s*($|[-=*#~_]{3})")


def change_file(
    path: Path,
    change: Callable[[str], str],
    *,
    read: Callable[[str], T],
    wanted: T,
    head: str = "",
) -> None:
    """Change the text of a user's file, if ``read`` reads the new text as ``wanted``.

    A new file begins with ``head``. Links, mode, line ends and a byte order mark stay. The caller
    holds the lock of the file. Raises ConfigError, HostError.
    """
    problem: str | None = None
    mark = ""
    before = head
    if path.is_file():
        before = read_text(path)
        with host_reads(path), path.open(encoding="utf-8") as file:
            mark = _BYTE_ORDER_MARK if file.read(1) == _BYTE_ORDER_MARK else ""
    try:
        text = change(before)
        if read(text) == wanted:
            write_named(path, mark + text)
            return
    except ConfigError as error:
        problem = error.message.partition("\n")[0]
    raise ConfigError(
        f"{path} is written in a way that cannot be changed here",
        hint="change it by hand",
        details=problem,
    )


def add_entry(text: str, section: str, entry: str) -> str:
    """Add ``entry`` (lines without indentation) at the end of the mapping ``section``.

    Comments at the end of the section stay above it, if indented like its entries or deeper.

    Raises ConfigError if the section is written in braces.
    """
    lines = _lines(text)
    found = _entry(_root(text), section)
    if found is None:
        return "".join([*lines, f"{section}:{_line_end(text)}", *_indented(entry, 2, text)])
    key, value = found
    if not _is_empty(value):
        _refuse_flow(value, section)
        column = value.value[0][0].start_mark.column
        at = _below_comments(lines, _last_line(value) + 1, column)
    else:  # `boards:` or `boards: {}`
        column, at = key.start_mark.column + 2, key.start_mark.line + 1
        lines[at - 1] = re.sub(r": *(\{ *\}|null|~)", ":", lines[at - 1], count=1)
        while at < len(lines) and lines[at].lstrip().startswith("#"):
            at += 1  # comments below the section's name belong to it
    return "".join([*lines[:at], *_indented(entry, column, text), *lines[at:]])


def remove_entry(text: str, section: str, name: str) -> str:
    """Remove the entry ``name`` of the mapping ``section``, and its comments.

    Raises ConfigError if the entry is missing, or the section is written in braces.
    """
    lines = _lines(text)
    found = _entry(_root(text), section)
    inner = None if found is None else _entry(found[1], name)
    if found is None or inner is None:
        raise ConfigError(f"no {name!r} in {section}")
    section_key, value = found
    _refuse_flow(value, section)
    if len(value.value) == 1:  # an empty mapping has to be written as one
        at = section_key.end_mark
        line = lines[at.line]
        lines[at.line] = f"{line[: at.column]}: {{}}{line[at.column + 1 :]}"
    return _without(lines, *inner)


def remove_key(text: str, key: str) -> str:
    """Remove a key with a plain value from the outermost mapping, if present.

    Its comments are removed too.
    """
    found = _entry(_root(text), key)
    return text if found is None else _without(_lines(text), *found)


def replace_value(text: str, key: str, value: str) -> str:
    """Replace a key's plain value in the outermost mapping; key and value may have any style.

    Raises ConfigError if the key is missing.
    """
    found = _entry(_root(text), key)
    if found is None or not isinstance(found[1], yaml.ScalarNode):
        raise ConfigError(f"no {key!r} with a plain value")
    start, end = found[1].start_mark.index, found[1].end_mark.index
    return text[:start] + value + text[end:]


def _without(lines: list[str], key: yaml.Node, value: yaml.Node) -> str:
    column = key.start_mark.column
    start = _about(lines, key.start_mark.line, column)
    end = _below_comments(lines, _last_line(value) + 1, column + 1)
    return "".join([*lines[:start], *lines[end:]])


def _about(lines: list[str], key_line: int, column: int) -> int:
    """Return the first line of the paragraph of comments directly above a key.

    Return the key's line if the paragraph begins the file, or contains keys.
    """
    start = key_line
    while start and lines[start - 1].startswith(f"{' ' * column}#"):
        if _RULE.match(lines[start - 1]):
            break
        start -= 1
    begins_file = not "".join(lines[:start]).strip(" \r\n-")
    return key_line if begins_file or any(map(_KEY.match, lines[start:key_line])) else start


def _below_comments(lines: list[str], at: int, column: int) -> int:
    """Return the line below the comments from ``at`` on that have at least this indentation."""
    for number in range(at, len(lines)):
        inside = lines[number].lstrip(" ")
        if inside.startswith("#") and len(lines[number]) - len(inside) >= column:
            at = number + 1
        elif inside.strip():
            break
    return at


def _lines(text: str) -> list[str]:
    whole = text if not text or text.endswith("\n") else f"{text}{_line_end(text)}"
    return whole.splitlines(keepends=True)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indented(entry: str, column: int, text: str) -> Iterator[str]:
    return (f"{' ' * column}{line}{_line_end(text)}" for line in entry.splitlines())


def _root(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:  # the removed entry held an anchor
        raise ConfigError(f"the text cannot be changed so: {error.problem}") from error


def _entry(node: yaml.Node | None, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the nodes of the key with this name and of its value, or None."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((key, value) for key, value in pairs if key.value == name), None)


def _is_empty(node: yaml.Node) -> bool:
    return not node.value or (isinstance(node, yaml.ScalarNode) and node.value in ("null", "~"))


def _refuse_flow(node: yaml.Node, section: str) -> None:
    if not isinstance(node, yaml.MappingNode) or node.flow_style:
        raise ConfigError(
            f"{section} is not written as a block, one entry below the other",
            hint="change the file by hand",
        )


def _last_line(node: yaml.Node) -> int:
    """Return the last line of a node's content.

    PyYAML ends a block at the next token, below comments, so the inner nodes decide.
    """
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return max(_last_line(inner) for pair in node.value for inner in pair)
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return max(map(_last_line, node.value))
    end: int = node.end_mark.line
    is_below = node.end_mark.column == 0 and end > node.start_mark.line  # a text with `|`
    return end - 1 if is_below else end
