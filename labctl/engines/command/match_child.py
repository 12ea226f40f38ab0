"""Searches for patterns, in a process of its own: :mod:`labctl.engines.command.matching`.

Run as a file, with nothing of labctl imported: it starts in some 20 ms. Standard input is a line
of JSON, then the texts one after the other; standard output is JSON.
"""

import json
import re
import resource
import sys


def main() -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.buffer.readline())
    # Should whoever asked be killed, nobody else would ever end an endless search.
    seconds = request["cpu_seconds"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    texts = [sys.stdin.buffer.read(size).decode(errors="replace") for size in request["sizes"]]
    answer = []
    for pattern, text in zip(request["patterns"], texts, strict=True):
        found = []
        for match in re.finditer(pattern, text, re.MULTILINE):
            found.append(match.groupdict())
            if len(found) > request["most"]:
                break
        answer.append(found)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
