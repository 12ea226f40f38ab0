"""A picture of the top of a page: ``page_picture.py PAGE WIDTH light|dark HEIGHT FILE.png``."""

import sys
import tempfile
from pathlib import Path

from browser import Browser


def main(page: str, width: str, theme: str, height: str, picture: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(Path(folder))
        browser.show(Path(page), width=int(width), dark=theme == "dark")
        browser.resize(int(width), int(height))
        browser.evaluate("scrollTo(0, 0)")
        browser.picture(Path(picture), whole=False)
        browser.close()
        assert not browser.problems, browser.problems


if __name__ == "__main__":
    main(*sys.argv[1:])
