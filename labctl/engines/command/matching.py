"""Search a program's output with a recipe's regular expressions, in bounded time.

A pattern such as ``(a+)+b`` may run forever on a short line. Python's ``re`` cannot be interrupted,
so a child process with its own limits searches. RE2 would not need limits for patterns, but it is a
compiled dependency, has no look-ahead or back-references, and is linear only in the text: 64 MB of
text still need a limit.
"""

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from labctl import process
from labctl.engines.command.match_child import NO_MEMORY
from labctl.errors import HostError, OutputNotUnderstood

#: CPU time in whole seconds: other work of this host does not change the result.
SEARCH_SECONDS = 10
#: Wall time after which the host is to blame: it gave the search no CPU time.
_PATIENCE_SECONDS = 180.0
#: Several times the memory of two whole streams as text.
_MEMORY_BYTES = 4 << 30
#: Maximum number of matches of a pattern; more are refused.
MOST_MATCHES = 100_000

Groups = dict[str, str | None]


def find_all(
    searches: Sequence[tuple[str, bytes]],
    *,
    cpu_seconds: int = SEARCH_SECONDS,
    memory_bytes: int = _MEMORY_BYTES,
) -> list[list[Groups]]:
    """Return the named groups of every match, up to a limit, for each pattern and its text.

    Raises OutputNotUnderstood if the search takes too long or finds too much, HostError.
    """
    if not searches:
        return []
    # Readers share the streams; send each stream only once.
    texts = list({id(text): text for _, text in searches}.values())
    places = {id(text): index for index, text in enumerate(texts)}
    request = {
        "cpu_seconds": cpu_seconds,
        "memory_bytes": memory_bytes,
        "searches": [(pattern, places[id(text)]) for pattern, text in searches],
        "sizes": [len(text) for text in texts],
        "most": MOST_MATCHES,
    }
    child = Path(__file__).with_name("match_child.py")
    done = process.run(
        [sys.executable, "-I", child],
        timeout=_PATIENCE_SECONDS,
        input_bytes=json.dumps(request).encode() + b"\n" + b"".join(texts),
    )
    if done.exit_status == -signal.SIGXCPU:
        raise OutputNotUnderstood(
            "the search for the recipe's patterns in this output did not end within"
            f" {cpu_seconds} s of CPU time",
            hint="nested repeats such as (a+)+ can take forever; write the inner text instead",
        )
    if done.exit_status == NO_MEMORY:
        raise OutputNotUnderstood("the recipe's patterns need too much memory on this output")
    if done.exit_status != 0:
        raise HostError("the search for the recipe's patterns failed", details=done.tail())
    found: list[list[Groups]] = json.loads(done.stdout)
    for (pattern, _), matches in zip(searches, found, strict=True):
        if len(matches) > MOST_MATCHES:
            raise OutputNotUnderstood(f"{pattern!r} matches more than {MOST_MATCHES} times")
    return found
