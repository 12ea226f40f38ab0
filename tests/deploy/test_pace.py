import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from labctl.deploy.plan import Object
from labctl.deploy.send import Pace, Sources, Stopwatch, known_rate
from labctl.errors import ConfigError, DeviceLost


def test_a_rate_is_kept_also_by_several_together() -> None:
    pace = Pace(1_000_000)
    began = time.monotonic()

    def send() -> None:
        for _ in range(5):
            pace(50_000)

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # 500 kB; the last piece is paid for by the time after it, and a tenth of a second was saved up.
    assert time.monotonic() - began >= 0.3


def test_nobody_waits_longer_than_a_rate_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]

    def wait(done: Callable[[], bool], *, timeout: float, interval: float) -> bool:
        clock[0] += interval
        return done()

    monkeypatch.setattr("labctl.deploy.send.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("labctl.deploy.send.wait_until", wait)
    pace = Pace(1_000_000)
    for _ in range(10):
        pace(50_000)
    assert clock[0] - 1000 == pytest.approx(0.35)


def test_a_rate_that_boards_would_not_wait_for_is_refused() -> None:
    with pytest.raises(ConfigError, match="too slow"):
        Pace(99_999)
    Pace(1_600_000, boards=16)
    with pytest.raises(ConfigError, match=r"1\.50 MB/s is too slow for 16 boards") as caught:
        Pace(1_500_000, boards=16)
    assert "the least is 1.60 MB/s" in (caught.value.hint or "")


def test_the_speed_of_a_link_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "rate"
    assert known_rate(path) is None
    with Stopwatch().noted(path) as few:
        few(1000)
    assert known_rate(path) is None
    with Stopwatch().noted(path) as many:
        many(100 << 20)
    assert (known_rate(path) or 0) > 1_000_000
    path.write_text("{}")
    assert known_rate(path) is None


def test_a_delivery_that_is_cut_tells_the_speed_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("labctl.deploy.send.time.monotonic", lambda: clock[0])
    path = tmp_path / "rate"

    def delivery(watch: Stopwatch) -> None:
        clock[0] += 10
        watch(200_000_000)
        clock[0] += 120  # the link is tried again, in vain
        raise DeviceLost("gone")

    with pytest.raises(DeviceLost), Stopwatch().noted(path) as watch:
        delivery(watch)
    assert known_rate(path) == pytest.approx(20_000_000)


def test_a_file_is_opened_once_for_all_who_read_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    item = Object("0" * 64, 7, path, "file")
    sources = Sources()
    with sources.reading(item) as one, sources.reading(item) as two:
        assert one is two
        assert one.chunk(0).data == b"content"
    with sources.reading(item) as later:
        assert later is not one
