"""The dashboard in Debian's Chromium: live, by keyboard, on a phone, in the dark, in Chinese."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from dashboards import Served, made_lab, served
from evaluations_made import made_evaluation, write_evaluation
from measured_runs import measured
from nightly_runs import Lab
from records_made import planned_run, run
from stored_runs import stored

from labctl.records.board import Execution
from labctl.records.events import Contact, Progress, Trial
from labctl.records.run import PlanRecord
from labctl.runs.record.event_log import EVENTS
from labctl.state.health import Health
from labctl.state.job import NewJob
from labctl.state.state import lab_state
from labctl.web.request_checks import Limits

pytestmark = pytest.mark.e2e

AXE = Path(__file__).parents[1] / "fixtures" / "axe-core.min.js"
VIOLATIONS = (
    "axe.run(document, {iframes: false, resultTypes: ['violations']}).then(done => done.violations"
    ".map(one => `${one.impact} ${one.id}: ${one.nodes[0].html} ${one.nodes[0].failureSummary}`))"
)
LIVE = "20261122T200000Z-q2-aaaaaa"


def write_event(folder: Path, *events: Contact | Trial | Progress) -> None:
    with (folder / EVENTS).open("a") as file:
        file.writelines(f"{event.model_dump_json(by_alias=True)}\n" for event in events)


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A lab with runs, nights that became slower, a queue, a bad board and a run in progress."""
    lab = made_lab(tmp_path_factory.mktemp("lab") / "kitchen", boards=4)
    runs = lab.root / "runs"
    done = stored(runs, measured(throttled=4, tokens=16))
    right = {f"smollm2-135m-instruct-{one}/step_by_step": [0.5] for one in ("Q8_0", "Q2_K")}
    evaluated = runs / "20261122T093000Z-sums-abc123"
    write_evaluation(made_evaluation(evaluated, right={**right}, budgets=(None,)))
    nights = Lab(runs)
    nights.nights(range(1, 13), 50.0)
    nights.nights(range(13, 19), 60.0)
    state = lab_state(lab)
    state.health.set("rk2", Health.BAD, reason="memory 18 % slower", by="health check")
    state.jobs.submit(NewJob("q8", {}, ("rk1", "rk3")), NewJob("q4", {}, ("rk4",)))
    state.leases.acquire("rk1", purpose="recipe q2", seconds=3600)
    directory = planned_run(runs, run(LIVE, board="rk1"), PlanRecord(trials=(), max_seconds=60))
    write_event(
        directory.path,
        Contact(run=LIVE, recipe="q2", board="rk1", target="rk3568", execution=Execution.BOARD),
        Trial(number=1, trials=9, slug="a", variant="q2_k", state="started", run_remaining_s=540),
    )
    assert done.path.is_dir()
    with directory.held(), served(lab) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


@pytest.fixture
def browser(shared: Browser, dashboard: Served) -> Iterator[Browser]:
    """A browser on whose page nothing may go wrong, and which asks this server alone."""
    shared.problems.clear()
    shared.requests.clear()
    shutil.rmtree(shared.saved, ignore_errors=True)
    shared.send("Network.clearBrowserCookies")
    yield shared
    assert shared.problems == []
    own = (dashboard.address, "data:", "blob:", "about:")
    assert [url for url in shared.requests if not url.startswith(own)] == []
    shared.send("Page.navigate", url="about:blank")


def show(
    browser: Browser, dashboard: Served, path: str, *, width: int = 1400, dark: bool = False
) -> None:
    browser.resize(width)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.send("Emulation.setEmulatedMedia", features=[scheme])
    address = f"{dashboard.address.rstrip('/')}{path}"
    browser.send("Page.navigate", url=address)
    ready = f"document.readyState === 'complete' && location.href === {json.dumps(address)}"
    browser.until(ready)


def press(browser: Browser, key: str, code: int, text: str = "") -> None:
    for kind in ("keyDown", "keyUp"):
        browser.send(
            "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, text=text
        )


def sign_in(browser: Browser, dashboard: Served, role: str) -> None:
    show(browser, dashboard, "/sign-in")
    browser.evaluate("document.querySelector('input[name=token]').focus()")
    browser.send("Input.insertText", text=dashboard.tokens[role])
    press(browser, "Enter", 13, "\r")
    browser.until("location.pathname === '/' && document.readyState === 'complete'")


PAGES = (
    *("/", "/boards/rk1", "/queue", "/runs", f"/runs/{LIVE}", "/nights", "/trends", "/audit"),
    "/sign-in",
)


