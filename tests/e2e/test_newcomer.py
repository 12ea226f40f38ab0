"""The first half hour of somebody new: the wheel, no root, an empty folder, 80 columns."""

import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from doc_commands import Written, block_commands
from newcomer import COLUMNS, Newcomer, Shown, newcomer

from labctl.build.builder import build
from labctl.build.plan import BuildRequest
from labctl.errors import ExitStatus
from labctl.package_data import DOCS
from labctl.retry import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

TOOLS = ("llama-completion", "llama-quantize")
BUILD = ["build", "--target", "rk3568", *(word for tool in TOOLS for word in ("--tool", tool))]
#: The smaller of both models, few tokens; threads of llama.cpp spin, which takes minutes here where
#: another program has the second CPU.
SMALL = [
    *("--set", "model=q2_k", "--set", "tokens=8"),
    *("--set", "parameters.threads=1"),
]


@pytest.fixture
def somebody(rk3568: None) -> Iterator[Newcomer]:
    """Somebody to whom a cache is lent that has what the first recipe needs."""
    build(BuildRequest(target="rk3568", tools=TOOLS))
    build(BuildRequest(target="rk3568", product="agent"))
    with newcomer(lend_cache=True) as somebody:
        yield somebody


def result(shown: Shown) -> list[str]:
    """The heading of the result table and its first row."""
    lines = shown.lines
    (heading,) = [n for n, line in enumerate(lines) if line.startswith("variant  ")]
    return lines[heading : heading + 2]


def checked(shown: Shown) -> None:
    """Assert that the checks of the one row are good, or that a sentence says what is wrong.

    A host so busy that two tokens are read at once is seen, and so are its other programs; how late
    stamps are is not held against an emulated board.
    """
    word = result(shown)[1].split()[-1]
    told = re.findall(r"q2_k: (\w+) failed in 1 of 1 trials; trial 1: \S", " ".join(shown.lines))
    assert word == ("FAILED" if told else "partly"), shown.text
    assert set(told) <= {"arrivals", "quiet", "steal"}, shown.text


def good(shown: Shown, status: int = ExitStatus.OK) -> Shown:
    """Assert an exit status, and that nothing was shown that only labctl's authors can read."""
    assert shown.status == status, shown.raw[-4000:]
    for leaked in ("Traceback", "bug:", "/_shipped/", "syntax error"):
        assert leaked not in shown.text, shown.text
    return shown


def with_free_port(somebody: Newcomer) -> str:
    """Give the lab's virtual board a port that is free; return its address."""
    devices = somebody.lab / "devices.yaml"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    devices.write_text(devices.read_text().replace("127.0.0.1:5555", address))
    return address


def type_all(
    somebody: Newcomer,
    commands: list[Written],
    more: Mapping[str, list[str]],
    address: str,
    *,
    but: str = "^$",
) -> list[tuple[Written, Shown]]:
    """Type the commands of a page in order; return each with what it left.

    more: words to add after a command that begins so, to make it short. but: a pattern of commands
    that are not typed: what they need is not here.
    """
    typed = []
    for written in commands:
        line = " ".join(written.words)
        if re.search(but, line):
            continue
        words = [word.replace("192.168.1.20:5555", address) for word in written.words]
        added = [extra for start, extra in more.items() if f"{line} ".startswith(f"{start} ")]
        words += added[0] if added else []
        if words[0] == "init":  # it writes no file that is there
            for old in ("devices.yaml", "recipes"):
                somebody.forget(old)
        shown = somebody.run(*words)
        assert shown.status == ExitStatus.OK, f"{written}\n{shown.raw[-4000:]}"
        typed.append((written, good(shown)))
    return typed


