"""A small HTTP server that loads, answers, hangs and dies as it is told; a program of its own.

Arguments: --port N --name NAME --load SECONDS --die-on-load STATUS --stubborn
Answers: GET /ready 503 while it loads, then its name; POST /say the prompt in capitals. The prompts
``hang``, ``die`` and ``exit`` are obeyed.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NEVER = threading.Event()


class Handler(BaseHTTPRequestHandler):
    name = ""
    ready_at = 0.0

    def log_message(self, *_: object) -> None:
        pass

    def reply(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if time.monotonic() < self.ready_at:
            self.reply(503, {"error": "loading"})
        else:
            self.reply(200, {"name": self.name})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = asked["prompt"]
        if prompt == "hang":
            NEVER.wait()
        if prompt == "die":
            sys.stderr.write("about to crash\n")
            os.kill(os.getpid(), signal.SIGSEGV)
            NEVER.wait()  # it arrives in another thread
        if prompt == "exit":
            os._exit(0)
        self.reply(200, {"name": self.name, "text": prompt.upper()})


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--port", type=int)
    words.add_argument("--name")
    words.add_argument("--load", type=float, default=0)
    words.add_argument("--die-on-load", type=int)
    words.add_argument("--stubborn", action="store_true")
    told = words.parse_args()
    if told.die_on_load is not None:
        sys.stderr.write("no such model\n")
        sys.exit(told.die_on_load)
    if told.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "1000"])
        sys.stderr.write(f"child {child.pid}\n")
    Handler.name, Handler.ready_at = told.name, time.monotonic() + told.load
    ThreadingHTTPServer(("127.0.0.1", told.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
