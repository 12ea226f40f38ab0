"""Changes of a YAML file as text: comments, order and style of all the rest stay as they are.

A file is changed by lines, at the places that PyYAML's own nodes have. The caller parses the result
and compares: what is written in a style that cannot be changed so is refused, and never damaged.
"""

import re
from collections.abc import Iterator

import yaml

from labctl.errors import ConfigError


def add_entry(text: str, section: str, entry: str) -> str:
    """Add ``entry`` (lines without indentation) at the end of the mapping ``section``.

    Comments that end the section, indented as its entries are, stay above.

    Raises ConfigError when the section is written in braces.
    """
    lines = _lines(text)
    found = _entry(_root(text), section)
    if found is None:
        return "".join([*lines, f"{section}:\n", *_indented(entry, 2)])
    key, value = found
    if not _is_empty(value):
        _refuse_flow(value, section)
        column = value.value[0][0].start_mark.column
        at = _last_line(value) + 1
        while at < len(lines) and lines[at].startswith(f"{' ' * column}#"):
            at += 1
    else:  # `boards:` or `boards: {}`
        column, at = key.start_mark.column + 2, key.start_mark.line + 1
        lines[at - 1] = re.sub(r": *(\{ *\}|null|~)", ":", lines[at - 1], count=1)
        while at < len(lines) and lines[at].lstrip().startswith("#"):
            at += 1  # comments below the section's name are about it
    return "".join([*lines[:at], *_indented(entry, column), *lines[at:]])


def remove_entry(text: str, section: str, name: str) -> str:
    """Remove the entry ``name`` of the mapping ``section``, and the comment directly above it.

    Raises ConfigError when there is none, or the section is written in braces.
    """
    lines = _lines(text)
    found = _entry(_root(text), section)
    inner = None if found is None else _entry(found[1], name)
    if found is None or inner is None:
        raise ConfigError(f"no {name!r} in {section}")
    section_key, value = found
    _refuse_flow(value, section)
    key, content = inner
    start, end = key.start_mark.line, _last_line(content) + 1
    indent = " " * key.start_mark.column
    while start and lines[start - 1].startswith(f"{indent}#"):
        start -= 1
    if len(value.value) == 1:  # an empty mapping has to be written as one
        at = section_key.end_mark
        line = lines[at.line]
        lines[at.line] = f"{line[: at.column]}: {{}}{line[at.column + 1 :]}"
    return "".join([*lines[:start], *lines[end:]])


def remove_key(text: str, key: str) -> str:
    """Remove a key with a plain value from the outermost mapping; unchanged without it."""
    found = _entry(_root(text), key)
    if found is None:
        return text
    lines = _lines(text)
    del lines[found[0].start_mark.line : _last_line(found[1]) + 1]
    return "".join(lines)


def replace_value(text: str, key: str, value: str) -> str:
    """Replace a key's plain value in the outermost mapping, however both are written.

    Raises ConfigError when there is none.
    """
    found = _entry(_root(text), key)
    if found is None or not isinstance(found[1], yaml.ScalarNode):
        raise ConfigError(f"no {key!r} with a plain value")
    start, end = found[1].start_mark.index, found[1].end_mark.index
    return text[:start] + value + text[end:]


def _lines(text: str) -> list[str]:
    return (text if not text or text.endswith("\n") else f"{text}\n").splitlines(keepends=True)


def _indented(entry: str, column: int) -> Iterator[str]:
    return (f"{' ' * column}{line}\n" for line in entry.splitlines())


def _root(text: str) -> yaml.Node | None:
    return yaml.compose(text, Loader=yaml.SafeLoader)


def _entry(node: yaml.Node | None, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the key and the value of that name."""
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
    """Return the last line that holds something of the node.

    The end of a block is at the next token, below comments: what is inside tells.
    """
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return max(_last_line(inner) for pair in node.value for inner in pair)
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return max(map(_last_line, node.value))
    end: int = node.end_mark.line
    is_below = node.end_mark.column == 0 and end > node.start_mark.line  # a text with `|`
    return end - 1 if is_below else end
