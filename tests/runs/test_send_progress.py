"""How far a delivery to a board is, how fast, and how long it still takes."""

from pathlib import Path

from labctl.deploy.plan import Object
from labctl.progress import Pace, Throughput
from labctl.runs.deploy import SendProgress

ITEM = Object("a" * 64, 1000, Path("model.gguf"), "model.gguf")


def test_the_time_left_follows_from_what_was_sent_not_from_what_is_proven() -> None:
    progress = SendProgress(1000)
    progress.arrived(ITEM, 200)  # from an earlier attempt: it was not fast
    assert (progress.done_bytes, progress.pace(10.0)) == (200, Pace())
    progress.sent(100)
    assert progress.done_bytes == 300
    assert progress.pace(12.0) == Pace(50.0, 14.0)
    progress.arrived(ITEM, 300)
    assert progress.done_bytes == 300
    progress.sent(900)
    assert progress.done_bytes == 1000
    assert progress.pace(20.0) == Pace(100.0, 0.0)


def test_what_was_under_way_is_lost_with_the_link() -> None:
    progress = SendProgress(1000)
    progress.arrived(ITEM, 200)
    progress.sent(300)
    progress.lost()
    assert progress.done_bytes == 200
    progress.arrived(ITEM, 250)
    assert progress.done_bytes == 250


def test_a_step_has_its_mean_rate_where_its_caller_knows_nothing_better() -> None:
    seen = Throughput()
    assert seen.pace(0.0, 10, 100, Pace()) == Pace()
    assert seen.pace(10.0, 30, 100, Pace()) == Pace(2.0, 35.0)
    assert seen.pace(10.0, 30, None, Pace()) == Pace(2.0, None)
    assert seen.pace(10.0, 30, 100, Pace(5.0)) == Pace(5.0, 35.0)
    assert seen.pace(10.0, 30, 100, Pace(None, 7.0)) == Pace(2.0, 7.0)
