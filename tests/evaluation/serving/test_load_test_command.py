"""``labctl load-test`` against a real HTTP server whose answers and times are written here."""

import asyncio
import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_answers import Answer, Asked
from scripted_endpoint import ScriptedEndpoint, scripted_endpoint
from scripted_metrics import Page

from labctl import package_data
from labctl.cli.root import run_cli
from labctl.evaluation.endpoints import monitor
from labctl.retry import wait_until

QUICK = Answer([" word"] * 15, first_s=0.02, token_s=0.002)
DEAD = Answer(status=500, message="EngineCore died")


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(server: ScriptedEndpoint, *words: str) -> int:
    return run_cli(["load-test", "--url", server.address, *words])


def only_run(lab: Path) -> Path:
    (found,) = (lab / "runs").glob("*/serving.json")
    return found.parent


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_loads_are_measured_shown_and_kept(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with scripted_endpoint({"": QUICK}) as server:
        status = load(server, "-c", "1,3", "-r", "20", "-n", "9", "--output-tokens", "16")
        shown = capsys.readouterr().out
        asked = [request.body for request in server.answered]
    assert status == 0
    assert all(text in shown for text in ("1 stream ", "3 streams", "20.0/s", "9/9", "p99*"))
    assert "as declared" in shown
    # One look, then 5 and 9, 5 and 9, 5 and 9 requests, each with a text of its own.
    assert [body["max_tokens"] for body in asked] == [16] * 43
    assert len({json.dumps(body["messages"]) for body in asked}) == 43
    run = only_run(lab)
    record = json.loads((run / "serving.json").read_text())
    assert record["endpoint"]["sha256_proven"] is False
    assert record["workload"]["prompt_tokens"] == {"low": 128, "high": 128}
    stages, rows = lines(run / "stages.jsonl"), lines(run / "requests.jsonl")
    assert [one["name"] for one in stages] == ["concurrency 1", "concurrency 3", "rate 20"]
    assert len(rows) == 42
    for row in rows:
        assert row["failure"] is None
        assert row["completion_tokens"] == 16
        assert row["counted_by"] == "usage"
        times = [row["sent_ns"], *row["arrivals_ns"], row["done_ns"]]
        assert times == sorted(times)
        assert row["arrivals_ns"][0] - row["sent_ns"] >= 20e6
    assert json.loads((run / "end.json").read_text())["state"] == "finished"


def test_json_and_csv_have_the_figures(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with scripted_endpoint({"": QUICK}) as server:
        words = ("-c", "2", "-n", "8", "--output-tokens", "16", "--ttft", "5s")
        assert load(server, *words, "--json") == 0
        document = json.loads(capsys.readouterr().out)
        assert load(server, *words, "-o", "figures.csv") == 0
        capsys.readouterr()
        assert load(server, *words, "-o", "page.html") == 0
    assert "loads measured: 1" in capsys.readouterr().out
    assert "2 streams" in (lab / "page.html").read_text()
    (stage,) = document["stages"]
    metrics = stage["metrics"]
    assert (metrics["completed"], metrics["good"], metrics["good_share"]) == (8, 8, 1.0)
    assert metrics["ttft_ns"]["low"] >= 20e6
    assert metrics["tpot_ns"]["p50"] >= 1e6
    (row,) = csv.DictReader((lab / "figures.csv").read_text().splitlines())
    assert (row["name"], row["completed"], row["goodput"] != "") == ("concurrency 2", "8", True)


def test_a_missed_gate_is_status_1(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lab / "load.yaml").write_text(
        "name: gated\nmodels: {m: {declared: {name: Tiny}}}\n"
        "endpoint: {model: m, url: 'http://localhost:1', api: openai-chat}\n"
        "concurrency: [1]\nrequests: 5\nworkload: {output_tokens: 16}\n"
        "gates:\n- {metric: ttft_p99_ms, max: 1}\n- {metric: requests_per_second, min: 0.01}\n"
    )
    with scripted_endpoint({"": QUICK}) as server:
        status = run_cli(["run", "load.yaml", "--set", f"endpoint.url={server.address}"])
    shown = capsys.readouterr().out
    assert status == 1
    assert "gate MISSED: concurrency 1 ttft_p99_ms <= 1: " in shown
    assert "gate kept: concurrency 1 requests_per_second >= 0.01" in shown
    assert "Tiny, as declared" in shown


def test_a_load_that_was_cut_off_keeps_no_gate(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nine of ten requests had no answer: the one that had says nothing of them."""
    (lab / "load.yaml").write_text(
        "name: gated\nmodels: {m: {declared: {name: Tiny}}}\n"
        "endpoint: {model: m, url: 'http://localhost:1', api: openai-chat}\n"
        "concurrency: [10]\nrequests: 10\nwarm_up: 10\nlimits: {latency: 1h}\nmax_time: 2s\n"
        "gates:\n- {metric: failed_share, max: 0.5}\n- {metric: good_share, min: 0.5}\n"
    )

    def script(_asked: Asked) -> Answer:
        # After the look and the warm-up, one is answered.
        return QUICK if len(server.answered) <= 12 else Answer([" word"] * 63, token_s=0.3)

    with scripted_endpoint(script) as server:
        status = run_cli(["run", "load.yaml", "--set", f"endpoint.url={server.address}"])
        # until it notices that nobody listens
        assert wait_until(lambda: not server.at_once, timeout=60, interval=0.01)
    shown = capsys.readouterr().out
    assert status == 1
    assert shown.count("gate MISSED: ") == 2
    assert "gate MISSED: concurrency 10 failed_share <= 0.5: 0, and the load was cut off" in shown
    # A busy host adds that the client was late.
    missed = r"gate MISSED: concurrency 10 good_share >= 0.5: 0.1, .*the load was cut off"
    assert re.search(missed, shown)


def test_questions_of_a_file_are_asked_in_their_order(lab: Path) -> None:
    questions = [{"question": f"{n} + {n}?", "answer": str(2 * n)} for n in range(3)]
    (lab / "sums.jsonl").write_text("".join(json.dumps(one) + "\n" for one in questions))
    with scripted_endpoint({"": QUICK}) as server:
        words = ("--dataset", "sums.jsonl", "-c", "1", "-n", "5", "--warm-up", "0")
        assert load(server, *words) == 0
        asked = [request.text for request in server.answered]
    assert asked[1:] == ["0 + 0?", "1 + 1?", "2 + 2?", "0 + 0?", "1 + 1?"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-c", "1,1"], "--concurrency: concurrency[1]: this load is given twice"),
        (["-c", "0"], "--concurrency: concurrency[0]: must be at least 1, not 0"),
        ([], "give the loads: concurrency: [1, 2, 4], rates: [0.5, 1], or sweep: true"),
        (["-c", "1", "--ttft", "2"], "--ttft: limits.ttft: must be a duration such as 90s"),
        (["-c", "one"], "'one' is not a list of numbers such as 1,2,4"),
        (["-c", "1", "--prompt-tokens", "9-3"], "min 9 is above max 3"),
        (
            ["-c", "1", "-o", "x.jsonl"],
            "a load test is printed as a table, as csv, as json or for CI servers",
        ),
    ],
)
def test_wrong_use_is_one_error_and_leaves_nothing(
    lab: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["load-test", "--url", "http://127.0.0.1:9", *words]) == 2
    assert told in capsys.readouterr().err
    assert not (lab / "runs").exists()


def test_a_server_that_is_not_there_is_status_3_and_leaves_nothing(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with scripted_endpoint({"": QUICK}) as server:
        address = server.address
    assert run_cli(["load-test", "--url", address, "-c", "1", "--set", "ready_within=1s"]) == 3
    assert address in capsys.readouterr().err
    assert not (lab / "runs").exists()


def test_a_server_that_is_busy_at_first_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    def script(_asked: Asked) -> Answer:
        if len(server.answered) == 1:
            return Answer(status=429, headers={"Retry-After": "1"})
        return Answer(status=503) if len(server.answered) == 2 else QUICK

    with scripted_endpoint(script) as server:
        assert load(server, "-c", "1", "-n", "3", "--warm-up", "0") == 0
    out, err = capsys.readouterr()
    assert "3/3" in out
    assert err.count("waiting for the server, at most 60 s (ready_within)") == 1


def test_a_server_that_says_it_is_not_healthy_yet_is_waited_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """llama-server while it loads, and others that list their models before they can answer."""

    def script(_asked: Asked) -> Answer:
        if len(server.answered) < 3:
            return Answer(status=503, message="loading")
        server.health = 200
        return QUICK

    with scripted_endpoint(script) as server:
        server.health = 503
        status = load(server, "-c", "1", "-n", "3", "--warm-up", "0")
        asked = [request.path for request in server.requests]
    assert status == 0
    assert asked.count("/health") >= 3
    err = capsys.readouterr().err
    assert err.count("waiting for the server") == 1
    assert "/health: status 503" in err
    assert "although" not in err


def test_a_server_that_stays_unhealthy_is_refused_with_its_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """VLLM whose engine is dead: it lists its models, and answers no request."""
    with scripted_endpoint({"": DEAD}) as server:
        server.health = 503
        assert load(server, "-c", "1", "--set", "ready_within=1s") == 3
    err = capsys.readouterr().err
    assert "status 500: EngineCore died" in err
    assert "/health: status 503" in err


def test_a_server_that_answers_is_loaded_whatever_its_health_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A gateway in front of it answers 503 for each path that it does not know."""
    with scripted_endpoint({"": QUICK}) as server:
        server.health = Page(b"\x1b[2Jno such route", 503)
        assert load(server, "-c", "1", "-n", "3", "--set", "ready_within=1s") == 0
    out, err = capsys.readouterr()
    assert "3/3" in out
    assert "waiting for the server" not in err
    assert "note: the server answers, although it says http://" in err
    assert "/health: status 503: \\x1b[2Jno such route" in err


def test_such_a_health_does_not_end_a_load_whose_requests_fail(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def script(_asked: Asked) -> Answer:
        return Answer(status=500, message="no") if 3 < len(server.answered) < 12 else QUICK

    with scripted_endpoint(script) as server:
        server.health = 503
        assert load(server, "-c", "1", "-n", "16", "--json") == 1
    (stage,) = json.loads(capsys.readouterr().out)["stages"]
    assert (stage["stop"], stage["metrics"]["completed"]) == ("done", 11)


@pytest.mark.parametrize("script", [QUICK, DEAD], ids=["answers", "dead"])
def test_a_health_that_hangs_adds_no_time(script: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked beside each request, and no longer waited for once it has hung."""
    monkeypatch.setattr(monitor, "LOOK_SECONDS", 3600.0)
    waited: list[float] = []
    wait = asyncio.wait

    async def noted(tasks: Any, *, timeout: float) -> Any:
        waited.append(timeout)
        return await wait(tasks, timeout=timeout)

    monkeypatch.setattr(monitor.asyncio, "wait", noted)
    with scripted_endpoint({"": script}) as server:
        server.health = Page(b"", 503, wait_s=3600)
        status = load(server, "-c", "1", "-n", "3", "--set", "ready_within=2s")
    assert status == (0 if script is QUICK else 3)
    assert len(waited) >= 2
    assert sum(waited) < 1


@pytest.mark.parametrize(
    "page",
    [
        Page(b"loading", 503, breaks_off=True),
        Page(b"loading", 503, endless=True, pause_s=0.1),
        Page(b"loading" * 1000, 503, endless=True),
    ],
    ids=["broken-off", "trickling", "endless"],
)
def test_a_503_counts_also_if_its_text_does_not_come(
    page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    with scripted_endpoint({"": DEAD}) as server:
        server.health = page
        assert load(server, "-c", "1", "--set", "ready_within=1s") == 3
    assert "/health: status 503" in capsys.readouterr().err


def test_no_escape_of_a_health_page_reaches_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with scripted_endpoint({"": DEAD}) as server:
        server.health = Page(b"\x1b]0;owned\x07[bold]not[/] yet", 503)
        assert load(server, "-c", "1", "--set", "ready_within=1s") == 3
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "[bold]not[/] yet" in err


@pytest.mark.parametrize("status", [200, 401, 404, 418, 500])
def test_any_other_health_means_nothing(status: int) -> None:
    with scripted_endpoint({"": QUICK}) as server:
        server.health = status
        assert load(server, "-c", "1", "-n", "3", "--warm-up", "0") == 0


def test_a_dead_engine_behind_a_live_api_ends_the_load(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without ``/health``, all 10,000 requests would fail: vLLM goes on to list its models."""

    def script(_asked: Asked) -> Answer:
        if len(server.answered) < 10:
            return QUICK
        server.health = 503
        return Answer(status=500, message="EngineCore encountered an issue")

    with scripted_endpoint(script) as server:
        server.health = 200
        assert load(server, "-c", "1", "-n", "10000", "--json") == 3
        assert len(server.answered) < 40
    out, err = capsys.readouterr()
    (stage,) = json.loads(out)["stages"]
    assert stage["stop"] == "server-lost"
    message = json.loads(err.splitlines()[-1])["message"]
    assert "the server is gone: 5 requests in a row failed, and then: " in message
    assert "/health: status 503" in message


def test_the_first_request_is_one_of_the_workload(lab: Path) -> None:
    (lab / "load.yaml").write_text(
        "name: own\nmodels: {m: {declared: {name: Tiny}}}\n"
        "endpoint: {model: m, url: 'http://localhost:1', api: openai-chat}\n"
        "concurrency: [1]\nrequests: 2\nwarm_up: 0\n"
        "workload: {output_tokens: 16, temperature: 0.7, extra_body: {n: 1, min_tokens: 16}}\n"
    )
    with scripted_endpoint({"": QUICK}) as server:
        assert run_cli(["run", "load.yaml", "--set", f"endpoint.url={server.address}"]) == 0
        asked = [request.body for request in server.answered]
    kept = ("max_tokens", "temperature", "n", "min_tokens")
    assert [[body[key] for key in kept] for body in asked] == [[16, 0.7, 1, 16]] * 3


def test_failures_are_counted_and_told(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    served = 0

    def script(asked: Asked) -> Answer:
        nonlocal served
        served += 1
        # The first one is the look before the loads.
        return Answer(status=500, message="no memory") if served % 3 == 0 else QUICK

    with scripted_endpoint(script) as server:
        status = load(server, "-r", "40", "-n", "12", "--warm-up", "0", "--latency", "9s", "--json")
    found = json.loads(capsys.readouterr().out)
    metrics = found["stages"][0]["metrics"]
    assert status == 1
    assert (metrics["completed"], metrics["failed"], metrics["good"]) == (8, 4, 8)
    assert any("4 failed" in note and "no memory" in note for note in found["notes"])
    (gate,) = found["gates"]
    assert (gate["metric"], gate["limit"], gate["passed"]) == ("failed_share", "<= 0.01", False)
    assert run_cli(["runs", "--json"]) == 0
    assert [one["verdict"] for one in json.loads(capsys.readouterr().out)] == ["failed"]


def test_a_recipe_may_allow_failed_requests(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lab / "load.yaml").write_text(
        "name: some\nmodels: {m: {declared: {name: Tiny}}}\n"
        "endpoint: {model: m, url: 'http://localhost:1', api: openai-chat}\n"
        "concurrency: [1]\nrequests: 4\nwarm_up: 0\nmax_failed: 0.25\n"
    )

    def script(_asked: Asked) -> Answer:
        broken = len(server.answered) == 3
        return Answer(status=500, message="no memory") if broken else QUICK

    with scripted_endpoint(script) as server:
        assert run_cli(["run", "load.yaml", "--set", f"endpoint.url={server.address}"]) == 0
    assert "3/4" in capsys.readouterr().out


def test_answers_that_come_all_at_once_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """As of a server that ignores `stream`, or through a proxy that holds the text back."""
    told = []
    for text, tokens in ((" one two three four", 5), (" one", 2)):
        answer = Answer([text], first_s=0.01, usage=tokens)
        with scripted_endpoint({"": answer}) as server:
            assert load(server, "-c", "1", "-n", "5", "--output-tokens", "16", "--json") == 0
        notes = json.loads(capsys.readouterr().out)["notes"]
        told.append(any("TTFT is their latency" in note for note in notes))
    assert told == [True, False]  # a word and its end are no sign of it


def test_tokens_without_text_are_pieces_where_the_server_counts_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    euro = [b"\xe2", b"\x82", b"\xac"]  # a code point of three tokens: one piece of text
    answer = Answer(euro * 5, first_s=0.01, token_s=0.004)
    with scripted_endpoint({"": answer}) as server:
        assert load(server, "-c", "1", "-n", "5", "--output-tokens", "16", "--json") == 0
        asked = server.answered[-1].body["stream_options"]
    metrics = json.loads(capsys.readouterr().out)["stages"][0]["metrics"]
    assert asked["continuous_usage_stats"] is True
    assert (metrics["tokens_per_piece"], metrics["tpot_unknown"]) == (1, 0)
    assert metrics["itl_ns"]["count"] == 5 * 15


@pytest.mark.parametrize("unknown", [0, 1, 3])
def test_a_first_piece_of_unknown_size_keeps_no_limit(
    unknown: int, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten tokens come at once, and ten more of 20 ms each: by all tokens that is 10 ms a token."""
    (lab / "load.yaml").write_text(
        "name: gated\nmodels: {m: {declared: {name: Tiny}}}\n"
        "endpoint: {model: m, url: 'http://localhost:1', api: openai-chat}\n"
        "concurrency: [1]\nrequests: 3\nwarm_up: 1\nworkload: {output_tokens: 64}\n"
        "limits: {tpot: 15ms}\ngates:\n- {metric: tpot_p50_ms, max: 15}\n"
        "- {metric: tpot_p99_ms, max: 10000}\n"
    )
    end = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 20}}
    finished = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}

    def script(asked: Asked) -> Answer:
        if asked.body["max_tokens"] == 1:
            return QUICK
        is_told = len(server.answered) <= 5 - unknown  # after a check, a warm-up and two answers
        stream = [
            paced(0.02 * n, " word" * (10 if n == 0 else 1), 10 + n if is_told else None)
            for n in range(11)
        ]
        if is_told:  # the reason of the end is missing in the others
            stream.append((0.2, finished))
        return Answer(stream=[*stream, (0.2, end), (0.2, b"data: [DONE]\n\n")])

    with scripted_endpoint(script) as server:
        status = run_cli(["run", "load.yaml", "--set", f"endpoint.url={server.address}", "--json"])
    found = json.loads(capsys.readouterr().out)
    metrics, gates = found["stages"][0]["metrics"], found["gates"]
    assert (status, metrics["good"]) == (1, 0)
    assert gates[0]["passed"] is False
    # A busy host may add that the client was late.
    said = {0: "", 1: "1 answer without it", 3: "no result"}[unknown]
    assert all(said in gate["detail"] for gate in gates)
    assert not unknown or gates[1]["passed"] is False
    assert metrics["tpot_unknown"] == metrics["unknown_ends"] == unknown
    notes = "\n".join(found["notes"])
    assert (f"TPOT of {unknown} of 3 answers is unknown" in notes) is bool(unknown)
    assert ("did not say why" in notes) is bool(unknown)
    if unknown < 3:
        assert metrics["tpot_ns"]["p50"] >= 19e6


def paced(at: float, text: str, count: int | None) -> tuple[float, Any]:
    """Return an event of a chat, with the number of tokens so far if it is told."""
    event: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": text}}]}
    if count is not None:
        event["usage"] = {"prompt_tokens": 5, "completion_tokens": count}
    return at, event


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_and_shows_what_was_measured(lab: Path, number: int) -> None:
    """As Ctrl-C in a terminal does: status 130, a table of what there is."""
    with scripted_endpoint({"": QUICK}) as server:
        command = [sys.executable, "-m", "labctl", "load-test", "--url", server.address]
        program = subprocess.Popen(
            [*command, "-c", "1", "-n", "10000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"NO_COLOR": "1"},
            text=True,
        )
        wait_until(lambda: len(server.answered) >= 12, timeout=60, interval=0.02)
        program.send_signal(number)
        out, err = program.communicate(timeout=60)
    assert program.returncode == 130, err
    assert "Traceback" not in err
    assert "1 stream" in out
    assert "interrupted" in out
    run = only_run(lab)
    assert lines(run / "stages.jsonl")[0]["stop"] == "interrupted"
    assert len(lines(run / "requests.jsonl")) >= 10
    assert json.loads((run / "end.json").read_text())["state"] == "interrupted"


def test_a_load_test_is_a_run_like_others(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with scripted_endpoint({"": QUICK}) as server:
        assert load(server, "-c", "1", "-n", "5", "--output-tokens", "16") == 0
    measured = capsys.readouterr().out
    run = only_run(lab).name

    def told(*words: str) -> tuple[int, str, str]:
        status = run_cli(list(words))
        out, err = capsys.readouterr()
        return status, out, err

    # The same table, computed again from the files.
    status, out, _ = told("report", run)
    assert (status, out) == (0, measured.partition("run directory:")[0])
    status, out, _ = told("report", "latest", "--json")
    assert json.loads(out)["stages"][0]["metrics"]["completed"] == 5
    assert told("report", run, "-o", "again.csv")[0] == 0
    status, out, _ = told("export", run)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert status == 0
    assert [row["warm_up"] for row in rows].count("False") == 5
    assert {(row["run"], row["load"], row["failure"]) for row in rows} == {
        (run, "concurrency 1", "")
    }
    assert all(int(row["ttft_ns"]) <= int(row["latency_ns"]) for row in rows)
    assert told("export", run, "-o", "loads")[0] == 0
    assert "concurrency 1" in (lab / "loads/loads.csv").read_text()
    assert (lab / "loads/requests.csv").read_text().splitlines() == out.splitlines()
    status, _, err = told("export")
    assert (status, f"left out, they have no trials; name one to export it: {run}" in err) == (
        0,
        True,
    )
    assert told("export", run, "--format", "lm-eval")[0] == 2
    assert "concurrency 1" in (lab / "again.csv").read_text()
    status, out, _ = told("runs")
    assert (status, "LOAD TEST" in out, run[-6:] in out) == (0, True, True)
    status, out, _ = told("runs", "--kind", "load-test", "--json")
    assert [one["id"] for one in json.loads(out)] == [run]
    status, out, _ = told("show", run)
    assert "endpoint.api: openai-chat" in out
    assert told("runs", "tag", run, "first")[0] == 0
    status, _, err = told("resume", run)
    assert (status, "cannot be resumed" in err) == (2, True)
    assert told("watch", run)[0] == 0
    events = (lab / "runs" / run / "events.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["event"] for line in events]
    assert (kinds[0], kinds[-1]) == ("load-test", "end")
    status, _, err = told("compare", run, run)
    assert (status, "is a load test" in err) == (2, True)


def test_the_plan_of_a_load_test_shows_its_loads(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = str(package_data.RECIPES / "serving.yaml")
    assert run_cli(["plan", recipe]) == 0
    shown = capsys.readouterr().out
    assert "serving on llama-server on this host" in shown
    assert [line.split()[:4] for line in shown.splitlines() if line.startswith("concurrency")] == [
        ["concurrency", str(streams), "5", "40"] for streams in (1, 2, 4)
    ]
    assert run_cli(["plan", recipe, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loads"][0]["requests"] == 40
    assert run_cli(["plan", recipe, "--ask"]) == 2
    assert "--ask: a load test does not have this option" in capsys.readouterr().err


def test_a_server_that_dies_is_status_3_and_what_was_measured_stays(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ready, done = threading.Event(), threading.Event()
    found: list[ScriptedEndpoint] = []

    def serve() -> None:
        with scripted_endpoint({"": QUICK}) as server:
            found.append(server)
            ready.set()
            while len(server.answered) < 12 and not done.wait(0.01):
                pass

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        assert ready.wait(30)
        status = load(found[0], "-c", "1", "-n", "10000", "--json")
    finally:
        done.set()
        serving.join()
    out, err = capsys.readouterr()
    assert status == 3
    assert "the server is gone: " in json.loads(err.splitlines()[-1])["message"]
    (stage,) = json.loads(out)["stages"]
    assert stage["stop"] == "server-lost"
    assert stage["metrics"]["completed"] >= 5
    end = json.loads((only_run(lab) / "end.json").read_text())
    assert (end["state"], end["failure"]["blame"]) == ("failed", "infra")


@pytest.mark.parametrize("api", ["openai-chat", "openai-completions"])
@pytest.mark.parametrize("is_told", [True, False])
def test_two_answers_to_a_request_are_counted_as_two(
    lab: Path, capsys: pytest.CaptureFixture[str], api: str, is_told: bool
) -> None:
    """Usage counts the tokens of both; pieces and their times are those of the first answer."""
    words = ["--set", "workload.extra_body={n: 2, min_tokens: 16}", "--tpot", "1s"]
    answer = replace(QUICK, no_usage=not is_told, no_tokens=True)
    with scripted_endpoint({"": answer}) as server:
        status = load(
            server, "--api", api, "-c", "2", "-n", "6", "--output-tokens", "16", "--json", *words
        )
        assert {request.body["n"] for request in server.answered} == {2}
    assert status == 0
    document = json.loads(capsys.readouterr().out)
    metrics = document["stages"][0]["metrics"]
    # Without usage, the tokenizer counts the text, which has no end token.
    tokens = 16 if is_told else 15
    assert metrics["output_tokens"]["low"] == metrics["output_tokens"]["high"] == tokens
    rate = 2 * tokens * metrics["requests_per_second"]
    assert metrics["output_tokens_per_second"] == pytest.approx(rate)
    assert (metrics["tpot_ns"], metrics["tpot_unknown"]) == (None, 6)
    assert (metrics["tokens_per_piece"], metrics["whole_share"]) == (None, None)
    (tpot,) = [note for note in document["notes"] if "TPOT" in note]
    assert "6 of 6 answers is unknown: the requests asked for several answers each" in tpot
    assert not any("a piece has" in note for note in document["notes"])
    rows = lines(only_run(lab) / "requests.jsonl")
    assert {(row["answers"], row["completion_tokens"]) for row in rows} == {(2, 2 * tokens)}


def test_two_short_answers_are_not_taken_for_one_of_the_length_asked_for(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--set", "workload.extra_body={n: 2}", "-c", "1", "-n", "5", "--output-tokens", "30"]
    with scripted_endpoint({"": QUICK}) as server:
        assert load(server, *words) == 0
    assert "answers of 16 tokens on average, 30 were requested" in capsys.readouterr().out


def test_an_answer_whose_second_choice_is_cut_off_has_failed(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def piece(index: int, text: str, finish: str | None = None) -> tuple[float, Any]:
        part = {"index": index, "delta": {"content": text}, "finish_reason": finish}
        return 0.0, {"choices": [part]}

    cut = Answer(stream=[piece(0, "one"), piece(1, "two"), piece(0, "", "stop")])

    def script(_: Asked) -> Answer:
        return QUICK if len(server.answered) == 1 else cut  # the first is the check

    words = ["-c", "1", "-n", "3", "--warm-up", "0", "--set", "workload.extra_body={n: 2}"]
    with scripted_endpoint(script) as server:
        assert load(server, *words) == 1
    assert "3 failed: the answer ended before it was complete" in capsys.readouterr().out
