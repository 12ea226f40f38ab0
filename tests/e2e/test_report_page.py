"""The report in Debian's Chromium: whole in all sizes, themes and languages, and usable."""

import csv
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from browser import Browser
from evaluations_made import made_evaluation
from latency_made import made_match
from measured_runs import PAIR, Made, measured
from stored_runs import stored

from labctl.cli.root import run_cli
from labctl.records.board import Execution
from labctl.records.trial import Failure, TrialState
from labctl.report.figures.measured import MeasuredRun
from labctl.report.page.build import build_report
from labctl.report.page.evaluation import evaluation_report
from labctl.report.page.html import html
from labctl.report.page.language import Language
from labctl.report.page.latency import latency_report
from labctl.runs.record.directory import RunDirectory

pytestmark = pytest.mark.e2e

AXE = Path(__file__).parents[1] / "fixtures" / "axe-core.min.js"
FIGURES = "[...document.querySelectorAll('figure')]"
PLOTS = "[...document.querySelectorAll('.plot')]"
#: The pictures that are shown: of two, the one for this width.
PICTURES = "[...document.querySelectorAll('.plot svg')].filter(one => one.clientWidth)"
#: Texts of pictures that are cut off at an edge.
CUT = (
    PICTURES + ".flatMap(one => [...one.querySelectorAll('text')].filter(text => {"
    "const [inner, outer] = [text, one].map(it => it.getBoundingClientRect());"
    "return inner.left < outer.left - 2 || inner.right > outer.right + 2"
    " || inner.top < outer.top - 2 || inner.bottom > outer.bottom + 2; })"
    ".map(text => text.textContent))"
)
#: How large pictures are shown: 1 is the size that they were drawn for.
SCALES = PICTURES + ".map(one => one.clientWidth / one.viewBox.baseVal.width)"
#: What axe-core finds, without the names of rules that are kept.
VIOLATIONS = (
    "axe.run({resultTypes: ['violations']}).then(done => done.violations"
    ".map(one => `${one.impact} ${one.id}: ${one.nodes[0].html} ${one.nodes[0].failureSummary}`))"
)
#: What a PDF begins with.
RATIO = "Ratio (95% interval)"
PDF = b"%PDF-"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with reports: of a board's run and an emulated one, in Chinese, of one run."""
    folder = tmp_path_factory.mktemp("pages")
    runs = [
        stored(folder / "runs", measured(throttled=4, tokens=16)),
        stored(
            folder / "runs",
            measured(
                [*PAIR, Made("a-model-with-a-long-name-Q4_K_M-threads-4", 250.0)],
                run_id="20261121T223000Z-q2-012345",
                execution=Execution.EMULATED,
                tokens=16,
            ),
        ),
    ]
    en, zh = Language("en"), Language("zh")
    (folder / "en.html").write_text(html(build_report(runs, en), en))
    (folder / "zh.html").write_text(html(build_report(runs[1:], zh), zh))
    (folder / "failed.html").write_text(html(build_report([failed_run(folder / "runs")], en), en))
    (folder / "one.html").write_text(html(build_report(runs[:1], en), en))
    right = {
        f"{model}/{prompt}": shares
        for prompt in ("step_by_step", "answer_and_verify")
        for model, shares in (("q2_k", (0.2, 0.3, 0.4, 0.5)), ("q8_0", (0.1, 0.4, 0.6, 0.9)))
    }
    evaluation = made_evaluation(folder / "20261122T093000Z-sums-abc123", right=right, questions=12)
    (folder / "accuracy.html").write_text(html(evaluation_report(evaluation, en), en))
    (folder / "latency.html").write_text(html(latency_report(made_match(), zh), zh))
    return folder


