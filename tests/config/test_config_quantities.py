import pytest
from hypothesis import given
from hypothesis import strategies as st

from labctl.config.types import (
    format_duration,
    parse_duration,
    parse_interval,
    parse_share,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("250ms", 0.25), ("1.5h", 5400), ("1d", 86400)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "90", "s", "1m1h", "-1s", "1 s", "0s", "0h0m", "1e3s", "10:30", "1s\n"]
)
def test_texts_that_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize("number", [90, 1.5, True, None, [90]])
def test_a_duration_has_a_unit(number: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(number)


@given(st.integers(1, 3650 * 86_400_000))
def test_durations_survive_being_written(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(5400, "1h30m"), (90, "1m30s"), (0.25, "0.25s"), (3600, "1h")]
)
def test_durations_are_written_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2 * 10**9), ("512MiB", 512 << 20), ("1.5 kB", 1500), ("7B", 7), (0, 0), (12, 12)],
)
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GB", "2gb", "-1", -1, "1.5B", 1.5, True, "99999999999TiB", None]
)
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("none", 0), ("10ms", 0.01), ("5s", 5), ("1h", 3600)]
)
def test_an_interval_may_be_none(text: str, seconds: float) -> None:
    assert parse_interval(text) == seconds


@pytest.mark.parametrize("text", ["9ms", "61m", "0s", "never", 1, None])
def test_texts_that_are_no_intervals(text: object) -> None:
    with pytest.raises(ValueError, match=r"duration|10ms to 1h"):
        parse_interval(text)


@pytest.mark.parametrize(
    ("text", "share"), [("3%", 0.03), ("2.5 %", 0.025), (0.03, 0.03), ("99.9%", 0.999)]
)
def test_shares(text: object, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", [3, 0, "0%", "100%", "-1%", "3", True, None, float("nan")])
def test_what_is_no_share(text: object) -> None:
    with pytest.raises(ValueError, match=r"3% or 0\.03"):
        parse_share(text)
