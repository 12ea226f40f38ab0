"""A recipe's regular expressions, applied to what a program printed, in bounded time.

A pattern such as ``(a+)+b`` takes for ever on a short line. Python's ``re`` cannot be interrupted,
so the search is done in a child process with a time-out. RE2 would need none, but it is a compiled
dependency, lacks look-ahead and back-references, and is linear only in the text: 64 MB of it still
want a limit.
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from labctl import process
from labctl.errors import HostError, HostTimeout, OutputNotUnderstood

SEARCH_SECONDS = 10.0
#: A program that prints more numbers of one kind is not understood.
MOST_MATCHES = 100_000

Groups = dict[str, str | None]


def find_all(
    searches: Sequence[tuple[str, bytes]], *, timeout_s: float = SEARCH_SECONDS
) -> list[list[Groups]]:
    """The named groups of every match, for each pattern and its text.

    Raises OutputNotUnderstood when the search does not end in time or finds too much, HostError.
    """
    if not searches:
        return []
    request = {
        "cpu_seconds": math.ceil(timeout_s) + 1,
        "patterns": [pattern for pattern, _ in searches],
        "sizes": [len(text) for _, text in searches],
        "most": MOST_MATCHES,
    }
    texts = b"".join(text for _, text in searches)
    child = Path(__file__).with_name("match_child.py")
    try:
        done = process.run(
            [sys.executable, "-I", child],
            timeout=timeout_s,
            input_bytes=json.dumps(request).encode() + b"\n" + texts,
        )
    except HostTimeout as error:
        raise OutputNotUnderstood(
            f"the recipe's patterns did not come to an end on this output within {timeout_s:g} s",
            hint="nested repeats such as (a+)+ can take for ever; write what is between them",
        ) from error
    if done.exit_status != 0:
        raise HostError("the search for the recipe's patterns failed", details=done.tail())
    found: list[list[Groups]] = json.loads(done.stdout)
    for (pattern, _), matches in zip(searches, found, strict=True):
        if len(matches) > MOST_MATCHES:
            raise OutputNotUnderstood(f"{pattern!r} matches more than {MOST_MATCHES} times")
    return found
