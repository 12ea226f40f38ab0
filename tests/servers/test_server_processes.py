"""The processes of model servers end with the tests that started them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import real_servers
from real_servers import KINDS, Server

from labctl.retry import wait_until

#: Starts a server, prints its process, and waits.
PROGRAM = """
import sys
from pathlib import Path
from real_servers import KINDS, Server

server = Server(KINDS["known"], Path(sys.argv[1]))
server.start()
print(server._process.pid, flush=True)
sys.stdin.read()
"""


def test_a_server_ends_if_the_tests_are_killed(tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, sys.path))
    words = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
    ) as tests:
        assert tests.stdout is not None
        leader = int(tests.stdout.readline())
        processes = real_servers._session(leader)
        tests.kill()
    try:
        assert len(processes) >= 2  # `timeout`, and the server
        assert wait_until(lambda: not real_servers._session(leader), timeout=30, interval=0.05)
    finally:
        for pid in real_servers._session(leader):
            os.kill(pid, signal.SIGKILL)


def test_a_server_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    server = Server(KINDS["known"], tmp_path)
    server.start()
    process = server._process
    assert process is not None
    server.kill()
    assert wait_until(lambda: not real_servers._session(process.pid), timeout=30, interval=0.05)
