"""labctl against real model servers, each figure beside the server's own: `make soak-servers`.

A server that this host cannot run is skipped, with the reason, and its column says so. Times here
hold on a busy host: they are compared with what the server counted in the same seconds.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import yaml
from real_servers import KINDS, KNOWN_CAPACITY, Server, Totals, running
from server_environments import CannotRunHere
from server_table import Table, write_into

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"
#: Tokens of an answer, and requests of a load.
TOKENS, REQUESTS = 12, 12
#: Longest time of one labctl.
SECONDS = 1500
QUESTIONS = [
    {"question": f"What is {first} plus {second}?", "answer": str(first + second)}
    for first, second in ((2, 3), (4, 1), (5, 5), (7, 2), (6, 3), (8, 1), (3, 3), (9, 4))
]
CHOICES = [
    {"question": "What is the capital of France?", "choices": ["Paris", "Rome"], "answer": "A"},
    {"question": "What is two plus two?", "choices": ["five", "four"], "answer": "B"},
    {"question": "Which is a colour?", "choices": ["red", "seven"], "answer": "A"},
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """The cells of this run; with all of them, docs/serving.md gets the table."""
    table = Table(tmp_path_factory.getbasetemp() / "servers.json")
    yield table
    print(f"\n{table.markdown()}")
    if os.environ.get("LABCTL_WRITE_TABLE"):
        write_into(PAGE, table)


@pytest.fixture(scope="module", params=list(KINDS))
def server(
    request: pytest.FixtureRequest, table: Table, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Each server in turn."""
    name: str = request.param
    table.put(name, "title", KINDS[name].shown)
    try:
        with running(name, tmp_path_factory.mktemp(name)) as server:
            table.put(name, "title", server.title)
            yield server
    except CannotRunHere as reason:
        table.put(name, "title", f"{KINDS[name].shown}: {reason}")
        pytest.skip(str(reason))