@pytest.mark.parametrize(
    ("path", "dark", "language"),
    [
        ("/", True, "zh"),
        ("/boards/rk2", False, "en"),
        ("/queue", True, "en"),
        ("/accuracy", False, "en"),
        (f"/runs/{LIVE}/log", True, "en"),
        ("/runs", False, "zh"),
        ("/nights", False, "zh"),
        ("/trends", True, "en"),
        ("/sign-in", False, "en"),
    ],
)
def test_a_page_is_whole_and_accessible(
    browser: Browser, dashboard: Served, path: str, dark: bool, language: str
) -> None:
    if path in ("/boards/rk2", "/queue"):
        sign_in(browser, dashboard, "admin")
    show(browser, dashboard, f"{path}?lang={language}", dark=dark)
    assert browser.evaluate("document.documentElement.lang") == language
    browser.evaluate(AXE.read_text() + "; 0")
    for width in (1400, 360):
        browser.resize(width)
        browser.until("document.documentElement.scrollWidth <= innerWidth")
        assert browser.evaluate(VIOLATIONS) == []
    scrolled = "[...document.querySelectorAll('.table')].some(o => o.scrollWidth > o.clientWidth)"
    is_list = not path.startswith("/boards/")
    assert not (is_list and browser.evaluate(scrolled)), "on a phone a row is a card"


def test_the_boards_change_by_themselves_and_focus_stays(
    browser: Browser, dashboard: Served
) -> None:
    show(browser, dashboard, "/?lang=en")
    browser.until("document.body.dataset.link === 'live'")
    browser.until("document.getElementById('board-rk1').innerText.includes('1/9')")
    browser.evaluate("document.getElementById('link-rk1').focus()")
    browser.evaluate("document.getElementById('board-rk3').mine = 'kept'")
    write_event(
        dashboard.lab.root / "runs" / LIVE,
        Trial(number=2, trials=9, slug="b", variant="q2_k", state="started", run_remaining_s=480),
        Progress(
            number=2, phase="eval", done=64, total=128, unit="tokens", per_second=3.5,
            temperature_mc=61500, remaining_s=18,
        ),
    )  # fmt: skip
    browser.until("document.getElementById('board-rk1').innerText.includes('2/9')")
    text = browser.evaluate("document.getElementById('board-rk1').innerText")
    assert "61.5 °C" in text
    assert "64/128 tokens" in text
    assert "8 min" in text
    assert browser.evaluate("document.activeElement.id") == "link-rk1"
    assert browser.evaluate("document.getElementById('board-rk3').mine") == "kept"
    assert browser.evaluate("document.getElementById('counts').getAttribute('aria-live')")


def test_a_log_grows(browser: Browser, dashboard: Served) -> None:
    show(browser, dashboard, f"/runs/{LIVE}/log")
    folder = dashboard.lab.root / "runs" / LIVE
    write_event(
        folder,
        Trial(number=3, trials=9, slug="<b>c", variant="q", state="failed", reason="\x1b[2J<i>x"),
    )
    browser.until("document.getElementById('log').innerText.includes('<b>c')")
    assert browser.evaluate("document.querySelectorAll('#log b, #log i').length") == 0


def test_a_board_is_held_and_released_by_keyboard_alone(
    browser: Browser, dashboard: Served
) -> None:
    sign_in(browser, dashboard, "run")
    show(browser, dashboard, "/boards/rk3")
    press(browser, "Tab", 9)
    assert browser.evaluate("document.activeElement.className") == "skip"
    for _ in range(60):
        if browser.evaluate("document.activeElement.name") == "reason":
            break
        press(browser, "Tab", 9)
    browser.send("Input.insertText", text="firmware <b>test")
    press(browser, "Enter", 13, "\r")
    browser.until("document.getElementById('board')?.innerText.includes('firmware <b>test')")
    (kept,) = lab_state(dashboard.lab).reservations.list("rk3")
    assert (kept.holder, kept.reason) == ("run", "firmware <b>test")
    browser.evaluate("document.querySelector('form[action$=release] button').focus()")
    press(browser, "Enter", 13, "\r")
    browser.until("!document.getElementById('board')?.innerText.includes('firmware')")
    assert lab_state(dashboard.lab).reservations.list("rk3") == []
    actions = [(one.actor, one.via) for one in lab_state(dashboard.lab).audit.list(subject="rk3")]
    assert actions == [("run", "web"), ("run", "web")]


