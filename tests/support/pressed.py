"""Ctrl-C at random moments of commands that run, and what must be true afterwards."""

import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import agent_builds
import forked
from evaluations import boxed, number_of, recipe_text, sums_lab
from farm_lab import farm_lab
from labs import lab_with_board
from scripted_answers import Answer, Asked
from scripted_endpoint import scripted_endpoint

from labctl import process
from labctl.retry import wait_until

#: What no interruption may show.
BUGS = re.compile(r"Traceback|bug:|a bug in|Exception ignored|error \(")
WAY = re.compile(
    r"to continue: (?:labctl (?P<words>.*)|the same command again)|has finished: labctl report"
    r"|all jobs have ended"
)
#: The second press of a person who presses twice, at the latest after this time (s).
TWICE_SECONDS = 0.15
#: Most interruptions of one run: then it is left alone.
MOST = 3

Ends = Counter[tuple[str, int]]


@dataclass
class Presses:
    """Commands of one lab that are interrupted at moments that ``chance`` chooses."""

    root: Path
    chance: random.Random
    #: How they ended: by the command and its status.
    ends: Ends = field(default_factory=Counter)
    #: Times (s) from the press to the end.
    took: list[float] = field(default_factory=list)
    #: Time (s) that a whole command took last, on this host with all else that it does.
    lasts: float = 0.0
    #: Number of interruptions at which that is measured again.
    measure_at: int = 0

    def interrupted(self, words: Sequence[str]) -> process.Completed:
        """Run a command; press while it runs, once or twice."""
        running = forked.start([*words], cwd=self.root)
        assert wait_until(
            lambda: hears(running.pid) or running.poll() is not None, timeout=60, interval=0.001
        )
        time.sleep(self.chance.uniform(0, self.lasts))
        pressed = time.monotonic()
        press(running.pid)
        if self.chance.random() < 0.5:
            time.sleep(self.chance.uniform(0, TWICE_SECONDS))
            press(running.pid)
        stdout, stderr = running.communicate(timeout=120)
        if running.returncode == 130:
            self.took.append(time.monotonic() - pressed)
            if len(self.took) % 25 == 0:
                self.told()
        self.ends[words[0], running.returncode] += 1
        return process.Completed(tuple(words), running.returncode, stdout, stderr, 0)

    def whole(self, words: Sequence[str]) -> process.Completed:
        """Run a command to its end."""
        done = forked.run(tuple(words), cwd=self.root, timeout=120)
        if words[0] != "resume":
            self.lasts = done.duration_ns / 1e9
            self.measure_at = len(self.took) + 20
        return done

    def to_the_end(self, words: Sequence[str], kept: Callable[[], dict[str, int]]) -> int:
        """Run a command, interrupt it, and continue as it says, until it comes to its end.

        ``kept`` returns what is finished, which no continuation may change. Returns the number of
        interruptions.
        """
        count = 0
        while True:
            before = kept()
            is_whole = count == MOST or len(self.took) >= self.measure_at
            done = self.whole(words) if is_whole else self.interrupted(words)
            said = done.stderr.decode()
            after = kept()
            assert before.items() <= after.items(), said
            assert not BUGS.search(said), said
            if done.exit_status == 0:
                return count
            assert (done.exit_status, count < MOST) == (130, True), said
            count += 1
            ways = [*WAY.finditer(said)]
            assert len(ways) == 1, said
            if "to continue" not in ways[0][0]:
                return count
            if (again := ways[0]["words"]) is not None:
                words = again.split()
            else:  # then nothing is there to continue with
                assert words[0] in ("resume", "batch") or after == before, said

    def told(self) -> Ends:
        """Print how it went, for who counts."""
        slow = sorted(self.took)[-3:]
        times = ", ".join(f"{seconds:.2f}" for seconds in slow)
        print(f"{len(self.took)} interrupted: {dict(self.ends)}; slowest {times} s", flush=True)  # noqa: T201
        return self.ends


