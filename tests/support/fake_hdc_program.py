"""A program `hdc` for tests: `hdc -m -s IP:PORT` runs the stand-in server, as the official does.

One for each TMPDIR, whose pid file it locks; SIGTERM ends it. `hdc -s IP:PORT kill` ends it, too,
also one that stands still. Everything else it refuses.
`FAKE_HDC` in its environment (JSON) says what it does.
"""

import fcntl
import json
import os
import signal
import sys
import threading
from pathlib import Path

from hdc_server import Board, stand_in_server

PID_FILE = ".HDCServer.pid"


def main() -> None:
    if sys.argv[1] == "-s" and sys.argv[3:] == ["kill"]:
        os.kill(int((Path(os.environ["TMPDIR"]) / PID_FILE).read_text()), signal.SIGKILL)
        return
    assert sys.argv[1:3] == ["-m", "-s"], sys.argv
    host, _, port = sys.argv[3].rpartition(":")
    assert host == "127.0.0.1"
    assert os.environ["OHOS_HDC_SERVER_PORT"] == port
    wishes = json.loads(os.environ.get("FAKE_HDC", "{}"))
    sys.stdout.write("hdc server begins\n")
    sys.stdout.flush()
    if wishes.get("dies"):
        sys.exit("cannot open the bus")
    with (Path(os.environ["TMPDIR"]) / PID_FILE).open("a+") as pid_file:
        try:
            fcntl.lockf(pid_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit("another server runs")
        pid_file.truncate(0)
        pid_file.write(str(os.getpid()))
        pid_file.flush()
        over = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: over.set())
        boards = {key: Board(address) for key, address in wishes.get("boards", {}).items()}
        if wishes.get("silent"):
            over.wait()
        with stand_in_server(boards, port=int(port), dial=wishes.get("dial")):
            over.wait()
