"""Signals that come at any step: noted, and raised only at points that are made for it."""

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import dashboards
import pytest

from labctl.errors import ExitStatus

_START = """
    import os, random, signal, sys, threading, time
    from labctl import interrupts
    from labctl.retry import in_threads
    if {is_program}:
        interrupts.install()
        interrupts.begin()
    def press(number=signal.SIGINT):
        os.kill(os.getpid(), number)
    def begun():
        print("begun", flush=True)
"""


def program(script: str, *, is_program: bool = True) -> "subprocess.Popen[str]":
    """Start a script that has taken over its signals as the program ``labctl`` does."""
    text = textwrap.dedent(_START.format(is_program=is_program)) + textwrap.dedent(script)
    return subprocess.Popen([sys.executable, "-c", text], stdout=-1, stderr=-1, text=True)


def said(script: str, *, is_program: bool = True) -> list[str]:
    """Run a script; return the lines that it printed."""
    with program(script, is_program=is_program) as running:
        output, errors = running.communicate(timeout=120)
    assert (running.returncode, errors) == (0, "")
    return output.splitlines()


def until_interrupted(script: str, *numbers: int) -> tuple[float, int, str]:
    """Start a script, send signals once it has begun; return the time (s), status and errors."""
    with program(script) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        time.sleep(0.2)  # it is in its wait now, most probably: both must do
        began = time.monotonic()
        for number in numbers or (signal.SIGINT,):
            running.send_signal(number)
            time.sleep(0.02)
        _, errors = running.communicate(timeout=60)
    return time.monotonic() - began, running.returncode, errors


#: Records of both kinds, written and read, with functions of Python in the midst of pydantic.
_RECORDS = """
    from pathlib import Path
    from labctl.config.lab import Lab
    from labctl.config.yaml.document import Document
    from labctl.files import append_line, write_atomic
    from labctl.records.run import RunEnd
    interrupts.AT_ONCE = 1 << 30
    folder, count, seed = Path("{folder}"), {count}, {seed}
    end = RunEnd(state="finished", finished="2026-01-01T00:00:00Z")
    lab = Lab.model_validate({{"boards": {{}}}})
    chance, over = random.Random(seed), threading.Event()
    def presses():
        while not over.is_set():
            time.sleep(chance.uniform(0, 0.002))
            press()
    threading.Thread(target=presses, daemon=True).start()
    raised = written = 0
    while raised < count:
        text = end.model_dump_json(indent=2)
        assert RunEnd.model_validate_json(text) == end
        lab.model_dump(mode="json")
        Document.parse("name: a\\nlist: [1, 2, {{b: c}}]\\n", "a.yaml")
        if raised % 10 == 0:
            write_atomic(folder / "end.json", text)
            append_line(folder / "lines", text.replace("\\n", ""))
            written += 1
        try:
            interrupts.check()
        except KeyboardInterrupt:
            raised += 1
    over.set()
    assert (folder / "end.json").read_text() == text
    assert len((folder / "lines").read_text().splitlines()) == written
    print(raised)
"""


def interrupt_records(folder: Path, count: int, seed: int) -> None:
    """Send so many signals while records are written and read: none is raised there."""
    assert said(_RECORDS.format(folder=folder, count=count, seed=seed)) == [str(count)]


def test_no_signal_is_raised_while_records_are_written_and_read(tmp_path: Path) -> None:
    interrupt_records(tmp_path, 300, 1)


