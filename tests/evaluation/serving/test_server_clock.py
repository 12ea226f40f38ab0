"""The server's own counters beside a load, against a server that counts what it really does."""

import asyncio
import csv
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from subprocess import PIPE
from typing import Any, cast

import httpx
import pytest
from scripted_answers import Answer, Asked
from scripted_endpoint import ScriptedEndpoint, scripted_endpoint
from scripted_endpoint import __file__ as scripted_endpoint_file
from scripted_metrics import Counters, Page
from simulated_servers import stage_of

from labctl.cli.root import run_cli
from labctl.errors import Blame
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.endpoints.monitor import ServerMonitor
from labctl.evaluation.endpoints.opening import open_monitor
from labctl.evaluation.endpoints.server_metrics import Snapshot
from labctl.evaluation.serving import server_clock
from labctl.evaluation.serving.second_clock import second_clock, sentences
from labctl.evaluation.serving.server_clock import Own, ServerClock
from labctl.records.serving import RequestRecord, ServerCounters, StageRecord
from labctl.records.trial import Failure

PACED = Answer([" word"] * 15, first_s=0.05, token_s=0.005)


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def counting(script: Any = PACED, **more: Any) -> Iterator[ScriptedEndpoint]:
    with scripted_endpoint({"": script}, **more) as server:
        server.metrics = lambda counters: Page(counters.page())
        yield server


def load(server: ScriptedEndpoint, *words: str) -> int:
    return run_cli(["load-test", "--url", server.address, "--output-tokens", "16", *words])


