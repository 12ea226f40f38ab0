import pytest

from labctl.errors import ConfigError, DeviceLost, LinkError, LinkRefused
from labctl.retry import retry_infra, wait_until


def test_only_named_errors_are_tried_again() -> None:
    tried: list[int] = []
    noted: list[str] = []

    def operation() -> str:
        tried.append(1)
        if len(tried) < 3:
            raise LinkRefused(f"no {len(tried)}")
        return "done"

    done = retry_infra(
        operation,
        on=(LinkError,),
        timeout=30,
        interval=0.01,
        on_retry=lambda error: noted.append(error.message),
    )
    assert (done, noted) == ("done", ["no 1", "no 2"])


def test_the_last_error_comes_through_after_the_time_limit() -> None:
    def operation() -> None:
        raise DeviceLost("still gone")

    with pytest.raises(DeviceLost, match="still gone"):
        retry_infra(operation, on=(LinkError,), timeout=0.05, interval=0.01)


def test_the_time_limit_begins_with_the_first_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that is lost after an hour of sending is gone no longer than another."""
    now, took = 0.0, iter([3600, 5, 5])
    monkeypatch.setattr("time.monotonic", lambda: now)

    def operation() -> None:
        nonlocal now
        now += next(took)
        raise DeviceLost(f"gone at {now:g} s")

    with pytest.raises(DeviceLost, match="gone at 3610 s"):
        retry_infra(operation, on=(LinkError,), timeout=10, interval=0.01)


def test_no_wait_goes_beyond_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of 1, 2, 4 and 8 s would make 15 s of 10."""
    now, tried = 100.0, list[float]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr("time.sleep", sleep)

    def fail() -> None:
        tried.append(now - 100)
        raise DeviceLost("gone")

    with pytest.raises(DeviceLost):
        retry_infra(fail, on=(LinkError,), timeout=10, interval=1)
    assert tried == [0, 1, 3, 7, 10]
    began, tried = now, []
    assert not wait_until(lambda: tried.append(now - began) or False, timeout=5, interval=2)
    assert tried == [0, 2, 4, 5]


def test_other_errors_come_through_at_once() -> None:
    tried: list[int] = []

    def operation() -> None:
        tried.append(1)
        raise ConfigError("wrong")

    with pytest.raises(ConfigError):
        retry_infra(operation, on=(LinkError,), timeout=30)
    assert len(tried) == 1


def test_wait_until() -> None:
    answers = iter([False, False, True])
    assert wait_until(lambda: next(answers), timeout=5, interval=0.01)
    assert not wait_until(lambda: False, timeout=0.05, interval=0.01)
