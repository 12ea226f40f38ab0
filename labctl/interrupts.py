"""Ctrl-C, SIGTERM and SIGHUP: noted when they come, raised at points that are made for it.

Python's own handler raises KeyboardInterrupt between any two steps: inside pydantic, which makes an
error of its own of it, or where a lock is taken and not yet known to be. The handler of
:func:`install` only notes the signal. KeyboardInterrupt is then raised in the main thread

- by :func:`check`, which long loops call between their steps;
- by the waits of this module;
- inside :class:`waiting`, which surrounds a call that only waits;
- after ``LATE_SECONDS``, if none of these came, in plain code: not while a library, an import, or
  the reading or writing of a format is under way.

The third signal ends the process at once, even where it is stuck. What is on disk is kept then, as
after ``kill -9``.

Without :func:`install` all of this does nothing: a script or a notebook that imports labctl keeps
Python's own KeyboardInterrupt.
"""

import os
import select
import signal
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
S = TypeVar("S")

#: Signals that mean Ctrl-C.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: The signal of this number ends the process at once.
AT_ONCE = 3
#: Time (s) after which a signal that no point has raised is raised in plain code.
LATE_SECONDS = 0.7
_INTERRUPTED = 130  #: Exit status; ``labctl.errors`` would be slow to import at the start.
_SLICE_SECONDS = 0.1  #: Longest part of a wait that a signal does not end.
#: A signal that comes just before a wait does not end it: another one follows after this time.
_AGAIN_SECONDS = 0.05
_AGAIN = signal.SIGURG

_OWN = os.path.dirname(__file__) + os.sep  # noqa: PTH120 - pathlib is slow to import
_LIBRARIES = tuple({sysconfig.get_path(kind) + os.sep for kind in ("purelib", "platlib")})
_CALLERS = ("click", "tenacity")  #: Libraries that only call labctl's code.
_PYTHON = sysconfig.get_path("stdlib") + os.sep
#: Parts of Python that must finish.
_FORMATS = ("json", "sqlite3", "logging", "importlib")


class _State:
    """The state that the handler and the main thread share; the same thread runs both."""

    #: Where the kernel's notices of signals are written; None: not installed.
    wakeup: int | None = None
    #: The time of a signal that no point has raised yet.
    noted: float | None = None
    #: True inside :class:`waiting`.
    is_waiting = False
    #: Number of blocks of :class:`finishing` that hold signals back.
    held = 0
    #: True while a command runs: before and after it, nobody would catch what is raised.
    is_running = False
    #: Handlers of this module: where another one is installed, its owner says what a signal means.
    handlers: tuple[object, ...] = ()


class _Thread(threading.local):
    #: Ends a thread of :func:`labctl.retry.in_threads` soon.
    stop: threading.Event | None = None
    #: As in _State, in that thread.
    held = 0

    def __init__(self) -> None:
        #: The open blocks of :class:`finishing`.
        self.blocks: list[finishing] = []


_state, _thread = _State(), _Thread()


def install() -> None:
    """Take over the signals of this process, once. One that is ignored stays so, as after nohup."""
    if _state.wakeup is not None or not is_main():
        return
    import atexit

    reading, _state.wakeup = os.pipe()
    os.set_blocking(_state.wakeup, False)
    signal.signal(_AGAIN, _come_again)
    threading.Thread(target=_watch, args=(reading,), name="interrupts", daemon=True).start()
    atexit.register(_ignore)
    for number in SIGNALS:
        if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
            signal.signal(number, note)
    _state.handlers = (note,)
    signal.set_wakeup_fd(_state.wakeup, warn_on_full_buffer=False)


def program(module: str) -> Callable[..., None]:
    """Return the function ``main`` of a module that is imported after the signals are taken over.

    An interrupt of the start shows no traceback.
    """

    def main(arguments: list[str] | None = None) -> None:
        install()
        try:
            found = import_module(module)
        except KeyboardInterrupt:
            raise SystemExit(_INTERRUPTED) from None
        found.main(arguments)

    return main