def hears(pid: int) -> bool:
    """Whether labctl handles the signals of a process: it alone handles SIGTERM."""
    with suppress(FileNotFoundError, ProcessLookupError):
        status = Path(f"/proc/{pid}/status").read_text()
        found = re.search(r"^SigCgt:\t(\w+)", status, re.MULTILINE)
        return found is not None and bool(int(found[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def press(pid: int) -> None:
    """Ctrl-C, if the process has not ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)


def finished_trials(root: Path) -> dict[str, int]:
    """Each finished trial on disk, with the time of its record."""
    found = {}
    for path in root.glob("**/runs/*/trials/*/record.json"):
        if json.loads(path.read_text())["state"] == "ok":
            found[str(path)] = path.stat().st_mtime_ns
    return found


def runs_are_whole(root: Path, trials: int) -> int:
    """Assert that every planned run finished, each trial once; return their number."""
    runs = [path.parent for path in root.glob("**/runs/*/run.json")]
    for folder in runs:
        end = json.loads((folder / "end.json").read_text())
        assert end["state"] == "finished", folder
        records = [json.loads(path.read_text()) for path in folder.glob("trials/*/record.json")]
        assert sorted(record["number"] for record in records) == [*range(1, trials + 1)]
        assert {record["state"] for record in records} == {"ok"}
    return len(runs)


def interrupt_runs(root: Path, chance: random.Random, count: int) -> Ends:
    """Interrupt ``run`` and ``resume`` so often."""
    words = ("run", "sleeping", "--set", "repeats=3", "--set", "warm_up=0", "--set", "seconds=0.1")
    with farm_lab(root, 1):
        pressed = Presses(root, chance)
        while len(pressed.took) < count:
            pressed.to_the_end(words, lambda: finished_trials(root))
        runs_are_whole(root, 3)
    return pressed.told()


def interrupt_bench(root: Path, chance: random.Random, count: int) -> Ends:
    """Interrupt ``bench`` and its ``resume`` so often."""
    agent_builds.native_agent()
    with lab_with_board(root, "--target", agent_builds.HOST) as lab:
        (root / "devices.yaml").unlink()
        words = ("bench", "models/tiny.gguf", "--board", lab.board.address)
        words += ("--set", "tokens=4", "--set", "repeats=2", "--set", "warm_up=0")
        pressed = Presses(root, chance)
        while len(pressed.took) < count:
            pressed.to_the_end(words, lambda: finished_trials(root))
        runs_are_whole(root, 2)
    return pressed.told()


def interrupt_batches(root: Path, chance: random.Random, count: int) -> Ends:
    """Interrupt ``batch`` so often: the same command continues it."""
    plan = root / "plan.yaml"
    with farm_lab(root, 2):
        job = "{recipe: sleeping, set: {seconds: 0.2, repeats: 2}, times: 3, expected: 1s}"
        pressed, plans = Presses(root, chance), 0
        while len(pressed.took) < count:
            plans += 1
            plan.write_text(f"name: night-{plans}\njobs:\n  - {job}\n")
            pressed.to_the_end(("batch", str(plan)), lambda: finished_trials(root))
        # A batch that ended as it was told to ends needs no continuation.
        runs_are_whole(root, 2)
    return pressed.told()


def interrupt_evaluations(root: Path, chance: random.Random, count: int) -> Ends:
    """Interrupt evaluations and their ``resume`` so often."""

    def answer(asked: Asked) -> Answer:
        return Answer(boxed(2 * number_of(asked)), first_s=0.02)

    questions, at_once = 40, 2
    sums_lab(root, questions)
    pressed = Presses(root, chance)
    with scripted_endpoint(answer) as server:
        (root / "sums.yaml").write_text(recipe_text({"m": [server.address]}, concurrency=at_once))
        while len(pressed.took) < count:
            before, asked = len(pressed.took), len(server.answered)
            pressed.to_the_end(("run", "sums.yaml"), lambda: answers(root))
            again = (len(pressed.took) - before) * (at_once + 1)
            assert len(server.answered) - asked <= questions + again
    for path in root.glob("runs/*/evaluation.json"):
        end = json.loads((path.parent / "end.json").read_text())
        assert (end["state"], end["answered"]) == ("finished", questions)
    return pressed.told()


def answers(root: Path) -> dict[str, int]:
    """Each answer on disk: its line."""
    lines = (
        (f"{path}: {line}", 0)
        for path in root.glob("runs/*/generations.jsonl")
        for line in path.read_text().splitlines()
    )
    return dict(lines)