def result(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def looks(server: ScriptedEndpoint) -> int:
    return sum(request.path == "/metrics" for request in server.requests)


def own_means() -> dict[str, float]:
    """labctl's means over the answered requests of the one run, in ns from their real sending."""
    (path,) = Path("runs").glob("*/requests.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {
        "ttft": fmean(row["arrivals_ns"][0] - row["sent_ns"] for row in rows),
        "latency": fmean(row["done_ns"] - row["sent_ns"] for row in rows),
    }


def test_both_clocks_agree_over_the_same_requests(capsys: pytest.CaptureFixture[str]) -> None:
    with counting(slots=2) as server:
        server.counters.late_s = 0.1  # vLLM counts an answer after it has sent it
        assert load(server, "-c", "4", "-n", "40", "--json") == 0
        found = result(capsys)
    (stage,) = found["stages"]
    counters, clock = stage["server"], stage["second_clock"]
    assert counters["requests_sent"] == counters["requests_finished"] == 45
    assert counters["ttft_count"] == counters["latency_count"] == 45
    assert counters["generated_tokens"] == 45 * 16
    assert (counters["running_max"], counters["waiting_max"]) == (2, 2)
    assert counters["samples"] >= 1
    assert counters["cache_usage_max"] == 0.125
    assert counters["gap"] is None
    # The server's begins with the receipt, and its wait for a slot is in both.
    assert clock["own_ttft_ns"] == pytest.approx(own_means()["ttft"])
    assert clock["own_ttft_ns"] >= clock["ttft_ns"]  # by as much as a busy host is late
    assert clock["own_latency_ns"] == pytest.approx(own_means()["latency"])
    assert clock["own_latency_ns"] >= clock["latency_ns"]  # by as much as a busy host is late
    assert clock["other_requests"] == clock["other_tokens"] == 0
    (note,) = (note for note in found["notes"] if "own clock" in note)
    assert note.startswith("concurrency 4: by the server's own clock: TTFT ")
    assert note.endswith("up to 2 running, 2 waiting, cache 12% full")
    assert "(labctl " in note
    assert "of others" not in str(found["notes"])


def test_an_open_loop_is_compared_from_the_real_sending(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its other times begin at the intended sending, of which the server knows nothing."""
    with counting() as server:
        assert load(server, "-r", "20", "-n", "20", "--json") == 0
        (stage,) = result(capsys)["stages"]
    clock = stage["second_clock"]
    assert clock["own_ttft_ns"] == pytest.approx(own_means()["ttft"])
    assert clock["own_ttft_ns"] >= clock["ttft_ns"]  # by as much as a busy host is late


def test_what_lies_between_server_and_client_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """A server whose clock begins late, as behind a proxy that holds each request for 100 ms."""

    def sooner(counters: Counters) -> Page:
        seen = counters.ttft.seen
        counters.ttft.seen = [one - 0.1 for one in seen]
        try:
            return Page(counters.page())
        finally:
            counters.ttft.seen = seen

    with counting(Answer([" word"] * 15, first_s=0.2)) as server:
        server.metrics = sooner
        assert load(server, "-c", "1", "-n", "6") == 0
        shown = capsys.readouterr().out.replace("\n", " ")
    assert "of the TTFT lie between the server and labctl: network" in shown


@contextmanager
def other_client(server: ScriptedEndpoint, is_over: Callable[[], bool]) -> Iterator[list[int]]:
    """Ask the server beside the load test; yields the number of its answers."""
    answers: list[int] = []
    body = {"messages": [{"role": "user", "content": "other"}], "max_tokens": 16}
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set() and not is_over():
            httpx.post(f"{server.address}/v1/chat/completions", json=body).raise_for_status()
            answers.append(1)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        stop.set()
        thread.join()


def test_requests_of_others_are_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    with counting() as server:
        with other_client(server, lambda: False):
            assert load(server, "-c", "1", "-n", "10", "--json") == 0
        found = result(capsys)
    (stage,) = found["stages"]
    others = stage["second_clock"]["other_requests"]
    assert others >= 3
    assert stage["second_clock"]["own_ttft_ns"] is None  # another set of requests
    text = (
        f"concurrency 1: the server also answered {others} requests of others during this load:"
        " its figures are not of this load alone"
    )
    assert text in found["notes"]
    assert "lie between" not in str(found["notes"])


def test_own_failed_requests_are_not_taken_for_those_of_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The server counts an answer whose connection broke, and one that labctl refused."""

    def script(asked: Any) -> Answer:
        broken = asked.at_once and len(asked) % 3 == 0
        return Answer([" word"] * 15, usage=99 if broken else None, first_s=0.01)

    with scripted_endpoint(script) as server:
        server.metrics = lambda counters: Page(counters.page())
        load(server, "-c", "2", "-n", "30", "--json", "--set", "max_failed=1")
        found = result(capsys)
    (stage,) = found["stages"]
    assert stage["metrics"]["failed"] > 0
    assert stage["server"]["requests_finished"] == stage["server"]["requests_sent"]
    assert stage["second_clock"]["other_requests"] is None
    assert stage["second_clock"]["other_tokens"] is None
    assert "of others" not in str(found["notes"])


def test_others_are_unknown_where_a_request_of_this_test_had_no_answer() -> None:
    """The server may count it at its end, later, or never."""
    rows = [row(number) for number in range(5)]
    failed = row(6).model_copy(
        update={"failure": Failure(blame=Blame.INFRA, kind="TryAgain", message="timed out")}
    )
    for stage in (counted(sent=6, finished=9), counted(sent=5, finished=9, earlier=True)):
        found = second_clock(stage, [*rows, failed], extra_body={})
        assert found is not None
        assert found.other_requests is None
        assert found.other_tokens is None
    found = second_clock(counted(sent=5, finished=9), rows, extra_body={})
    assert found is not None
    assert found.other_requests == 4


@pytest.mark.parametrize("slow", [1, 4], ids=["the first request", "one of a load"])
def test_a_request_that_timed_out_and_is_counted_in_a_later_load_is_not_of_others(
    slow: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that does not notice that its client is gone goes on, and counts the answer."""

    def script(_asked: Asked) -> Answer:
        number = len(server.answered)
        if number == 8:  # of the second load
            server.counters.finished += 1
        return Answer([" word"] * 15, first_s=30 if number == slow else 0.01)

    with scripted_endpoint(script) as server:
        server.metrics = lambda counters: Page(counters.page())
        options = ("--set", "timeout=1s", "--set", "max_failed=1", "--warm-up", "0")
        load(server, "-c", "1,2", "-n", "4", *options, "--json")
        found = result(capsys)
    assert "of others" not in str(found["notes"])
    assert found["stages"][1]["server"]["may_count_earlier"] is True
    assert found["stages"][1]["second_clock"]["other_requests"] is None


class Looks:
    """A monitor whose looks are written here; ``seconds``: the limit of each."""

    def __init__(self, *snapshots: Snapshot | None):
        self.snapshots, self.seconds = list(snapshots), list[float]()

    async def metrics(self, seconds: float) -> Snapshot:
        self.seconds.append(seconds)
        found = self.snapshots.pop(0) if len(self.snapshots) > 1 else self.snapshots[0]
        if found is None:
            raise TryAgain("slow") from TimeoutError()
        return found


def clock_of(looks: Looks, until: float | None = None) -> ServerClock:
    return ServerClock(cast("ServerMonitor", looks), until)


def seen(requests: float, *, running: float = 0, **more: Any) -> Snapshot:
    return Snapshot({"running": running, "waiting": 0, "requests": requests}, **more)


async def stages(clock: ServerClock, *owns: Own) -> list[ServerCounters]:
    found = []
    await clock.open()
    for own in owns:
        stage = await clock.stage()
        if stage is not None:
            await stage.end(own)
            found.append(stage.counters(own))
    return found


GIVEN_UP, ALL = Own(6, 5, 5, 0), Own(5, 5, 5, 0)


def test_a_given_up_request_is_over_when_the_server_is_idle() -> None:
    """So others are known again in the next load: what is pending does not grow for ever."""
    at_work = [seen(0)] * 4 + [seen(5, running=1)] * 2 + [seen(11, running=1)] * 2 + [seen(16)]
    first, second, third = asyncio.run(stages(clock_of(Looks(*at_work)), GIVEN_UP, ALL, ALL))
    assert (first.may_count_earlier, second.may_count_earlier) == (False, True)
    assert third.may_count_earlier is True
    idle = [seen(0)] * 4 + [seen(5, running=1)] + [seen(6)] * 2 + [seen(11)]
    first, second = asyncio.run(stages(clock_of(Looks(*idle)), GIVEN_UP, ALL))
    assert (second.may_count_earlier, second.requests_finished) == (False, 5)


def test_answers_that_are_always_counted_late_are_never_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_clock, "_SETTLE_SECONDS", 0.01)
    monkeypatch.setattr(server_clock, "_SETTLE_PAUSE_SECONDS", 0.02)
    late = [seen(0)] * 4 + [seen(2), seen(2), seen(7), seen(7), seen(15)]
    first, second, third = asyncio.run(stages(clock_of(Looks(*late)), ALL, ALL, ALL))
    assert first.requests_finished == 2
    assert second.may_count_earlier is True
    assert third.may_count_earlier is True


@pytest.mark.parametrize(
    "other",
    [seen(3), seen(500, started=2.0), seen(9, started=1.0)],
    ids=["goes back", "another start", "earlier start"],
)
def test_two_processes_behind_one_address_have_no_second_clock(other: Snapshot) -> None:
    one = seen(100, started=None if other.started is None else 3.0)
    looks = Looks(one, one, one, one, other)
    (first,) = asyncio.run(stages(clock_of(looks), ALL, ALL))
    assert first.gap == "another-process"
    assert first.requests_finished is None
    assert len(looks.seconds) == 5
    found = second_clock(
        stage_of(None).model_copy(update={"server": first}), [row(1)], extra_body={}
    )
    assert found is not None
    (told,) = sentences(found, first, None)
    assert "several servers behind one address" in told


def test_servers_that_take_turns_are_found_before_the_first_load(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One of them has answered 500 requests before: they are not of others."""
    looked: list[int] = []

    def turns(counters: Counters) -> Page:
        looked.append(1)
        counters.finished += 500 * (len(looked) % 2)
        try:
            return Page(counters.page())
        finally:
            counters.finished -= 500 * (len(looked) % 2)

    with counting() as server:
        server.metrics = turns
        assert load(server, "-c", "1,2", "-n", "5", "--json") == 0
    found = result(capsys)
    assert "of others" not in str(found["notes"])
    assert [bool(stage["server"]) for stage in found["stages"]] == [True, False]
    (note,) = (note for note in found["notes"] if "own clock" in note)
    assert "several servers behind one address" in note


def test_rounded_counters_are_not_used_and_the_reason_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """llama-server writes six digits."""

    def page(counters: Counters) -> Page:
        total = 999_950 + counters.generated
        text = f"llamacpp:requests_processing 1\nllamacpp:tokens_predicted_total {total:.6g}\n"
        return Page(text.encode())

    with counting() as server:
        server.metrics = page
        assert load(server, "-c", "1", "-n", "10", "--json") == 0
    found = result(capsys)
    (stage,) = found["stages"]
    assert stage["server"]["gap"] == "rounded"
    assert stage["server"]["generated_tokens"] is None
    (note,) = (note for note in found["notes"] if "own clock" in note)
    assert "the server rounds them" in note
    assert "started again" not in note


def test_looks_between_loads_have_one_small_budget_and_a_slow_page_is_left_alone() -> None:
    looks = Looks(seen(0), seen(0), seen(0), seen(0), None)
    (first,) = asyncio.run(stages(clock_of(looks), ALL, ALL, ALL))
    assert first.gap == "slow"
    assert len(looks.seconds) == 5
    assert max(looks.seconds) <= 1


def test_no_look_is_made_when_max_time_is_over() -> None:
    async def run() -> list[ServerCounters]:
        clock = clock_of(looks, time.monotonic() + 0.2)
        await clock.open()
        stage = await clock.stage()
        assert stage is not None
        await asyncio.sleep(0.25)  # until max_time is over
        asked = len(looks.seconds)
        await stage.end(ALL)
        assert await clock.stage() is None
        assert len(looks.seconds) == asked
        return [stage.counters(ALL)]

    looks = Looks(seen(0))
    (found,) = asyncio.run(run())
    assert found.gap == "max-time"
    assert max(looks.seconds) <= 0.2


def test_a_mean_of_fewer_requests_is_not_shown() -> None:
    rows = [row(number) for number in range(5)]
    late = counters_of(sent=5, finished=2).model_copy(
        update={"ttft_sum_ns": 2000, "ttft_count": 2, "latency_sum_ns": 4000, "latency_count": 2}
    )
    stage = stage_of(None).model_copy(update={"server": late})
    found = second_clock(stage, rows, extra_body={})
    assert found is not None
    assert (found.ttft_ns, found.latency_ns) == (None, None)
    (told,) = sentences(found, late, None)
    assert told == ("by the server's own clock: no mean TTFT (it counted 2 answers, labctl has 5)")


def test_a_difference_below_the_lateness_of_the_client_is_not_said() -> None:
    rows = [row(number, ms=100) for number in range(2)]
    counters = counters_of(sent=2, finished=2).model_copy(
        update={"ttft_sum_ns": 160_000_000, "ttft_count": 2}
    )
    stage = stage_of(None).model_copy(update={"server": counters})
    found = second_clock(stage, rows, extra_body={})
    assert found is not None
    for lag_ns, is_said in ((None, True), (1_000_000, True), (30_000_000, False)):
        told = " ".join(sentences(found, counters, lag_ns))
        assert ("lie between" in told) is is_said


def test_a_request_for_several_answers_counts_as_several_in_the_server() -> None:
    stage = counted(sent=5, finished=10)
    rows = [row(number) for number in range(5)]
    found = second_clock(stage, rows, extra_body={"n": 2})
    assert found is not None
    assert found.other_requests == 0


def test_a_server_may_count_the_common_prefix_of_several_answers_too() -> None:
    """SGLang caches it by a request of its own, ``TokenizerManager._handle_batch_request``."""
    rows = [row(number) for number in range(5)]
    found = second_clock(counted(sent=5, finished=15), rows, extra_body={"n": 2})
    assert found is not None
    assert found.other_requests == 0


def test_all_answers_to_a_request_are_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise the next load gets the rest, and its means are compared with other requests'."""
    with counting() as server:
        server.counters.late_s = 0.3
        several = "workload.extra_body={n: 2}"
        assert load(server, "-c", "1,2", "-n", "5", "--json", "--set", several) == 0
    stages = result(capsys)["stages"]
    assert [stage["server"]["requests_finished"] for stage in stages] == [20, 20]
    assert [stage["second_clock"]["own_ttft_ns"] for stage in stages] == [None, None]


def counters_of(*, sent: int, finished: int, earlier: bool = False) -> ServerCounters:
    return ServerCounters(
        gap=None,
        samples=0,
        requests_sent=sent,
        requests_finished=finished,
        may_count_earlier=earlier,
    )


def counted(*, sent: int, finished: int, earlier: bool = False) -> StageRecord:
    counters = counters_of(sent=sent, finished=finished, earlier=earlier)
    return stage_of(None).model_copy(update={"server": counters})


def row(number: int, ms: int = 0) -> RequestRecord:
    first_ns = ms * 1_000_000 + 5
    return RequestRecord(
        stage=1, number=number, sent_ns=0, arrivals_ns=(first_ns,), done_ns=first_ns + 4
    )


def test_the_recipe_may_forbid_it(capsys: pytest.CaptureFixture[str]) -> None:
    with counting() as server:
        assert load(server, "-c", "1", "-n", "5", "--set", "server_metrics=false", "--json") == 0
        assert looks(server) == 0
    assert result(capsys)["stages"][0]["server"] is None


@pytest.mark.parametrize(
    "page",
    [
        Page(b"File not found", status=404),
        Page(b"", status=501),
        Page(b"<html>a login page</html>"),
        Page(b'{"requests": 7}'),
        Page(b"vllm:num_requests_running{\n"),
        Page(b"# nothing known\n" * 1000, endless=True),
        Page(b"vllm:num_requests_running 1\n" * 1000, endless=True),
        Page(b"vllm:num_requests_running 1\n" * 100_000),
        Page(b"vllm:num_requests_running 1\n", wait_s=10),
    ],
    ids=["404", "501", "html", "json", "garbage", "endless", "endless-known", "long", "slow"],
)
def test_a_server_without_counters_is_asked_once_and_measured_as_ever(
    page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    with counting() as server:
        server.metrics = lambda _counters: page
        began = time.monotonic()
        assert load(server, "-c", "1,2", "-n", "5", "--json") == 0
        assert time.monotonic() - began < 9
        assert looks(server) <= 2
    found = result(capsys)
    assert [stage["server"] for stage in found["stages"]] == [None, None]
    assert "own clock" not in str(found["notes"])


def test_no_escape_of_a_page_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with counting() as server:
        server.metrics = lambda counters: Page(
            counters.page().replace(b'"scripted"', b'"\x1b]0;owned\x07\\n\xff"')
            + b'vllm:num_requests_running{engine="\x1b[2J"} NaN\n'
        )
        assert load(server, "-c", "1", "-n", "12") == 0
        shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "owned" not in shown
    assert "by the server's own clock" in shown


def after(seconds: float, then: Callable[[Counters], Page]) -> Callable[[Counters], Page]:
    """A page that changes so long after its first answer was counted."""
    begin: list[float] = []

    def page(counters: Counters) -> Page:
        if counters.finished > 3 and not begin:
            begin.append(time.monotonic())
        if begin and time.monotonic() - begin[0] > seconds:
            return then(counters)
        return Page(counters.page())

    return page


@pytest.mark.parametrize("status", [404, 500])
def test_a_page_that_vanishes_leaves_what_was_seen(
    status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with counting() as server:
        server.metrics = after(0.5, lambda _counters: Page(b"", status=status))
        assert load(server, "-c", "1,2", "-n", "20", "--json") == 0
    found = result(capsys)
    first, second = (stage["server"] for stage in found["stages"])
    assert first["gap"] == "look-failed"
    assert first["samples"] >= 1
    assert first["running_max"] == 1
    assert first["requests_finished"] is None
    assert second is None
    (note,) = (note for note in found["notes"] if "own clock" in note)
    assert "partial" in note


def test_counters_that_start_again_give_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    restarted: list[bool] = []

    def again(counters: Counters) -> Page:
        if not restarted:
            restarted.append(True)
            counters.restart()
        return Page(counters.page())

    with counting() as server:
        server.metrics = after(0.5, again)
        # Twice as many as before the restart: the last counts are above the first again.
        assert load(server, "-c", "1", "-n", "25", "--json") == 0
    (stage,) = result(capsys)["stages"]
    assert restarted
    assert stage["server"]["requests_finished"] is None
    assert stage["server"]["ttft_sum_ns"] is None
    assert stage["server"]["gap"] == "another-process"
    assert stage["second_clock"]["other_requests"] is None


def test_a_slow_page_in_the_middle_delays_no_request(capsys: pytest.CaptureFixture[str]) -> None:
    with counting() as server:
        server.metrics = after(0.2, lambda counters: Page(counters.page(), wait_s=10))
        began = time.monotonic()
        assert load(server, "-r", "20", "-n", "60", "--json") == 0
        took = time.monotonic() - began
        most = max(
            sum(
                one.path == "/metrics" and one.arrived_ns <= at.arrived_ns
                for one in server.requests
            )
            - sum(
                one.path == "/metrics" and (one.done_ns or 0) <= at.arrived_ns
                for one in server.requests
            )
            for at in server.requests
        )
    assert took < 15
    assert most <= 12
    (stage,) = result(capsys)["stages"]
    assert stage["metrics"]["failed"] == 0
    assert stage["metrics"]["latency_ns"]["p50"] < 0.3e9


def test_a_big_page_does_not_make_the_client_late() -> None:
    """20,000 lines, ten times vLLM's, from a process of its own.

    Only this thread's work is measured, since other work on the machine delays any program.
    """
    turns: list[float] = []

    async def count() -> None:
        while True:
            turns.append(time.thread_time())
            await asyncio.sleep(0)

    async def look(address: str) -> list[Snapshot]:
        monitor = open_monitor(address=address)
        await monitor.metrics()  # the libraries are loaded
        task = asyncio.create_task(count())
        try:
            return [await monitor.metrics() for _ in range(5)]
        finally:
            task.cancel()
            await monitor.aclose()

    program = [sys.executable, scripted_endpoint_file, "16", "0.1", "0.02", "20000"]
    with subprocess.Popen(program, stdin=PIPE, stdout=PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        found = asyncio.run(look(server.stdout.readline().strip()))
        server.stdin.close()
    assert [one.figures["requests"] for one in found] == [0] * 5
    assert max(after - before for before, after in pairwise(turns)) < 0.005


def test_cached_tokens_come_from_the_counters_if_no_answer_has_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with counting() as server:
        finish = server.counters.end

        def cached(
            arrived_ns: int, first_ns: int, prompt: int, generated: int, *, answers: int = 1
        ) -> None:
            finish(arrived_ns, first_ns, prompt, generated, answers=answers)
            server.counters.cached += prompt // 2

        server.counters.end = cached  # type: ignore[method-assign]
        assert load(server, "-c", "1", "-n", "5", "--json") == 0
    found = result(capsys)
    assert found["stages"][0]["metrics"]["cached_share"] is None
    assert found["stages"][0]["second_clock"]["cached_share"] == pytest.approx(0.5, abs=0.02)
    (note,) = (note for note in found["notes"] if "cache, by its" in note)
    assert "50%" in note or "49%" in note


def test_a_csv_file_has_both_clocks(lab: Path) -> None:
    with counting() as server:
        assert load(server, "-c", "1", "-n", "5", "-o", "out.csv") == 0
    (row,) = csv.DictReader((lab / "out.csv").read_text().splitlines())
    assert row["server_requests_finished"] == "10"
    assert float(row["own_ttft_mean_ns"]) == pytest.approx(own_means()["ttft"])
    assert float(row["own_ttft_mean_ns"]) >= float(row["server_ttft_mean_ns"])


def test_a_key_is_sent_to_this_server_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "secret-key-of-the-server")
    with counting() as server:
        server.key = "secret-key-of-the-server"
        assert load(server, "-c", "1", "-n", "5", "--key-env", "KEY") == 0
        page = next(one for one in server.requests if one.path == "/metrics")
    assert page.headers["authorization"] == "Bearer secret-key-of-the-server"