@dataclass
class Lab:
    """A lab of its own, in which labctl runs as a process."""

    folder: Path

    def labctl(self, *words: str, status: int | None = 0) -> str:
        """Return what it printed. ``status`` None: any."""
        ended = self.start(*words)
        out, said = ended.communicate(timeout=SECONDS)
        told = f"labctl {' '.join(words)}: {ended.returncode}\n{out}\n{said}"
        assert status is None or ended.returncode == status, told
        assert "Traceback" not in said, told
        return out if ended.returncode == 0 else out + said

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start it."""
        own = {**os.environ, "LABCTL_STATE": str(self.folder / "state")}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "labctl", *words], cwd=self.folder, env=own, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def loaded(self, server: Server, *words: str, status: int | None = None) -> str:
        """Load a server; return what was printed."""
        asked = ["load-test", "--url", server.address, "--json", "--prompt-tokens", "24"]
        if "--output-tokens" not in words:
            words += ("--output-tokens", str(TOKENS))
        return self.labctl(*asked, *words, status=status)

    def load(self, server: Server, *words: str) -> dict[str, Any]:
        """Load a server; return the JSON."""
        found: dict[str, Any] = json.loads(self.loaded(server, *words, status=0))
        return found

    def requests(self, run: str) -> list[dict[str, Any]]:
        """The requests of a load test, with its warm-up."""
        path = self.folder / "runs" / run / "requests.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def own(self, found: Mapping[str, Any]) -> Totals:
        """What the server counted during the one load of a test, as labctl read it."""
        path = self.folder / "runs" / found["run"]["id"] / "stages.jsonl"
        (stage,) = map(json.loads, path.read_text().splitlines())
        told = stage["server"]
        assert told["gap"] is None
        return Totals(
            requests=told["ttft_count"],
            ttft_s=told["ttft_sum_ns"] / 1e9,
            latency_s=told["latency_sum_ns"] / 1e9,
            generated=told["generated_tokens"],
        )

    def evaluate(self, server: Server, name: str, **keys: Any) -> dict[str, Any]:
        """Run an evaluation; return its JSON."""
        self.recipe(server, name, **keys)
        found: dict[str, Any] = json.loads(self.labctl("run", f"{name}.yaml", "--json"))
        return found

    def recipe(
        self,
        server: Server,
        name: str,
        *,
        api: str,
        prompt: Mapping[str, Any],
        questions: list[dict[str, Any]] = QUESTIONS,
        **keys: Any,
    ) -> None:
        (self.folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(q)}\n" for q in questions))
        written = {
            "name": name.replace("_", "-"),
            "dataset": {"file": f"{name}.jsonl"},
            "models": {"small": {"declared": {"name": "SmolLM2-135M-Instruct"}}},
            "endpoints": {"there": {"model": "small", "url": server.address, "api": api}},
            "prompts": {"plain": prompt},
            "graders": ["numeric"],
            **keys,
        }
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(written))

    def answers(self, run: str) -> list[dict[str, Any]]:
        """The answers of an evaluation as they are kept."""
        path = self.folder / "runs" / run / "generations.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    return Lab(tmp_path)


#: No usage in a stream, and no tokenizer: a load counts no pieces as tokens.
UNCOUNTED = "not counted, and said"


def tokens_of(rows: list[dict[str, Any]]) -> int | None:
    """Tokens of all answers; None: the server does not count them."""
    counts: list[int | None] = [one.get("completion_tokens") for one in rows]
    known = [one for one in counts if one is not None]
    return sum(known) if len(known) == len(counts) else None


def times(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """The means of TTFT and latency, in s, from the sending."""
    ttft = fmean(one["arrivals_ns"][0] - one["sent_ns"] for one in rows)
    return ttft / 1e9, fmean(one["done_ns"] - one["sent_ns"] for one in rows) / 1e9


def ms(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s"


@pytest.mark.parametrize("api", ["openai-chat", "openai-completions"])
def test_loads(server: Server, lab: Lab, table: Table, api: str) -> None:
    """Two streams: every count is exact, and times are those that the server counted."""
    row = api.removeprefix("openai-")
    before = server.totals()
    fixed = server.kind.obeys_ignore_eos
    asked = ["--api", api, "-c", "2", "-n", str(REQUESTS), "--warm-up", "0", *ends(server)]
    found = lab.load(server, *asked)
    total = server.totals()
    (stage,) = found["stages"]
    metrics = stage["metrics"]
    assert (metrics["completed"], metrics["failed"]) == (REQUESTS, 0)
    rows = lab.requests(found["run"]["id"])
    tokens = tokens_of(rows)
    ttft, latency = times(rows)
    told = f"{ms(ttft)}; {ms(latency)}; {tokens or UNCOUNTED}"
    assert tokens or any("did not count" in note for note in found["notes"])
    if total is not None:
        # Read by this test: the check request, one of the workload's, comes before the load.
        all_of_it = total.since(before)
        assert tokens
        assert all_of_it.requests == REQUESTS + 1
        assert all_of_it.generated == tokens + TOKENS
        # Read by labctl: the load alone.
        own = lab.own(found)
        assert (own.requests, own.generated) == (REQUESTS, tokens)
        told += f" / {ms(own.ttft)}; {ms(own.latency)}; {own.generated:.0f}"
        assert latency == pytest.approx(own.latency, rel=0.05, abs=0.03)
        if not server.kind.holds_text:
            assert ttft == pytest.approx(own.ttft, rel=0.1, abs=0.04)
    if fixed:
        assert tokens == REQUESTS * TOKENS
    table.put(server.kind.name, row, told)


def test_two_choices(server: Server, lab: Lab, table: Table) -> None:
    """The check sends what the loads send; the tokens of both choices count."""
    # vLLM gives several answers only if they can differ.
    words = ["-c", "1", "-n", "3", "--warm-up", "0", "--set", "workload.temperature=0.8"]
    words += ["--set", "workload.extra_body={n: 2}"]
    out = lab.loaded(server, *words)
    if '"run"' not in out:
        assert re.search(r"status 4\d\d", out), out
        table.put(server.kind.name, "choices", "refused, and said before the load")
        return
    found = json.loads(out)
    tokens = tokens_of(lab.requests(found["run"]["id"]))
    told = str(tokens or UNCOUNTED)
    if server.kind.has_metrics:
        own = lab.own(found)
        told += f" / {own.generated:.0f}"
        assert tokens == own.generated
    # The second answer is this test's own.
    assert not any("of others" in note or "for others" in note for note in found["notes"])
    notes = [note for note in found["notes"] if "TPOT" in note]
    table.put(server.kind.name, "choices", told + ("; TPOT unknown, and said" if notes else ""))


def test_fixed_lengths(server: Server, lab: Lab, table: Table) -> None:
    """Where a server obeys `ignore_eos`, all answers are as long as asked; else a note says so."""
    out = lab.loaded(server, "-c", "1", "-n", "4", "--ignore-eos", "--output-tokens", "40")
    if '"run"' not in out:
        assert "ignore_eos" in out, out
        table.put(server.kind.name, "fixed", "refused, and said before the load")
        return
    found = json.loads(out)
    (stage,) = found["stages"]
    lengths = stage["metrics"]["output_tokens"]
    if lengths is None:
        table.put(server.kind.name, "fixed", UNCOUNTED)
        return
    if lengths["low"] == lengths["high"] == 40:
        table.put(server.kind.name, "fixed", "all of 40")
        return
    assert any("ignore_eos" in note for note in found["notes"]) or lengths["mean"] > 39, found
    table.put(server.kind.name, "fixed", f"{lengths['low']:.0f} to 40; a note says so")


def test_a_stop_text_that_is_held_back(server: Server, lab: Lab, table: Table) -> None:
    """A server that holds back characters for a stop text has made its first token all the same."""
    prompt = "{layout: plain, stop: ['~~~~~~~~~~~~~~~~~~~~']}"
    words = ["--api", "openai-completions", "-c", "1", "-n", "6", "--warm-up", "0"]
    found = lab.load(server, *words, *ends(server), "--set", f"workload.prompt={prompt}")
    ttft, _ = times(lab.requests(found["run"]["id"]))
    told = ms(ttft)
    if server.kind.has_metrics:
        own = lab.own(found)
        told += f" / {ms(own.ttft)}"
        if server.kind.holds_text:  # and sends nothing for the token: nobody can see it
            assert ttft > own.ttft - 0.03
            told += "; sends nothing before"
        else:
            assert ttft == pytest.approx(own.ttft, rel=0.1, abs=0.04)
    table.put(server.kind.name, "held_back", told)


@pytest.fixture(scope="module")
def most(server: Server, tmp_path_factory: pytest.TempPathFactory) -> float:
    """The most requests a second that any number of streams got, in short answers."""
    folder = tmp_path_factory.mktemp("most")
    (folder / "devices.yaml").write_text("boards: {}\n")
    words = ["-c", "1,2,4", "-n", "16", *ends(server), *short(server)]
    found = Lab(folder).load(server, *words)
    return max(float(one["metrics"]["requests_per_second"]) for one in found["stages"])


#: For rates: answers of 6 tokens, so that 30 requests take half a minute.
SHORT = ("--output-tokens", "6")


def ends(server: Server) -> tuple[str, ...]:
    """Ask for answers of full length where the server knows how."""
    return ("--ignore-eos",) if server.kind.obeys_ignore_eos else ()


def short(server: Server) -> tuple[str, ...]:
    """The known server answers in its own length."""
    return ("--output-tokens", str(TOKENS)) if server.kind.name == "known" else SHORT


def test_rates(server: Server, lab: Lab, table: Table, most: float) -> None:
    """Half of what it can do is followed; the table says what was offered, and what came."""
    found = lab.load(server, "-r", f"{most / 2:.3f}", "-n", "40", *ends(server), *short(server))
    (stage,) = found["stages"]
    metrics = stage["metrics"]
    offered = metrics["offered_per_second"]
    answered = offered * metrics["departures"]
    table.put(server.kind.name, "rate", f"{offered:.2f}; {answered:.2f}")
    assert metrics["failed"] == 0
    # Poisson arrivals: four times their deviation.
    assert offered == pytest.approx(most / 2, rel=4 / 40**0.5)
    assert stage["follows"] is True, found["notes"]


def test_a_sweep(server: Server, lab: Lab, table: Table, most: float) -> None:
    """The knee is at most what closed loops reached, and of the known server its capacity."""
    found = lab.load(server, "--sweep", "-n", "40", *ends(server), *short(server))
    knee = found["knee"]["rate"]
    seen = max(stage["metrics"]["requests_per_second"] for stage in found["stages"])
    seen = max(seen, most)
    table.put(server.kind.name, "sweep", f"{knee:.2f}; {seen:.2f}")
    assert knee <= seen
    if server.kind.name == "known":
        assert 0.8 * KNOWN_CAPACITY < knee <= 1.01 * KNOWN_CAPACITY
    else:  # other work on this host takes its part
        assert knee > seen / 3


@pytest.mark.parametrize(
    "kind",
    [
        ("evaluation_chat", "openai-chat", "chat", [12]),
        ("evaluation_completions", "openai-completions", "plain", [4, 8, 16]),
    ],
)
def test_evaluations(server: Server, lab: Lab, table: Table, kind: tuple[Any, ...]) -> None:
    """Every question has its answer at each budget, and its tokens are the server's."""
    name, api, layout, budgets = kind
    before = server.totals()
    found = lab.evaluate(server, name, api=api, prompt={"layout": layout}, budgets=budgets)
    own = server.totals()
    answers = lab.answers(found["run"]["id"])
    asked = {(one["question"], one["max_tokens"]) for one in answers}
    assert len({question for question, _ in asked}) == len(QUESTIONS)
    assert all(one["failure"] is None for one in answers)
    assert all(0 < one["completion_tokens"] <= one["max_tokens"] for one in answers)
    tokens = sum(one["completion_tokens"] for one in answers)
    told = str(tokens)
    if own is not None:
        generated = own.since(before).generated
        told += f" / {generated:.0f}"
        assert tokens == generated
    table.put(server.kind.name, name, told)


