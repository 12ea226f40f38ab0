"""A page as PDF, printed by a browser on this host."""

import os
import shutil
import tempfile
from pathlib import Path

from labctl import process
from labctl.errors import ConfigError, HostError
from labctl.files import host_writes

#: Names of Chromium-based browsers in distributions, and their paths on macOS.
BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    *("microsoft-edge", "brave-browser"),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
#: A report of 100 runs takes a few seconds.
SECONDS = 120.0


def find_browser() -> str:
    """Return a browser that can print. Raises ConfigError if none is installed."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    raise ConfigError(
        "cannot write a PDF: no Chromium or Chrome on this host",
        hint="install one (Debian, Ubuntu: `apt install chromium`), or write .html and print that",
    )


def pdf(page: str) -> bytes:
    """Return a page as PDF. Raises ConfigError without a browser, HostError if it fails.

    The browser gets its own profile. The page's policy forbids all network access.
    """
    browser = find_browser()
    with host_writes(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory() as folder:
        source, printed = Path(folder, "report.html"), Path(folder, "report.pdf")
        source.write_text(page, encoding="utf-8")
        done = process.run(
            [
                browser,
                *("--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
                *("--disable-background-networking", "--disable-extensions"),
                # Chromium has no sandbox for root; the page has only its own script.
                *(("--no-sandbox",) if os.geteuid() == 0 else ()),
                f"--user-data-dir={Path(folder, 'profile')}",
                "--no-pdf-header-footer",
                f"--print-to-pdf={printed}",
                source.as_uri(),
            ],
            timeout=SECONDS,
        )
        if not printed.is_file():
            raise HostError(
                f"{browser} printed no PDF (exit status {done.exit_status})", details=done.tail()
            )
        return printed.read_bytes()
