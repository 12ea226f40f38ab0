"""Searches for patterns in a child process: :mod:`labctl.engines.command.matching`.

Run as a file, without importing labctl: it starts in about 20 ms. Standard input is a line of JSON,
then the texts one after the other; standard output is JSON.
"""

import json
import re
import resource
import sys

#: Exit status of a search that needs too much memory.
NO_MEMORY = 75
#: Longer matches are not numbers, and 100,000 long matches would fill the memory.
LONGEST_GROUP = 200


def groups(match: "re.Match[str]") -> dict[str, str | None]:
    """Return the named groups of a match, each cut at a maximum length."""
    found: dict[str, str | None] = {}
    for name in match.re.groupindex:
        start, end = match.span(name)
        cut = min(end, start + LONGEST_GROUP)
        found[name] = None if start < 0 else match.string[start:cut]
    return found


def main() -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.buffer.readline())
    # Limit CPU time (SIGXCPU), so that other processes do not affect the limit.
    seconds = request["cpu_seconds"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (request["memory_bytes"],) * 2)
    texts = [sys.stdin.buffer.read(size).decode(errors="replace") for size in request["sizes"]]
    answer = []
    for pattern, index in request["searches"]:
        found = []
        for match in re.finditer(pattern, texts[index], re.MULTILINE):
            found.append(groups(match))
            if len(found) > request["most"]:
                break
        answer.append(found)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        sys.exit(NO_MEMORY)
