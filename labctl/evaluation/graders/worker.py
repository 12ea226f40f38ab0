"""A worker process of the pool, which grades texts from its standard input until the input ends.

Input: one JSON object per line, with ``text``, ``answer``, ``complete`` and ``graders``. Output:
the line ``ready``, then a JSON object per line and grader, with ``extracted``, ``correct`` and
``notes``.
"""

import json
import os
import resource
import sys
import time
from typing import Any

from labctl.evaluation.graders import Grade, Grader, make_grader

#: Exit status after a text that needs more memory than allowed.
MEMORY_STATUS = 66
#: Most characters kept of an extracted answer.
KEPT_CHARACTERS = 500


def main(arguments: list[str]) -> None:
    """Serve; ``arguments``: seconds of CPU time for a grade, and bytes of memory."""
    cpu_s, memory_bytes = (int(word) for word in arguments)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # Output of a library must not be mistaken for a grade.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="ascii") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        print("ready", file=out, flush=True)
        graders: dict[str, Grader] = {}
        for line in sys.stdin.buffer:
            item = json.loads(line)
            for name in item["graders"]:
                if name not in graders:
                    graders[name] = make_grader(name)
                grade = _grade(graders[name], item, cpu_s)
                print(_reply(grade), file=out, flush=True)


def _grade(grader: Grader, item: dict[str, Any], cpu_s: int) -> Grade:
    """Grade within the limits; the process ends if a limit is exceeded."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + cpu_s, hard))
    try:
        return grader.grade(item["text"], item["answer"], complete=item["complete"])
    except MemoryError:
        os._exit(MEMORY_STATUS)


def _reply(grade: Grade) -> str:
    found = grade.extracted
    if found is not None:
        found = found[:KEPT_CHARACTERS].encode(errors="replace").decode()
    return json.dumps({"extracted": found, "correct": grade.correct, "notes": grade.notes})


if __name__ == "__main__":
    main(sys.argv[1:])