WAITS = {
    "sleep": "interrupts.sleep(60)",
    "event": "interrupts.wait(threading.Event(), 60)",
    "condition": """
        condition = threading.Condition()
        with condition:
            interrupts.wait_for(condition, lambda: False, 60)
        """,
    "lock": """
        lock = threading.Lock()
        lock.acquire()
        interrupts.acquire(lock)
        """,
    "queue": "import queue; interrupts.get(queue.SimpleQueue(), 60)",
    "thread": """
        thread = threading.Thread(target=time.sleep, args=(60,), daemon=True)
        thread.start()
        interrupts.join(thread)
        """,
    "threads": """
        in_threads(lambda _: interrupts.sleep(60), range(3), at_once=2)
        """,
    "retry": """
        from labctl.retry import wait_until
        wait_until(lambda: False, timeout=60, interval=20)
        """,
    "program": """
        from labctl import process
        process.run(["sleep", "60"], timeout=90)
        """,
    "lines of a program": """
        from labctl import process
        process.run_streaming(["sleep", "60"], timeout=90, on_line=print)
        """,
    "coroutine": """
        import asyncio
        from labctl.evaluation.event_loop import run_async
        run_async(asyncio.sleep(60))
        """,
    "server": """
        import socket
        from labctl import http
        server = socket.create_server(("127.0.0.1", 0))
        with http.request("GET", "http://127.0.0.1:%d" % server.getsockname()[1], direct=True):
            pass
        """,
    "lock of a file": """
        import tempfile
        from pathlib import Path
        from labctl.locks import locked
        path = Path(tempfile.mkdtemp()) / "lock"
        with locked(path, timeout=0), locked(path, timeout=60):
            pass
        """,
    "loop without a point": """
        while True:
            pass
        """,
    "wait that is not labctl's": "threading.Event().wait(60)",
    "board that does not answer": """
        import socket
        from labctl.hdc.server_client.frames import Frames
        ours, theirs = socket.socketpair()
        Frames(ours, "board").read(60)
        """,
}


@pytest.mark.parametrize("what", WAITS)
def test_whatever_waits_ends_within_a_second(what: str) -> None:
    wait = textwrap.indent(textwrap.dedent(WAITS[what]).strip(), "    ")
    script = f"begun()\ntry:\n{wait}\nexcept KeyboardInterrupt:\n    os._exit(130)"
    with program("") as warm:  # its modules are read from disk
        warm.communicate()
    seconds, status, errors = until_interrupted(script)
    assert (status, errors) == (ExitStatus.INTERRUPTED, "")
    assert seconds < 5  # a second on a host that does nothing else; the waits are of a minute


#: Servers with handlers of their own.
SERVERS = {
    "dashboard": """
        from labctl.web import server
        from labctl.web.dashboard import Listening
        lab = made_lab(Path(tempfile.mkdtemp()) / "k")
        make = server.make_app
        def make_and_press(*words):
            press(signal.SIGTERM)
            return make(*words)
        server.make_app = make_and_press
        server.serve(lab, *server.listen(Listening(port=0)))
        """,
    "virtual board": """
        from labctl.virtual import board
        press(signal.SIGTERM)
        board.serve([], print)
        """,
    "worker": """
        from labctl.farm.worker import Worker
        from labctl.state.state import lab_state
        lab = made_lab(Path(tempfile.mkdtemp()) / "k")
        engine = SimpleNamespace(prepare=lambda: press(signal.SIGTERM))
        Worker(lab_state(lab), "lab1", ["rk1"], None, engine).run()
        """,
}


@pytest.mark.parametrize("server", SERVERS)
def test_a_signal_before_a_server_has_its_handlers_ends_it(server: str) -> None:
    imports = f"""
        sys.path.append({dashboards.__file__!r}.rpartition("/")[0])
        import tempfile
        from pathlib import Path
        from types import SimpleNamespace
        from dashboards import made_lab
        """
    script = textwrap.dedent(imports) + textwrap.dedent(SERVERS[server])
    script = textwrap.indent(script, "    ") + "\nexcept KeyboardInterrupt:\n    os._exit(130)"
    with program(f"try:\n{script}") as running:
        try:
            _, errors = running.communicate(timeout=60)
        finally:
            running.kill()
    assert (running.returncode, errors) == (ExitStatus.INTERRUPTED, "")


def test_the_third_signal_ends_what_is_stuck() -> None:
    """Here in SQLite, which lets no Python run before its time is over."""
    script = """
        import sqlite3, tempfile
        path = tempfile.mkdtemp() + "/a"
        first, second = (sqlite3.connect(path, timeout=60) for _ in range(2))
        first.execute("create table t(a)"); first.execute("begin exclusive")
        begun()
        second.execute("begin exclusive")
    """
    seconds, status, errors = until_interrupted(script, *[signal.SIGINT] * 3)
    assert (status, errors) == (
        ExitStatus.INTERRUPTED,
        "interrupted at once: what is on disk is kept\n",
    )
    assert seconds < 5


