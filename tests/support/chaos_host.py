"""A lab host, with short times: FOLDER HOST SECONDS BOARD...

It has imported all that a worker needs; each ``start`` in its input forks one, as a new process
with nothing but the files of earlier ones. Its answers are lines: the end of the worker by
``poll``, its exit status then, and nothing as long as it lives.
"""

import gc
import importlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from labctl.cli.lab import connect_board
from labctl.config.lab import LabFile, find_lab
from labctl.database import postgresql
from labctl.errors import LabctlError
from labctl.farm.host_setup import host_worker
from labctl.results.gates import leave_open
from labctl.transport.built_in import TRANSPORTS

#: Imported when it is used; nothing of it starts a thread.
_LATER = (
    "labctl.tcp",
    "labctl.runs.run",
    "labctl.runs.resume",
    "obstore.store",
    "procrastinate.worker",
    "psycopg_pool",
    "sqlalchemy.dialects.postgresql.psycopg",
    "tenacity",
)


def main() -> None:
    """Start and end workers as the input says."""
    folder, host, seconds, *boards = sys.argv[1:]
    postgresql.USUAL = postgresql.Timeouts(idle=float(seconds) / 2)
    for module in _LATER:
        importlib.import_module(module)
    gc.freeze()
    pid = 0
    for line in sys.stdin:
        match line.split():
            case ["start"]:
                pid = os.fork()
                if pid == 0:
                    lab = replace(find_lab(Path(folder), TRANSPORTS), lease_seconds=float(seconds))
                    os._exit(_serve(lab, host, boards))
                _answer("")
            case ["poll"]:
                found, status = os.waitpid(pid, os.WNOHANG)
                _answer(str(os.waitstatus_to_exitcode(status)) if found else "")
            case ["signal", number]:
                os.kill(pid, int(number))
                _answer("")
            case ["kill"]:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                _answer("")


def _serve(lab: LabFile, host: str, boards: list[str]) -> int:
    """Serve the boards until a signal comes; return the exit status."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    try:
        worker = host_worker(
            lab, host, boards, connect=connect_board, compare=leave_open, note=_say
        )
        worker.away_seconds = 1.0
        worker.run()
    except LabctlError as error:
        _say(f"error: {error.message}")
        return error.exit_status
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _answer(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def _say(line: str) -> None:
    os.write(2, f"{line}\n".encode())


if __name__ == "__main__":
    main()
