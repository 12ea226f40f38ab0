"""``labctl WORDS`` with a list of the labctl functions that it called, as JSON in ``$CALLED``.

``{"runs/run.py": ["conduct", ...], ...}``, of all threads. Bodies of modules and classes are no
functions, nor are comprehensions, which are part of one.
"""

import atexit
import inspect
import json
import os
import runpy
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

called: set[CodeType] = set()


def note(frame: FrameType, event: str, _argument: object) -> None:
    if event == "call":
        called.add(frame.f_code)


def write() -> None:
    sys.setprofile(None)
    threading.setprofile(None)
    found: dict[str, list[str]] = {}
    for code in called.copy():
        path = Path(code.co_filename)
        is_function = code.co_flags & inspect.CO_OPTIMIZED
        if (
            is_function
            and path.is_relative_to(LABCTL)
            and not code.co_name.endswith(("comp>", "expr>"))
        ):
            found.setdefault(str(path.relative_to(LABCTL)), []).append(code.co_qualname)
    ordered = {name: sorted(functions) for name, functions in sorted(found.items())}
    Path(os.environ["CALLED"]).write_text(json.dumps(ordered, indent=1))


atexit.register(write)
threading.setprofile(note)
sys.setprofile(note)

import labctl  # noqa: E402 - what runs when it is imported counts

LABCTL = Path(labctl.__file__).parent
runpy.run_module("labctl", run_name="__main__")