def test_what_somebody_types_is_not_lost_to_a_change(browser: Browser, dashboard: Served) -> None:
    sign_in(browser, dashboard, "admin")
    show(browser, dashboard, "/queue")
    browser.until("document.body.dataset.link === 'live'")
    browser.evaluate("document.querySelector('details').open = true")
    browser.evaluate("document.querySelector('details input').value = 'half a sent'")
    lab_state(dashboard.lab).jobs.submit(NewJob("fresh", {}, ("rk2",)))
    browser.until("document.getElementById('queue').innerText.includes('fresh')")
    assert browser.evaluate("document.querySelector('details input').value") == "half a sent"


def measured_run(dashboard: Served) -> str:
    with dashboard.client() as client:
        found = client.get("/api/v1/runs?recipe=q2").json()["runs"]
    return next(one["id"] for one in found if one["id"] != LIVE and one["trials_ok"] > 3)


def test_a_report_is_a_part_of_its_page_and_changes_with_its_run(
    browser: Browser, dashboard: Served
) -> None:
    name = measured_run(dashboard)
    show(browser, dashboard, f"/runs/{name}?lang=en")
    browser.until("document.querySelector('#report .plot[tabindex] svg') !== null")
    assert browser.evaluate("document.querySelectorAll('iframe, #report #theme').length") == 0
    browser.evaluate("document.querySelector('#report th button').click()")
    assert browser.evaluate("document.querySelector('#report th').ariaSort") == "ascending"
    paper = (
        "getComputedStyle(document.querySelector('#report .warning, #report pre')).backgroundColor"
    )
    light = browser.evaluate(paper)
    browser.evaluate("document.getElementById('theme').click()")
    assert browser.evaluate(paper) != light
    browser.evaluate("document.getElementById('theme').click()")
    browser.until("document.body.dataset.link === 'live'")
    browser.evaluate("document.querySelector('#report details').open = true")
    stamp = browser.evaluate("document.getElementById('report').dataset.stamp")
    os.utime(dashboard.lab.root / "runs" / name)
    browser.until(f"document.getElementById('report').dataset.stamp !== {json.dumps(stamp)}")
    assert browser.evaluate("document.querySelector('#report details').open")
    browser.until("document.querySelector('#report .plot[tabindex] svg') !== null")


def test_a_report_as_one_file_reaches_no_page_of_the_dashboard(dashboard: Served) -> None:
    answer = dashboard.ask("GET", f"/runs/{measured_run(dashboard)}/report")
    policy = answer.headers["content-security-policy"]
    assert "sandbox allow-scripts" in policy
    assert "allow-same-origin" not in policy


def test_all_can_be_read_without_script(dashboard: Served) -> None:
    name = measured_run(dashboard)
    with dashboard.client() as client:
        texts = {path: client.get(path).text for path in (*PAGES, f"/runs/{name}")}
    assert all("<main" in text for text in texts.values())
    assert 'id="board-rk1"' in texts["/"]
    assert LIVE in texts["/runs"]
    assert "<svg" in texts["/trends"]
    assert "<svg" in texts[f"/runs/{name}"]


def test_a_page_says_that_it_is_old_when_its_server_is_gone(
    tmp_path: Path, shared: Browser
) -> None:
    with served(made_lab(tmp_path / "kitchen")) as gone:
        show(shared, gone, "/?lang=en")
        shared.until("document.body.dataset.link === 'live'")
    shared.until("document.getElementById('link').textContent.includes('may be old')")
    shared.send("Page.navigate", url="about:blank")
    shared.until("location.href === 'about:blank'")


@pytest.mark.parametrize("path", ["/", f"/runs/{LIVE}/log"])
def test_a_page_whose_session_has_ended_leads_to_the_sign_in(
    tmp_path: Path, shared: Browser, path: str
) -> None:
    lab = made_lab(tmp_path / "kitchen", more="web: {reading: token}")
    plan = PlanRecord(trials=(), max_seconds=60)
    directory = planned_run(lab.root / "runs", run(LIVE, board="rk1"), plan)
    with directory.held(), served(lab, Limits(alive_seconds=0.2)) as closed:
        sign_in(shared, closed, "run")
        show(shared, closed, path)
        lab_state(lab).tokens.revoke("run", by="test")
        shared.until("location.pathname === '/sign-in'")
        shared.send("Page.navigate", url="about:blank")
        shared.until("location.href === 'about:blank'")