def note(_number: int = 0, _frame: FrameType | None = None) -> None:
    """Note a signal; raise KeyboardInterrupt inside :class:`waiting`."""
    if _state.noted is None:
        _state.noted = time.monotonic()
    if _state.is_waiting and _may_raise():
        _raise()


def begin() -> None:
    """Raise from now on, also what was noted: the caller catches it."""
    _state.is_running = True
    check()


def finish() -> None:
    """Raise nothing any more: the command has ended."""
    _state.is_running = False


def is_told() -> bool:
    """Return True in the main thread of a process that has taken over its signals."""
    return _state.wakeup is not None and is_main()


def check() -> None:
    """Raise KeyboardInterrupt if a signal is noted and this is the main thread.

    Also in a thread of :func:`in_threads` that must end.
    """
    if _state.noted is not None and _may_raise() and is_main():
        _raise()
    if _thread.stop is not None and _thread.stop.is_set() and not _thread.held:
        _raise()


class waiting:  # noqa: N801 - used as a function
    """A context: a signal raises KeyboardInterrupt at once.

    For a call that only waits: what it returns can be lost.
    """

    def __enter__(self) -> None:
        self._is_told = is_told()
        self._before = _state.is_waiting
        if self._is_told:
            _state.is_waiting = True
        check()

    def __exit__(self, *_error: object) -> None:
        if self._is_told:
            _state.is_waiting = self._before


class finishing:  # noqa: N801 - used as a function
    """A context in which only the first signal raises, so that it can finish.

    Code after this signal, and held code, needs its own time limit.
    """

    _holder: "_State | _Thread | None" = None

    def hold(self) -> None:
        """Let no signal raise from now on, nor the third one end the process."""
        if self._holder is None:
            self._holder = _state if is_main() else _thread
            self._holder.held += 1

    def release(self) -> None:
        """Let signals raise again, one that came meanwhile at once."""
        if self._holder is not None:
            self._holder.held -= 1
            self._holder = None
        check()

    def __enter__(self) -> "finishing":
        _thread.blocks.append(self)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        _thread.blocks.remove(self)
        if self._holder is not None:
            self._holder.held -= 1
        if error is None:
            check()


def sleep(seconds: float) -> None:
    """Sleep; a signal ends it."""
    if _thread.stop is not None:
        wait(_thread.stop, seconds)
    with waiting():
        time.sleep(seconds)


def wait(event: threading.Event, timeout: float | None = None) -> bool:
    """Wait for an event, as its ``wait`` does."""
    return _sliced(event.wait, timeout)


def wait_for(
    condition: threading.Condition, predicate: Callable[[], object], timeout: float | None = None
) -> bool:
    """Wait for a condition that this thread holds, as its ``wait_for`` does."""
    return _sliced(lambda seconds: bool(condition.wait_for(predicate, seconds)), timeout)


def join(thread: threading.Thread, timeout: float | None = None) -> bool:
    """Wait for the end of a thread; False if it did not come in time."""

    def attempt(seconds: float | None) -> bool:
        thread.join(seconds)
        return not thread.is_alive()

    return _sliced(attempt, timeout)


def acquire(lock: threading.Lock, timeout: float | None = None) -> bool:
    """Take a lock, as its ``acquire`` does."""
    return _sliced(lambda left: lock.acquire(timeout=-1 if left is None else left), timeout)


