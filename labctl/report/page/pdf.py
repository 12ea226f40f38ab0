"""A page as PDF, printed by a browser of this host."""

import os
import shutil
import tempfile
from pathlib import Path

from labctl import process
from labctl.errors import ConfigError, HostError
from labctl.files import host_writes

#: Browsers of Chromium's family, as distributions name them, and where macOS has them.
BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    *("microsoft-edge", "brave-browser"),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
#: A report of 100 runs takes a few seconds.
SECONDS = 120.0


def find_browser() -> str:
    """Return a browser that prints. Raises ConfigError where there is none."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    raise ConfigError(
        "cannot write a PDF: no Chromium or Chrome on this host",
        hint="install one (Debian, Ubuntu: `apt install chromium`), or write .html and print that",
    )


def pdf(page: str) -> bytes:
    """Return a page as PDF. Raises ConfigError where no browser is, HostError when it fails.

    The browser gets a profile of its own, and no network: the page's policy forbids all of it.
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
                # Chromium starts no sandbox for root; the page has no script but its own.
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