def test_unlimited(server: Server, lab: Lab, table: Table) -> None:
    """Without a limit an answer ends by itself, or where the model's context does."""
    found = lab.evaluate(
        server,
        "unlimited",
        api="openai-chat",
        prompt={"layout": "chat"},
        budgets=["unlimited"],
        questions=QUESTIONS[:3],
    )
    answers = lab.answers(found["run"]["id"])
    ends = sorted({one["finish"] for one in answers})
    lengths = sorted(one["completion_tokens"] for one in answers)
    assert len(answers) == 3
    assert all(one["failure"] is None for one in answers)
    table.put(
        server.kind.name, "unlimited", f"{lengths[0]} to {lengths[-1]} tokens, {', '.join(ends)}"
    )


def test_choices_by_probability(server: Server, lab: Lab, table: Table) -> None:
    """The likeliest letter decides; a server that tells no probabilities is refused at once."""
    lab.recipe(
        server,
        "probability",
        api="openai-chat",
        prompt={"layout": "chat", "pattern": "letter_alone", "choose_by": "probability"},
        questions=CHOICES,
        graders=["choice"],
    )
    path = lab.folder / "probability.yaml"
    recipe = yaml.safe_load(path.read_text())
    recipe["dataset"]["format"] = "choice"
    path.write_text(yaml.safe_dump(recipe))
    out = lab.labctl("run", "probability.yaml", "--json", status=None)
    if "probabilit" in out and '"run"' not in out:
        table.put(server.kind.name, "probability", "refused before the first question")
        return
    found = json.loads(out[out.index("{") : out.rindex("}") + 1])
    answers = lab.answers(found["run"]["id"])
    told = [one["letter_logprobs"] for one in answers]
    assert len(answers) == len(CHOICES)
    assert all(told), answers
    assert all(value <= 0 for one in told for value in one.values())
    table.put(server.kind.name, "probability", f"{len(told)} of {len(CHOICES)} with both letters")