@contextmanager
def holding(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock, as ``with`` does."""
    acquire(lock)
    try:
        yield
    finally:
        lock.release()


def get(queue: "SimpleQueue[T]", timeout: float) -> T:
    """Take the next item of a queue. Raises ``queue.Empty``."""
    found: list[T] = []

    def attempt(seconds: float | None) -> bool:
        with suppress(Empty):
            found.append(queue.get(timeout=seconds))
        return bool(found)

    if not _sliced(attempt, timeout):
        raise Empty
    return found[0]


def result(future: "Future[T]") -> T:
    """Return the result of a future, as its ``result`` does."""
    from concurrent.futures import wait as wait_for_all  # slow to import, and seldom needed

    _sliced(lambda seconds: bool(wait_for_all([future], seconds).done), None)
    return future.result()


def follow(stop: threading.Event) -> None:
    """Let the waits of this thread end with KeyboardInterrupt once an event is set."""
    _thread.stop = stop


@contextmanager
def handled_by(
    handler: Callable[[int, FrameType | None], None], *, once: bool = False
) -> Iterator[None]:
    """Give the signals that would interrupt to another handler; ``once``: the first of them."""
    usual = (note, signal.default_int_handler)
    before = {one: now for one in SIGNALS if (now := signal.getsignal(one)) in usual}

    def restore() -> None:
        for number, usual_handler in before.items():
            signal.signal(number, usual_handler)

    def handle(number: int, frame: FrameType | None) -> None:
        if once:
            restore()
        handler(number, frame)

    _state.handlers += (handle,)
    try:
        for number in before:
            signal.signal(number, handle)
        yield
    finally:
        restore()
        _state.handlers = tuple(one for one in _state.handlers if one is not handle)


def _sliced(attempt: Callable[[float | None], bool], timeout: float | None) -> bool:
    """Wait in slices; raise between them. ``attempt`` gets a time (s), and returns the outcome."""
    if _thread.stop is None and not is_told():
        return attempt(timeout)
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        check()
        left = _SLICE_SECONDS if until is None else min(_SLICE_SECONDS, until - time.monotonic())
        if attempt(max(left, 0.0)):
            return True
        if until is not None and time.monotonic() >= until:
            return False


def is_main() -> bool:
    """Return True in the thread that gets the signals."""
    return threading.get_ident() == threading.main_thread().ident


def _may_raise() -> bool:
    return _state.is_running and not _state.held


def _raise() -> NoReturn:
    for block in _thread.blocks:
        block.hold()
    if is_main():
        _state.noted, _state.is_waiting = None, False
    raise KeyboardInterrupt


def _come_again(_number: int, frame: FrameType | None) -> None:
    """Look once more at a noted signal."""
    if _state.noted is None or not _may_raise():
        return
    is_late = time.monotonic() - _state.noted >= LATE_SECONDS
    if _state.is_waiting or (is_late and _is_plain(frame)):
        _raise()


def _is_plain(frame: FrameType | None) -> bool:
    """Return True if the main thread runs nothing that must finish."""
    while frame is not None:
        if not _may_be_cut(frame.f_code.co_filename):
            return False
        frame = frame.f_back
    return True


def _may_be_cut(name: str) -> bool:
    if name.startswith(_OWN):
        return True
    for folder in _LIBRARIES:
        if name.startswith(folder):
            return name.removeprefix(folder).partition(os.sep)[0] in _CALLERS
    if name.startswith(_PYTHON):
        return name.removeprefix(_PYTHON).partition(os.sep)[0] not in _FORMATS
    return not name.startswith("<frozen importlib")


def _watch(reading: int) -> None:
    """Count the signals. Make the main thread look again while one of them is noted."""
    presses, main = 0, threading.main_thread().ident
    assert main is not None
    seconds: float | None = None
    while True:
        if select.select([reading], [], [], seconds)[0]:
            came = [number for number in os.read(reading, 4096) if number in SIGNALS]
            if not _state.held:
                presses += sum(signal.getsignal(one) in _state.handlers for one in came)
            if presses >= AT_ONCE:
                _end_at_once()
            if came:
                seconds = _AGAIN_SECONDS
            continue
        if _state.noted is None or not _state.is_running:
            seconds = None
        signal.pthread_kill(main, _AGAIN)


def _end_at_once() -> NoReturn:
    with suppress(OSError):  # nobody reads
        os.write(2, b"interrupted at once: what is on disk is kept\n")
    os._exit(_INTERRUPTED)


def _ignore() -> None:
    """Let no signal disturb the end of the process."""
    for number in SIGNALS:
        if signal.getsignal(number) is note:
            signal.signal(number, signal.SIG_IGN)
