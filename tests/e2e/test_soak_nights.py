"""Ten nights on two virtual boards: the one with a slow head is found, and no other."""

import subprocess
import time
from pathlib import Path

import agent_builds
import pytest
from labs import LabUnderTest, said
from night_lab import PLAN, give_ticker, second_board, write_source

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(7200)]

NIGHTS = 10
SLOW = 6
COMMITS = 8
#: Of the commits from 1 on.
BROKEN, FIRST_SLOW = 3, 6
BUSY = """\
static void busy(void) {
  for (clock_t end = clock() + CLOCKS_PER_SEC / 25; clock() < end;) {}
}
int main"""


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    argv = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def test_ten_nights_on_two_boards(native_lab: LabUnderTest) -> None:
    lab = native_lab
    give_ticker(lab.root)
    plan = PLAN.replace("boards: [vb]", f"boards: target={agent_builds.HOST}")
    (lab.root / "plan.yaml").write_text(plan)
    with second_board(lab.root):
        statuses = []
        for number in range(NIGHTS):
            write_source(lab.root, "head", 60 if number == SLOW else 20)
            source = lab.root / "source" / "head" / "ticker.c"
            source.write_text(source.read_text().replace("return 0", f"return 0 * {number + 1}"))
            done = lab.run("nightly", "plan.yaml", timeout=1800)
            print(number, done.exit_status, done.text, said(done)[-300:])
            statuses.append(done.exit_status)
    assert statuses == [1 if number == SLOW else 0 for number in range(NIGHTS)]


def test_the_folder_that_made_it_slow_is_found_by_real_runs(native_lab: LabUnderTest) -> None:
    lab = native_lab
    give_ticker(lab.root)
    names = [f"c{number}" for number in range(5)]
    for number, name in enumerate(names):
        write_source(lab.root, name, 60 if number >= 2 else 20)
    write_source(lab.root, "broken", 20)
    (lab.root / "source" / "broken" / "ticker.c").write_text("int main( {")
    write_source(lab.root, "head", 60)
    folders = ", ".join(f"source/{name}" for name in ["c0", "c1", "c2", "broken", "c3", "c4"])
    plan = PLAN.replace("product: ticker", f"product: ticker\n    history: [{folders}]")
    (lab.root / "plan.yaml").write_text(f"{plan}bisect: true\n")
    done = lab.run("nightly", "plan.yaml", timeout=3000)
    print(done.text, said(done)[-2000:])
    assert done.exit_status == 1
    assert "the first slow commit is source/c2: slower than the one before it" in done.text


def test_the_commit_with_a_busy_loop_is_found_in_a_git_repository(
    native_lab: LabUnderTest,
) -> None:
    lab, upstream = native_lab, native_lab.root / "upstream"
    give_ticker(lab.root)
    plain = (lab.root / "source" / "good" / "ticker.c").read_text()
    busy = plain.replace("int main", BUSY).replace("nanosleep", "busy();\n    nanosleep")
    upstream.mkdir()
    git(upstream, "init", "--quiet", "--initial-branch", "main")
    commits = []
    for number in range(1, COMMITS + 1):
        text = "int main( {" if number == BROKEN else plain if number < FIRST_SLOW else busy
        (upstream / "ticker.c").write_text(f"{text}/* {number} */\n")
        git(upstream, "add", ".")
        git(upstream, "commit", "--quiet", "-m", f"change {number}")
        commits.append(git(upstream, "rev-parse", "HEAD"))
    plan = PLAN.replace("{version: v1}", f"{{git: {upstream}, ref: {commits[0]}}}")
    plan = plan.replace("{folder: source/head}", f"{{git: {upstream}, ref: main}}")
    (lab.root / "plan.yaml").write_text(f"{plan}bisect: true\n")
    began = time.monotonic()
    done = lab.run("nightly", "plan.yaml", timeout=3000)
    print(commits, done.text, said(done)[-3000:], f"{time.monotonic() - began:.0f} s")
    assert done.exit_status == 1
    found = f"the first slow commit is {commits[FIRST_SLOW - 1]}: slower than the one before it"
    assert found in done.text