def test_killed_and_resumed(server: Server, lab: Lab, table: Table) -> None:
    """A server that dies in an evaluation loses no answer: started again, the rest is asked."""
    questions = [
        {"question": f"Name {number} animals.", "answer": str(number)} for number in range(2, 32)
    ]
    lab.recipe(
        server,
        "resumed",
        api="openai-chat",
        prompt={"layout": "chat"},
        questions=questions,
        budgets=[8],
        attempts=2,
    )
    running_labctl = lab.start("run", "resumed.yaml", "--json")
    done = threading.Event()

    def answered() -> int:
        kept = list(lab.folder.glob("runs/*/generations.jsonl"))
        return len(kept[0].read_bytes().splitlines()) if kept else 0

    until = time.monotonic() + SECONDS
    while answered() < 3 and running_labctl.poll() is None and time.monotonic() < until:
        done.wait(0.05)  # a file tells nobody that it has grown
    server.kill()
    out, said = running_labctl.communicate(timeout=SECONDS)
    kept = answered()
    assert 3 <= kept < len(questions), (out, said)
    assert running_labctl.returncode == 3, (out, said)
    assert "labctl resume" in said
    assert "Traceback" not in said
    server.start()
    (run,) = (path.parent.name for path in lab.folder.glob("runs/*/evaluation.json"))
    lab.labctl("resume", run)
    answers = [one for one in lab.answers(run) if one["failure"] is None]
    assert sorted(one["question"] for one in answers) == sorted(
        {one["question"] for one in answers}
    )
    assert len(answers) == len(questions)
    table.put(
        server.kind.name,
        "resume",
        f"{kept} kept, {len(questions) - kept} asked after it, none twice",
    )
