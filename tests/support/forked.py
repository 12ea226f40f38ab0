"""``labctl`` commands that begin as forks of a process which has imported labctl already.

A command spends up to a second of a CPU on imports, and the tests start a thousand of them. All
else is as a user has it: a process of its own, in a session of its own, with its own folder,
environment and files, that is killed by its process id. What only a new interpreter shows (lazy
imports, options of Python, a terminal) is for tests that start one, as tests/cli/test_start_up.py;
with ``LABCTL_TEST_FRESH=1`` (`make soak`, `make bench`) every command begins in a new interpreter.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import inspect
import json
import os
import pkgutil
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labctl import process

_TIMEOUT_SECONDS = 300.0
#: What labctl imports where it needs it; like labctl itself, nothing of it starts a thread.
_LATE = ("curses", "encodings.utf_8_sig", "pydantic.dataclasses", "rich._emoji_codes", "tenacity")
#: Variables that an interpreter or the dynamic linker reads when it starts.
_OF_THE_START = ("PYTHON", "LD_", "LC_", "LANG")
#: The environment before any test changed it.
_FIRST = dict(os.environ)


def start(
    words: "list[str] | tuple[str, ...]",
    *,
    cwd: Path,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
    env: Mapping[str, str] = os.environ,
    limits: Mapping[str, float] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start ``labctl WORDS``, as ``labctl.process.start`` does.

    ``limits`` are constants of its modules (``labctl.MODULE.NAME``) for a fork: waits that would
    be most of a test's time. A new interpreter waits as long as users do.
    """
    argv = [sys.executable, "-m", "labctl", *words]
    if os.environ.get("LABCTL_TEST_FRESH") or _start(env) != _start(_FIRST):
        return process.start(argv, cwd=cwd, stdout=stdout, stderr=stderr, env=env)
    return _Forked(
        [*argv[3:]],
        limits or {},
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


def run(words: tuple[str, ...], *, cwd: Path, timeout: float) -> process.Completed:
    """Run ``labctl WORDS`` to its end, as ``labctl.process.run`` does."""
    began = time.monotonic_ns()
    with start(words, cwd=cwd) as started:
        try:
            stdout, stderr = started.communicate(timeout=timeout)
        except BaseException:
            process.stop(started)
            raise
    duration_ns = time.monotonic_ns() - began
    return process.Completed(("labctl", *words), started.returncode, stdout, stderr, duration_ns)


def _start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: env[name] for name in env if name.startswith(_OF_THE_START)}


class _Forked(subprocess.Popen[bytes]):
    """A process that the server forks and reaps; its exit status comes through a pipe."""

    def __init__(self, words: list[str], limits: Mapping[str, float], **options: Any):
        self._limits = dict(limits)
        super().__init__(words, **options)

    def _execute_child(self, *given: Any) -> None:
        names = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments
        streams = [names["p2cread"], names["c2pwrite"], names["errwrite"]]
        streams = [own if own != -1 else number for number, own in enumerate(streams)]
        self._ended, told = os.pipe()
        try:
            asked = {"argv": names["args"], "limits": self._limits, "env": names["env"]}
            asked["cwd"] = str(names["cwd"])
            self.pid = _server().fork(asked, [*streams, told])
        except BaseException:
            os.close(self._ended)
            raise
        finally:
            os.close(told)
            pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(names[pipe] for pipe in pipes))  # type: ignore[attr-defined]
        self._child_created = True

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:  # type: ignore[override]
        return self._end(0)

    def _wait(self, timeout: float | None) -> int:  # type: ignore[override]
        status = self._end(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def _end(self, timeout: float | None) -> int | None:
        with self._waitpid_lock:
            if self.returncode is None:
                poll = select.poll()
                poll.register(self._ended, select.POLLIN)
                if poll.poll(None if timeout is None else max(0.0, timeout) * 1000):
                    self.returncode = int(os.read(self._ended, 100))
                    os.close(self._ended)
        return self.returncode


class _Server:
    """The process that has imported labctl, and forks."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.socket, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            self.socket.settimeout(_TIMEOUT_SECONDS)
            self.process = process.start(
                [sys.executable, __file__, str(there.fileno())],
                stdout=None,
                stderr=None,
                env=_FIRST,
                keep_open=[there.fileno()],
            )
        atexit.register(self.end)

    def fork(self, asked: dict[str, Any], files: list[int]) -> int:
        with self.lock:
            socket.send_fds(self.socket, [json.dumps(asked).encode()], files)
            answer = self.socket.recv(100)
        assert answer, "the server of forks has ended"
        return int(answer)

    def end(self) -> None:
        self.socket.close()
        self.process.wait(60)


_servers: list[_Server] = []
_starting = threading.Lock()


def _server() -> _Server:
    with _starting:
        if not _servers:
            _servers.append(_Server())
        return _servers[0]


def _serve(connection: socket.socket) -> list[str] | None:
    """Fork for all who ask; returns what to run, in the forks alone."""
    selector = selectors.DefaultSelector()
    selector.register(connection, selectors.EVENT_READ)
    ends: dict[int, tuple[int, int]] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is not connection:
                descriptor = key.fd
                pid, told = ends.pop(descriptor)
                selector.unregister(descriptor)
                os.close(descriptor)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
                    os.write(told, str(status).encode())
                os.close(told)
                continue
            asked, files, _, _ = socket.recv_fds(connection, 1 << 20, 4)
            if not asked:
                return None
            pid = os.fork()
            if pid == 0:
                selector.close()
                connection.close()
                return _become(json.loads(asked), files)
            for descriptor in files[:3]:
                os.close(descriptor)
            watched = os.pidfd_open(pid)
            ends[watched] = pid, files[3]
            selector.register(watched, selectors.EVENT_READ)
            connection.send(str(pid).encode())


def _become(asked: dict[str, Any], files: list[int]) -> list[str]:
    os.setsid()
    for number, descriptor in enumerate(files[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, 1 << 16)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.path[0] = asked["cwd"]
    for path, value in asked["limits"].items():
        module, _, name = path.rpartition(".")
        assert isinstance(getattr(sys.modules[module], name), float), path
        setattr(sys.modules[module], name, value)
    words: list[str] = asked["argv"]
    return words


def _keep_at_end(modules: dict[str, object]) -> None:
    """Spare a fork that ends the clearing of ``modules``, for which it would copy most pages.

    Its other steps to the end are as ever: this one, registered first, is the last of atexit's.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(modules))

    def forget() -> None:
        for name in modules.keys() - {"sys", "builtins", "__main__"}:
            sys.modules.pop(name, None)

    atexit.register(forget)


def _main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    imported: dict[str, object] = {}
    _keep_at_end(imported)
    import labctl

    for module in pkgutil.walk_packages(labctl.__path__, "labctl."):
        if module.name != "labctl.__main__":
            importlib.import_module(module.name)
    for name in _LATE:
        importlib.import_module(name)
    assert len([*Path("/proc/self/task").iterdir()]) == 1
    imported |= sys.modules
    gc.collect()
    gc.freeze()
    words = _serve(connection)
    if words is not None:
        sys.argv[:] = ["labctl", *words]
        runpy.run_module("labctl", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
