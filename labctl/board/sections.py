"""Answers of one shell script in sections, each told apart by a line that names it."""

import re

_MARK = "@labctl "

#: Defines ``section NAME``, which begins the next one.
SECTION = f'section() {{ echo; echo "{_MARK}$1"; }}\n'

#: Sets ``$directory`` to the nearest one that exists, from itself upwards.
NEAREST = """\
while [ ! -d "$directory" ] && [ "$directory" != / ]; do
  directory=${directory%/*}
  [ -n "$directory" ] || directory=/
done
"""


def sections(text: str) -> dict[str, str]:
    """Split a text into its sections."""
    found: dict[str, str] = {}
    for part in re.split(f"(?m)^{re.escape(_MARK)}", text)[1:]:
        name, _, body = part.partition("\n")
        found[name.strip()] = body
    return found