def failed_run(runs: Path) -> RunDirectory:
    """A run of which a variant fails, with long lines at its end."""
    made = measured(run_id="20261123T223000Z-q2-fa11ed", tokens=16)
    failure = Failure(
        kind="ProgramFailed", blame="job", message="llama-cli ended with status 3",
        details="\n".join(f"main: error {number}: {'out of memory, ' * 9}" for number in range(9)),
    )  # fmt: skip
    failed = {"state": TrialState.FAILED, "timing": None, "failure": failure}
    trials = [one.model_copy(update=failed if one.repeat == 1 else {}) for one in made.trials]
    return stored(runs, MeasuredRun(made.run, trials, made.probes, made.telemetry))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


@pytest.fixture
def browser(shared: Browser) -> Iterator[Browser]:
    """A browser on whose page nothing may go wrong, and which asks no network for anything."""
    shared.problems.clear()
    shared.requests.clear()
    shutil.rmtree(shared.saved, ignore_errors=True)
    yield shared
    assert shared.problems == []
    assert [url for url in shared.requests if not url.startswith(("file:", "data:", "blob:"))] == []


WIDTHS = (1400, 768, 360)


@pytest.mark.parametrize(
    ("code", "dark", "looked_at"),
    [
        *(("en", False, 1400), ("zh", True, 360), ("accuracy", True, 768)),
        *(("latency", False, 1400), ("failed", False, 360)),
    ],
)
def test_a_page_is_whole_and_accessible(
    browser: Browser, pages: Path, code: str, dark: bool, looked_at: int
) -> None:
    """At each width; axe-core, which takes seconds, looks at one of them."""
    whole_and_accessible(browser, pages / f"{code}.html", dark=dark, looked_at=[looked_at])


