"""Clients of a lab, forked from one process that has imported what they need.

Each line of its input is a JSON list: a file for the output, then the words of a command; or the
word ``wait``, whose answer is the exit status of each command so far, by its file.
"""

import gc
import importlib
import json
import os
import sys
from pathlib import Path

from labctl.cli.root import run_cli

_LATER = (
    "labctl.cli.audit",
    "labctl.cli.boards",
    "labctl.cli.boards_health",
    "labctl.cli.holds",
    "labctl.cli.queue",
    "labctl.cli.run",
    "labctl.cli.run_detached",
    "labctl.cli.serve",
    "labctl.cli.worker",
    "labctl.farm.queue_engine",
    "labctl.state.reservations",
    "obstore.store",
    "procrastinate.sync_psycopg_connector",
    "psycopg_pool",
    "sqlalchemy.dialects.postgresql.psycopg",
    "tenacity",
)


def main() -> None:
    """Start commands, and tell their ends."""
    for module in _LATER:
        importlib.import_module(module)
    gc.freeze()
    running: dict[int, str] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if asked == "wait":
            ended = {running[pid]: _status(pid) for pid in running}
            running.clear()
            os.write(1, f"{json.dumps(ended)}\n".encode())
            continue
        output, *words = asked
        if (pid := os.fork()) == 0:
            os._exit(_run(Path(output), words))
        running[pid] = output


def _status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run(output: Path, words: list[str]) -> int:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, suffix in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{output}.{suffix}", os.O_WRONLY | os.O_CREAT, 0o644), number)
    status = run_cli(words)
    sys.stdout.flush()
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    main()
