"""Figures of requests whose times are written here, by the definitions of the field."""

from typing import Any

import pytest

from labctl.evaluation.serving.metrics import is_good, measure, tpot_ns, ttft_ns
from labctl.records.serving import LatencyLimits, RequestRecord
from labctl.records.trial import Failure

MS = 1_000_000
LOST = Failure(kind="TryAgain", blame="infra", message="HTTP 503")  # type: ignore[arg-type]


def row(number: int = 1, **given: Any) -> RequestRecord:
    """Intended at 0, sent at 1 ms, pieces at 11, 31 and 41 ms, done at 51 ms, 5 tokens."""
    told = {
        "stage": 1,
        "number": number,
        "intended_ns": 0,
        "sent_ns": 1 * MS,
        "arrivals_ns": (11 * MS, 31 * MS, 41 * MS),
        "done_ns": 51 * MS,
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "counted_by": "usage",
        "tokens_after_first": 4,
    }
    return RequestRecord(**(told | given))


def test_times_of_an_open_loop_begin_at_the_intended_sending() -> None:
    assert ttft_ns(row()) == 11 * MS
    assert ttft_ns(row(intended_ns=None)) == 10 * MS


def test_time_per_token_is_without_the_first_and_by_the_servers_count() -> None:
    """Five tokens: three pieces, and an end without text. Four of them took 40 ms."""
    assert tpot_ns(row()) == 10 * MS
    assert tpot_ns(row(completion_tokens=1, tokens_after_first=0)) is None
    assert tpot_ns(row(completion_tokens=7, tokens_after_first=2)) == 20 * MS  # five came at once
    assert tpot_ns(row(tokens_after_first=None)) is None
    assert tpot_ns(row(arrivals_ns=(11 * MS,))) is None
    assert tpot_ns(row(counted_by="stream")) is None  # pieces are not tokens
    assert tpot_ns(row(arrivals_ns=(51 * MS,) * 3)) is None  # else 0 ns, which keeps every limit


def test_rates_are_of_what_was_completed_over_the_whole_time() -> None:
    rows = [
        row(1),
        row(2, intended_ns=50 * MS, sent_ns=50 * MS, done_ns=100 * MS, arrivals_ns=(60 * MS,)),
        row(3, intended_ns=60 * MS, sent_ns=60 * MS, done_ns=61 * MS, arrivals_ns=(), failure=LOST),
        row(4, warm_up=True, intended_ns=-1000 * MS),
    ]
    found = measure(rows, LatencyLimits(ttft_ns=10 * MS))
    assert found
    assert (found.requests, found.completed, found.failed) == (3, 2, 1)
    assert found.requests_per_second == pytest.approx(20)
    assert found.output_tokens_per_second == pytest.approx(100)
    assert found.total_tokens_per_second == pytest.approx(240)
    assert (found.good, found.good_share) == (1, pytest.approx(1 / 3))
    cut_off = measure(rows, LatencyLimits(ttft_ns=10 * MS), unanswered=7)
    assert cut_off
    assert (cut_off.good_share, cut_off.requests) == (0.1, 3)
    assert found.goodput == pytest.approx(10)
    assert found.itl_ns
    assert (found.itl_ns.count, found.itl_ns.p50) == (2, 15 * MS)
    assert found.tokens_per_piece == pytest.approx(10 / 4)
    assert found.lateness_ns
    assert found.lateness_ns.high == MS


def test_a_count_that_the_server_did_not_tell_is_no_rate_of_tokens() -> None:
    found = measure([row(), row(2, counted_by="stream")], LatencyLimits())
    assert found
    assert found.output_tokens_per_second is None
    assert found.total_tokens_per_second is None
    assert found.goodput is None  # without limits nothing is good or bad


@pytest.mark.parametrize(
    ("given", "limits", "good"),
    [
        ({}, {"ttft_ns": 11 * MS}, True),
        ({}, {"ttft_ns": 11 * MS - 1}, False),
        ({}, {"tpot_ns": 10 * MS}, True),
        ({}, {"tpot_ns": 10 * MS - 1}, False),
        ({}, {"latency_ns": 51 * MS}, True),
        ({}, {"latency_ns": 51 * MS - 1}, False),
        ({}, {"ttft_ns": 11 * MS, "tpot_ns": 1}, False),
        ({"failure": LOST}, {"ttft_ns": 1000 * MS}, False),
        ({"arrivals_ns": ()}, {"ttft_ns": 1000 * MS}, False),
        ({"completion_tokens": 1, "tokens_after_first": 0}, {"tpot_ns": 1}, True),
        ({"tokens_after_first": None}, {"tpot_ns": 1000 * MS}, False),
        ({"counted_by": "stream"}, {"tpot_ns": 1000 * MS}, False),
        ({"arrivals_ns": (51 * MS,) * 3}, {"tpot_ns": 1000 * MS}, False),
    ],
)
def test_a_good_request_keeps_every_limit(
    given: dict[str, Any], limits: dict[str, int], good: bool
) -> None:
    assert is_good(row(**given), LatencyLimits(**limits)) is good


@pytest.mark.parametrize("service", [20, 60])
def test_departures_tell_whether_a_server_keeps_up(service: int) -> None:
    """A request each 40 ms to one slot: 20 ms are enough for each, 60 ms are not."""
    ends, at = [], 0
    for number in range(50):
        at = max(at, number * 40) + service
        ends.append(at)
    rows = [
        row(number + 1, intended_ns=number * 40 * MS, sent_ns=number * 40 * MS, done_ns=end * MS)
        for number, end in enumerate(ends)
    ]
    found = measure(rows, LatencyLimits())
    assert found
    assert found.departures == pytest.approx(1 if service == 20 else 40 / 60)


def test_a_p99_of_few_requests_is_not_bounded() -> None:
    few = measure([row(n) for n in range(1, 101)], LatencyLimits())
    many = measure([row(n) for n in range(1, 401)], LatencyLimits())
    assert few
    assert many
    assert few.latency_ns
    assert many.latency_ns
    assert few.latency_ns.p99_high is None
    assert many.latency_ns.p99_high == 51 * MS


def test_many_pieces_of_few_answers_do_not_bound_the_p99_of_their_gaps() -> None:
    """The pieces of an answer share its moment: a stall meets them together."""

    def pieces(number: int) -> RequestRecord:
        took = 90 if number <= 8 else 10  # 2 % of 400 answers met a stall
        stamps = tuple(took * n * MS for n in range(1, 102))
        return row(number, arrivals_ns=stamps, done_ns=stamps[-1], completion_tokens=101)

    few = measure([pieces(n) for n in range(1, 5)], LatencyLimits())
    many = measure([pieces(n) for n in range(1, 401)], LatencyLimits())
    assert few
    assert few.itl_ns
    assert few.itl_ns.count == 400
    assert few.itl_ns.p99_high is None
    assert many
    assert many.itl_ns
    assert many.itl_ns.p99_high == 90 * MS


def test_only_warm_up_has_no_figures() -> None:
    assert measure([row(warm_up=True)], LatencyLimits()) is None


def test_the_share_of_right_guesses_is_of_all_guessed_tokens() -> None:
    rows = [row(1, drafted_tokens=30, accepted_tokens=6), row(2, drafted_tokens=10), row(3)]
    found = measure(rows, LatencyLimits())
    assert found
    assert found.accepted_share == pytest.approx(6 / 40)
    plain = measure([row(1)], LatencyLimits())
    assert plain
    assert plain.accepted_share is None
