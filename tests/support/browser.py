"""Debian's headless Chromium, driven over its DevTools protocol on a pipe: no port, no driver.

``--remote-debugging-pipe``: commands are read from file descriptor 3, answers and events written to
4, each JSON with a NUL behind it (chromium: content/browser/devtools/devtools_pipe_handler.cc).
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SECONDS = 60.0


def browser_program() -> str:
    """The browser of this host; the test is skipped where there is none."""
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium here: `scripts/setup tests` installs it")


def _high(descriptor: int) -> int:
    """The same file under a number of two digits at least, away from 3 and 4."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


class PageLeft(Exception):
    """The page went on to another address while it was asked."""


class Browser:
    """A browser with one page, and what went wrong on it: errors, refusals of its policy."""

    def __init__(self, folder: Path):
        to_browser, self._write = map(_high, os.pipe())
        self._read, from_browser = map(_high, os.pipe())
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._left = b""
        self._number = 0
        #: Files that are whole and that nobody waited for yet: the event may come with an answer.
        self._saves = 0
        self._session: str | None = None
        self.folder = folder
        # The numbers 3 and 4 may be in use here: another process gives them to the browser.
        numbered = f"os.dup2({to_browser}, 3); os.dup2({from_browser}, 4)"
        command = [
            *(sys.executable, "-c"),
            f"import os, sys; {numbered}; os.execv(sys.argv[1], sys.argv[1:])",
            browser_program(),
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--remote-debugging-pipe", "--no-first-run", "--disable-background-networking"),
            *(f"--user-data-dir={folder / 'profile'}", "--hide-scrollbars", "about:blank"),
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_browser, from_browser),
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(one for one in targets if one["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)
        self.saved = folder / "saved"
        self.send(
            "Browser.setDownloadBehavior",
            behavior="allow",
            downloadPath=str(self.saved),
            eventsEnabled=True,
        )

    def close(self) -> None:
        self._session = None
        self.send("Browser.close")
        os.close(self._write)
        os.close(self._read)
        self._process.wait(_SECONDS)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result; events meanwhile are noted."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(f"the answer to {method}")
            if answer.get("id") == number:
                if "navigated or closed" in str(answer.get("error")):
                    raise PageLeft(f"{method}: {answer['error']}")
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def wait_for_saved(self) -> None:
        """Wait until a file that the page offers is whole in ``saved``."""
        while not self._saves:
            self._next("the end of a download")
        self._saves -= 1

    def evaluate(self, expression: str) -> Any:
        """The value of an expression on the page, awaited."""
        done = self.send(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true on the page."""
        end = time.monotonic() + _SECONDS
        is_true = False
        while not is_true:
            assert time.monotonic() < end, f"never true: {expression}; {self.problems}"
            with suppress(PageLeft):  # asked again of the next page
                is_true = self.evaluate(expression)
                if not is_true:
                    self.evaluate("new Promise((done) => requestAnimationFrame(done))")

    def resize(self, width: int, height: int = 900) -> None:
        """Give the window a width in CSS pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def show(self, path: Path, *, width: int = 1400, dark: bool = False) -> None:
        """Open a file in a window of this width in CSS pixels."""
        self.resize(width)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=path.resolve().as_uri())
        address = json.dumps(path.resolve().as_uri())
        self.until(f"document.readyState === 'complete' && location.href === {address}")

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write what the page looks like as PNG."""
        options: dict[str, Any] = {"captureBeyondViewport": whole}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {**size, "x": 0, "y": 0, "scale": 1}
        data = self.send("Page.captureScreenshot", format="png", **options)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        """The page, printed."""
        printed = self.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(printed["data"])

    def _next(self, what: str) -> dict[str, Any]:
        end = time.monotonic() + _SECONDS
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            assert ready, f"the browser did not send {what}"
            piece = os.read(self._read, 1 << 20)
            assert piece, f"the browser ended before {what}"
            self._left += piece
        line, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, params: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(str([one.get("value") for one in params["args"]]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif event == "Browser.downloadProgress":
            self._saves += params["state"] == "completed"
        elif event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
