"""Size of a report's page, and the time in which a browser opens it."""

import time
from pathlib import Path

import pytest
from browser import Browser
from measured_runs import PAIR, Made, measured
from stored_runs import stored

from labctl.report.page.build import build_report
from labctl.report.page.html import html
from labctl.report.page.language import Language

pytestmark = pytest.mark.bench

ROUNDS = 5
CELLS = [
    Made(
        f"smollm2-135m-instruct-Q{bits}_K_M threads={threads} ctx={context}",
        400.0 / threads + 10 * bits + context / 64,
        parameters=(("threads", threads), ("context", context)),
    )
    for bits in (2, 3, 4, 6, 8)
    for threads in (1, 2, 4)
    for context in (128, 256, 512, 1024)
]


@pytest.mark.parametrize("variants", [PAIR, CELLS], ids=["2 cells", "60 cells"])
def test_a_page_is_small_and_opens_at_once(tmp_path: Path, variants: list[Made]) -> None:
    words = Language("en")
    report = build_report([stored(tmp_path, measured(variants, repeats=5, tokens=64))], words)
    began = time.process_time()
    page = html(report, words)
    drawn = time.process_time() - began
    (tmp_path / "page.html").write_text(page)
    browser = Browser(tmp_path)
    opened = []
    for _ in range(ROUNDS):
        browser.show(tmp_path / "page.html", width=1280)
        opened.append(browser.evaluate("performance.getEntriesByType('navigation')[0].duration"))
    browser.close()
    print(
        f"\n{len(variants)} cells: {len(page.encode()) / 1e6:.2f} MB,"
        f" {len(report.figures)} figures,"
        f" {drawn:.2f} s of CPU to write, {min(opened):.0f} to {max(opened):.0f} ms to open"
    )
    assert len(page.encode()) < 1e6
    assert min(opened) < 1000
