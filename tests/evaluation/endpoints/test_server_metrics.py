"""Pages of metrics, as servers and as strangers write them."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labctl.errors import OutputNotUnderstood
from labctl.evaluation.endpoints.server_metrics import NAMES, Figure, Snapshot, read_page

VLLM = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.9
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 5.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 7.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 4.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 12.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 1.5
vllm:time_to_first_token_seconds_created{engine="0",model_name="m"} 1.7e+09
"""


def page(content: bytes, size: int = 65536) -> Mapping[Figure, float]:
    return snapshot(content, size).figures


def snapshot(content: bytes, size: int = 65536) -> Snapshot:
    async def pieces() -> AsyncIterator[bytes]:
        for begin in range(0, len(content), size):
            yield content[begin : begin + size]

    return asyncio.run(read_page(pieces()))


def test_the_page_of_a_real_vllm_has_every_figure() -> None:
    found = page((Path(__file__).parents[2] / "fixtures/endpoints/vllm_metrics.txt").read_bytes())
    assert set(found) == set(get_args(Figure))
    assert found["requests"] == found["ttft_count"] == found["latency_count"] == 22
    assert found["generated_tokens"] == 22 * 16
    assert 0 < found["ttft_s"] < found["latency_s"]


@pytest.mark.parametrize("size", [1, 7, 65536])
def test_counts_of_engines_are_added_and_a_share_is_the_largest(size: int) -> None:
    assert page(VLLM, size) == {
        "running": 5,
        "cache_usage": 0.5,
        "requests": 12,
        "ttft_count": 12,
        "ttft_s": 1.5,
    }


def test_ranks_of_one_model_are_not_added() -> None:
    text = b'sglang:num_running_reqs{dp_rank="%d",tp_rank="%d"} 4\n'
    assert page(text % (0, 0) + text % (0, 1) + text % (1, 0)) == {"running": 8}


def test_a_server_that_counts_no_requests_may_count_their_latencies() -> None:
    assert page(b"lmdeploy:e2e_request_latency_seconds_count 9\n")["requests"] == 9


def test_llama_server_writes_six_digits_so_larger_counts_are_unknown() -> None:
    assert page(b"llamacpp:tokens_predicted_total 999999\n") == {"generated_tokens": 999999}
    found = snapshot(b"llamacpp:tokens_predicted_total 1.23457e+06\n")
    assert (found.figures, found.is_rounded) == ({}, True)


@pytest.mark.parametrize(
    ("value", "started"),
    [(b"1.79590592e+09", 1.79590592e9), (b"NaN", None), (b"1 2 3 4", None)],
)
def test_the_start_of_the_process_is_known(value: bytes, started: float | None) -> None:
    text = b"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds " + value + b"\n"
    if value == b"1 2 3 4":
        text = b'process_start_time_seconds{a="1"} 1\nprocess_start_time_seconds{a="2"} 2\n'
    assert snapshot(text) == Snapshot({}, started)


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "-Inf", "1e300", "9" * 4000])
def test_a_value_that_is_no_count_is_unknown(value: str) -> None:
    text = f'vllm:num_requests_running{{engine="0"}} 2\nvllm:num_requests_running {value}\n'
    assert page(text.encode()) == {}


def test_a_cache_is_not_fuller_than_full() -> None:
    assert page(b"vllm:kv_cache_usage_perc 12.5\n") == {}


def test_nothing_of_a_label_is_kept() -> None:
    hostile = b'vllm:num_requests_running{model_name="\x1b]0;owned\x07\xff } 9 \\"\\n"} 2\n'
    assert page(hostile) == {"running": 2}


@pytest.mark.parametrize(
    "content",
    [
        b"vllm:num_requests_running\n",
        b"vllm:num_requests_running two\n",
        b'vllm:num_requests_running{a="b" 2\n',
        b"vllm:num_requests_running{ } \n",
        b"vllm:num_requests_running{ ,\r=\r1{b}\xc2\xa0",  # an IndexError in its parser
        b"vllm:num_requests_running" + b"\t" * 9000 + b"2\n",
        b"x" * 20_000,
        b"vllm:num_requests_running 2\n" * 5000,
        b"# a comment\n" * 400_000,
    ],
)
def test_another_format_or_too_much_is_not_understood(content: bytes) -> None:
    with pytest.raises(OutputNotUnderstood):
        page(content)


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.builds(
                lambda name, rest: name.encode() + rest,
                st.sampled_from(sorted(NAMES)),
                st.one_of(
                    st.binary(max_size=40), st.text('{}=,"\\ ab1#\t', max_size=30).map(str.encode)
                ),
            ),
        ),
        max_size=8,
    ),
    st.integers(1, 50),
)
def test_whatever_comes_is_read_or_refused(lines: list[bytes], size: int) -> None:
    try:
        found = page(b"\n".join(lines), size)
    except OutputNotUnderstood:
        return
    assert all(0 <= value <= 1e18 for value in found.values())


def test_a_long_page_leaves_the_event_loop_its_turns() -> None:
    line = b'vllm:num_requests_running{engine="%d",model_name="a model of a long name"} 1\n'
    other = b'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5"} 1.0\n'
    content = b"".join(line % n + other * 20 for n in range(1000))
    assert len(content) > 1_000_000
    turns: list[float] = []

    async def count() -> None:
        while True:
            turns.append(time.thread_time())  # only this thread's work: the machine is shared
            await asyncio.sleep(0)

    async def pieces() -> AsyncIterator[bytes]:
        for begin in range(0, len(content), 65536):
            yield content[begin : begin + 65536]

    async def run() -> Snapshot:
        task = asyncio.create_task(count())
        await asyncio.sleep(0)
        try:
            return await read_page(pieces())
        finally:
            task.cancel()

    page(VLLM)  # its library is loaded
    assert asyncio.run(run()).figures == {"running": 1000}
    longest = max(after - before for before, after in pairwise(turns))
    assert longest < 0.004