def yaml_blocks(page: Path) -> list[str]:
    """Return the YAML files that a page shows."""
    return re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_a_newcomers_walk(somebody: Newcomer) -> None:
    """The pages of the first hour, command by command, and two mistakes."""
    lines = good(somebody.run("init", "--virtual")).lines
    assert "wrote devices.yaml (virtual)" in lines
    assert [line for line in lines if line.startswith("  labctl ")] == [
        "  labctl boards",
        "  labctl build --target rk3568",
        "  labctl run recipes/first.yaml",
    ]
    assert max(map(len, lines)) <= COLUMNS
    address = with_free_port(somebody)

    offline = good(somebody.run("boards"), ExitStatus.INFRA)
    assert "labctl virtual-board" in offline.text  # what to do about it

    short = {"build": BUILD[1:], "run": SMALL}
    with somebody.serving("virtual-board") as log:
        assert wait_until(lambda: "answers at" in log.read_text(), timeout=300, interval=0.1), (
            log.read_text()
        )
        page, begun = DOCS / "virtual-boards.md", "^init|^virtual-board$"
        shown = type_all(somebody, block_commands(page), short, address, but=begun)
        by_line = {" ".join(written.words): one for written, one in shown}
        assert re.search(r"^virtual +connected ", by_line["boards"].text)
        assert "nothing to do" in by_line["build --target rk3568"].text
        run = by_line["run recipes/first.yaml"]
        assert "EMULATED" in run.text
        heading, row = result(run)
        assert heading.split()[:3] == ["variant", "good", "TTFT"]
        assert row.split()[:2] == ["q2_k", "1/1"]
        checked(run)
        for line in run.lines:  # bars and tables; sentences may go on in the next line
            if line[:1] in "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" or re.search(r"\S {2,}\S.* {2,}\S", line):
                assert len(line) <= COLUMNS, line
        assert re.search(r"send llama-completion: done in [\d.]+ m?s", run.text)
        (directory,) = (somebody.lab / "runs").glob("2*")
        assert f"run directory: {directory}" in run.text

        again = good(somebody.run("report"))
        assert result(again) == [heading, row]
        assert "finished" in good(somebody.run("watch")).text
        assert "no unfinished run" in good(somebody.run("resume"), ExitStatus.CONFIG).text

        mistake = good(somebody.run("run", "recipes/frist.yaml"), ExitStatus.CONFIG)
        assert "frist.yaml" in mistake.text
        assert "first" in mistake.text

        page = DOCS / "first-recipe.md"
        first, second = yaml_blocks(page)
        somebody.write("recipes/mine.yaml", first)
        few = {"run recipes/mine.yaml --set": [], "run": ["--set", "tokens=8"]}
        for written, one in type_all(somebody, block_commands(page), few, address):
            assert written.words[0] != "run" or "1/1" in one.text
        somebody.write("recipes/mine.yaml", second)
        plan = good(somebody.run("plan", "recipes/mine.yaml"))
        assert "emulated" in plan.text

        # A board on a cable and one with sshd are not here; a file of the user's own neither.
        absent = "^init --ssh|^bench"
        # The virtual board stands for a DAYU200; its machine is that of this host.
        board = {"init --address": ["--target", "rk3568"]}
        page = DOCS / "getting-started.md"
        type_all(somebody, block_commands(page), short | board, address, but=absent)

        few = ["--set", "tokens=8", "--set", "repeats=1", "--set", "warm_up=0"]
        short = {"build": BUILD[1:], "plan": few, "run": few}
        type_all(somebody, block_commands(DOCS.parent / "README.md"), short | board, address)

    # The wheel has the pages; the manual is complete without a checkout.
    assert "first-recipe" in good(somebody.run("docs")).text


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_the_walk_with_nothing_lent() -> None:
    with newcomer(lend_cache=False) as somebody:
        good(somebody.run("init", "--virtual"))
        with_free_port(somebody)
        with somebody.serving("virtual-board") as log:
            assert wait_until(lambda: "answers at" in log.read_text(), timeout=900, interval=1), (
                log.read_text()
            )
            good(somebody.run(*BUILD, timeout=5400))
            run = good(somebody.run("run", "recipes/first.yaml", *SMALL, timeout=1800))
            checked(run)