def test_what_holds_signals_back_comes_to_its_end() -> None:
    script = """
        try:
            with interrupts.finishing() as block:
                block.hold()
                press(); press(); press(); press()
                interrupts.sleep(0.3)
                print("whole")
        except KeyboardInterrupt:
            print("raised")
    """
    assert said(script) == ["whole", "raised"]


def test_what_follows_the_first_signal_is_finished() -> None:
    script = """
        try:
            with interrupts.finishing() as outer:
                with interrupts.finishing():
                    try:
                        press()
                        interrupts.sleep(30)
                    finally:
                        press(); press(); press()
                        interrupts.sleep(0.3)
                        print("inner", flush=True)
        except KeyboardInterrupt:
            print("raised")
        try:
            interrupts.check()
        except KeyboardInterrupt:
            print("again")
    """
    assert said(script) == ["inner", "raised", "again"]


def test_a_released_signal_raises_at_once() -> None:
    script = """
        try:
            with interrupts.finishing() as block:
                block.hold()
                press()
                interrupts.check()
                print("held")
                block.release()
                print("not reached")
        except KeyboardInterrupt:
            print("raised")
    """
    assert said(script) == ["held", "raised"]


def test_a_thread_that_must_end_finishes_its_block() -> None:
    script = """
        done = []
        def work(_item):
            with interrupts.finishing():
                try:
                    begun()
                    interrupts.sleep(30)
                finally:
                    interrupts.sleep(0.3)
                    done.append("finished")
        threading.Timer(0.3, press).start()
        try:
            in_threads(work, [1], at_once=1)
        except KeyboardInterrupt:
            print("raised")
        time.sleep(1)
        print(*done)
    """
    assert said(script) == ["begun", "raised", "finished"]


def test_other_threads_are_not_interrupted() -> None:
    script = """
        done = []
        def work():
            interrupts.sleep(0.5); interrupts.check(); done.append("done")
        thread = threading.Thread(target=work)
        thread.start()
        press()
        thread.join()
        print(*done)
    """
    assert said(script) == ["done"]


def test_a_script_keeps_the_interrupts_of_python() -> None:
    script = """
        before = [signal.getsignal(one) for one in interrupts.SIGNALS]
        import labctl, labctl.cli
        assert [signal.getsignal(one) for one in interrupts.SIGNALS] == before
        try:
            with interrupts.finishing() as block:
                block.hold()
                press()
                time.sleep(5)
        except KeyboardInterrupt:
            print("raised")
    """
    assert said(script, is_program=False) == ["raised"]


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as nohup and `&` do
    try:
        assert said("press(); interrupts.sleep(0.1); interrupts.check(); print('on')") == ["on"]
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_at_the_start_shows_no_traceback() -> None:
    """From the first step of labctl's own; before it, Python's own end is a signal's."""
    for number in range(0, 15, 3):
        words = [sys.executable, "-m", "labctl", "schema", "recipe"]
        with subprocess.Popen(words, stdout=-1, stderr=-1, text=True) as running:
            _until_it_hears(running.pid)
            time.sleep(0.02 * number)
            running.send_signal(signal.SIGINT)
            errors = running.communicate(timeout=60)[1]
        assert running.returncode in (0, 130)
        assert errors.strip() == ("interrupted" if running.returncode else "")


def _until_it_hears(pid: int) -> None:
    while True:
        status = Path(f"/proc/{pid}/status").read_text()
        (caught,) = [line for line in status.splitlines() if line.startswith("SigCgt")]
        if int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1 or "\nState:\tZ" in status:
            return
        time.sleep(0.001)


def test_the_end_of_a_process_is_not_disturbed() -> None:
    """Its output is still written, its threads end, and so do its objects."""
    script = """
        import atexit
        from labctl.cli import root
        interrupts.AT_ONCE = 100
        sys.stdout = root.explaining(sys.stdout)
        atexit.register(press)
        class Slow:
            def __del__(self):
                press()
        slow = Slow()
        def late():
            time.sleep(0.3)
        threading.Thread(target=late).start()
        threading.Timer(0.1, press).start()
        press()
        interrupts.finish()
        print("whole")
    """
    assert said(script) == ["whole"]