@pytest.mark.soak
@pytest.mark.parametrize("code", ["en", "zh", "accuracy", "latency"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_is_accessible_at_every_width(
    browser: Browser, pages: Path, code: str, dark: bool
) -> None:
    whole_and_accessible(browser, pages / f"{code}.html", dark=dark, looked_at=WIDTHS)


def whole_and_accessible(
    browser: Browser, page: Path, *, dark: bool, looked_at: Sequence[int]
) -> None:
    browser.show(page, dark=dark)
    browser.evaluate(AXE.read_text() + "; 0")
    for width in WIDTHS:
        browser.resize(width)
        figures = browser.evaluate(f"{FIGURES}.length")
        assert figures >= (2 if page.stem in ("accuracy", "latency") else 6)
        browser.until(f"{PICTURES}.length === {figures}")
        assert browser.evaluate(CUT) == []
        assert all(0.85 < scale < 1.4 for scale in browser.evaluate(SCALES))
        browser.until("document.documentElement.scrollWidth <= innerWidth")
        browser.until(f"{PLOTS}.every(one => one.scrollWidth <= one.clientWidth)")
        if width == 360:
            opened = "document.querySelectorAll('details').forEach(one => { one.open = true; })"
            browser.evaluate(opened)
            assert browser.evaluate("document.documentElement.scrollWidth") == 360
            assert not re.search(r"\d\s%", browser.evaluate("document.body.innerText"))
        if width in looked_at:
            assert browser.evaluate(VIOLATIONS) == []


def test_a_table_is_sorted_by_keyboard(browser: Browser, pages: Path) -> None:
    browser.show(pages / "en.html")
    heading = "document.querySelectorAll('thead th')[{}]"
    column = browser.evaluate(
        "[...document.querySelectorAll('thead')[0].rows[0].cells]"
        ".findIndex(one => one.textContent === 'Time per token')"
    )
    assert column == 2, "a table that is cut begins with what was measured"
    names = "[...document.querySelector('tbody').rows].map(row => row.cells[2].textContent)"
    as_it_was = browser.evaluate(names)
    seen = []
    for wanted in ("ascending", "descending", "none"):
        browser.evaluate(heading.format(column) + ".querySelector('button').focus()")
        for kind in ("keyDown", "keyUp"):
            browser.send("Input.dispatchKeyEvent", type=kind, key="Enter", text="\r", code="Enter")
        assert browser.evaluate(heading.format(column) + ".ariaSort") == wanted
        seen.append(browser.evaluate(names))

    def value(text: str) -> float:
        number, unit = text.split()
        return float(number) * {"ms": 1, "s": 1000}[unit]

    assert seen[0] == sorted(as_it_was, key=value)
    assert seen[1] == seen[0][::-1]
    assert seen[2] == as_it_was


def test_a_table_that_is_cut_begins_with_what_was_measured(browser: Browser, pages: Path) -> None:
    run = stored(pages / "fits", measured(repeats=1))
    (pages / "fits.html").write_text(html(build_report([run], Language("en")), Language("en")))
    browser.show(pages / "fits.html")
    seen = (
        "[...document.querySelector('table').rows].map(row => [...row.cells]"
        ".filter(one => one.getBoundingClientRect().right <= innerWidth)"
        ".map(one => one.textContent.trim()))"
    )
    as_it_was = browser.evaluate(seen)
    assert as_it_was[0][1] == "Quantization"
    browser.resize(360)
    browser.until("document.querySelector('table').rows[0].cells[1].textContent !== 'Quantization'")
    headings, *rows = browser.evaluate(seen)
    assert headings == ["Variant", "Time per token", "95% interval", RATIO]
    time, ratio = (as_it_was[0].index(name) for name in ("Time per token", RATIO))
    assert [row[1::2] for row in rows] == [[row[time], row[ratio]] for row in as_it_was[1:]]
    browser.resize(1400)
    browser.until(f"JSON.stringify({seen}) === JSON.stringify({json.dumps(as_it_was)})")
    browser.show(pages / "one.html")
    assert browser.evaluate(seen)[0][1:4] == headings[1:], "wider than a page of any width"


def test_a_tooltip_shows_for_the_keyboard_and_goes(browser: Browser, pages: Path) -> None:
    browser.show(pages / "en.html", width=360)
    browser.evaluate("document.querySelector('thead [data-tip]').focus()")
    assert browser.evaluate("document.getElementById('tip').textContent").startswith("A model")
    assert browser.evaluate("document.activeElement.getAttribute('aria-describedby')") == "tip"
    box = browser.evaluate(
        "(({left, right}) => [left, right - innerWidth])"
        "(document.getElementById('tip').getBoundingClientRect())"
    )
    assert box[0] >= 0
    assert box[1] <= 0
    browser.send("Input.dispatchKeyEvent", type="keyDown", key="Escape", code="Escape")
    assert browser.evaluate("document.getElementById('tip').hidden")


def test_the_theme_can_be_changed_and_the_figures_follow(browser: Browser, pages: Path) -> None:
    browser.show(pages / "one.html")
    colours = (
        f"[document.body, ...{PICTURES}[0].querySelectorAll('text')].map("
        "one => getComputedStyle(one)[one === document.body ? 'backgroundColor' : 'fill'])"
    )
    before = browser.evaluate(colours)
    browser.evaluate("document.getElementById('theme').click()")
    after = browser.evaluate(colours)
    assert not [one for one, other in zip(before, after, strict=True) if one == other]
    assert browser.evaluate("document.getElementById('theme').textContent") == "Light colours"


def test_marks_tell_their_values_to_keyboard_and_pointer(browser: Browser, pages: Path) -> None:
    browser.show(pages / "one.html")
    plot = "document.querySelector('#figure-1 .plot')"
    scrolled = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    browser.evaluate(f"{plot}.focus(); {scrolled}")
    told = "document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent"
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft"):
        browser.send("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)
        seen.append(browser.evaluate(told))
    assert seen[0] == seen[2] != seen[1]
    assert seen[0].startswith("variant: q8_0\nrepeat: 1\ntime per token (ms): ")
    assert seen[3].startswith("variant: q2_k\n"), "the last one"
    browser.evaluate("document.activeElement.blur()")
    assert browser.evaluate(told) == ""
    mark = f"{plot}.querySelector('path[d*=A]')"  # a circle
    corner = "(({left, top}) => [left - 5, top - 5])"
    left, top = browser.evaluate(f"{corner}({mark}.getBoundingClientRect())")
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=left, y=top)
    browser.until(f"({told}).startsWith('variant: q')")


def test_a_page_whose_style_and_script_a_server_forbids_has_all_figures(
    browser: Browser, pages: Path
) -> None:
    strict = '<head><meta http-equiv="Content-Security-Policy" content="default-src \'none\'">'
    page = (pages / "one.html").read_text().replace("<head>", strict, 1)
    (pages / "strict.html").write_text(page)
    browser.show(pages / "strict.html")
    assert browser.evaluate("document.styleSheets.length") == 0
    assert browser.evaluate(f"{PICTURES}.length === {FIGURES}.length")
    fills = browser.evaluate(
        f"{PICTURES}.flatMap(one => [...one.querySelectorAll('text')])"
        ".map(one => getComputedStyle(one).fill)"
    )
    assert "rgb(31, 35, 40)" in fills
    assert "none" not in fills
    assert all("Content Security Policy" in one for one in browser.problems)
    browser.problems.clear()


def test_hostile_names_do_nothing(browser: Browser, pages: Path) -> None:
    name = "</script><img src=x onerror=alert(1)>=1+1"
    run = stored(pages / "hostile", measured([Made(name), Made("b", 200.0)], board=name))
    words = Language("en")
    (pages / "hostile.html").write_text(html(build_report([run], words), words))
    browser.show(pages / "hostile.html")
    assert browser.evaluate("document.images.length") == 0
    assert browser.evaluate("document.querySelector('h1').textContent").endswith(name)
    browser.evaluate("document.querySelector('#figure-1 [data-save=csv]').click()")
    browser.wait_for_saved()
    (saved,) = browser.saved.iterdir()
    assert name[-12:] in saved.read_text(encoding="utf-8-sig")


def test_the_data_of_a_figure_is_saved_as_csv(browser: Browser, pages: Path) -> None:
    browser.show(pages / "one.html")
    for kind in ("csv", "svg"):
        browser.evaluate(f"document.querySelector('#figure-1 [data-save={kind}]').click()")
        browser.wait_for_saved()
    saved = {path.suffix: path for path in browser.saved.iterdir()}
    rows = list(csv.DictReader(saved[".csv"].read_text(encoding="utf-8-sig").splitlines()))
    assert {row["series"] for row in rows} == {"q8_0", "q2_k"}
    assert all(float(row["time"]) > 0 for row in rows)
    assert saved[".svg"].read_text().startswith("<svg")


def test_a_printed_page_is_light_and_whole(browser: Browser, pages: Path) -> None:
    browser.show(pages / "one.html", dark=True)
    printed = browser.pdf()
    assert printed.startswith(PDF)
    assert len(re.findall(rb"/Type /Page\b", printed)) <= 9
    browser.send("Emulation.setEmulatedMedia", media="print")
    button = "getComputedStyle(document.querySelector('thead button')).display"
    assert browser.evaluate(button) == "contents", "else headings are on the first page alone"
    paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    text = f"getComputedStyle({PICTURES}[0].querySelector('text')).fill"
    assert browser.evaluate(text) == "rgb(89, 99, 110)"
    closed = "document.querySelectorAll('details[data-print]:not([open])').length"
    assert browser.evaluate(closed) == 0
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    browser.send("Emulation.setEmulatedMedia", media="")


def test_labctl_writes_a_pdf(
    pages: Path, tmp_path: Path, browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    run = next((pages / "runs").glob("*abcdef"))
    assert run_cli(["report", str(run), "-o", str(tmp_path / "r.pdf")]) == 0
    raw = (tmp_path / "r.pdf").read_bytes()
    assert raw.startswith(PDF)
    assert len(raw) > 30_000
