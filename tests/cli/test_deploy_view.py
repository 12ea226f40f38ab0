from types import SimpleNamespace
from typing import cast

import pytest

from labctl.cli import deploy_view
from labctl.cli.progress import ProgressView
from labctl.errors import DeviceLost
from labctl.runs.deploy import BoardTask


def test_a_link_that_stays_away_is_told_every_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = cast("BoardTask", SimpleNamespace(board=SimpleNamespace(name="rk1"), error=None))
    with ProgressView() as view:
        shown = deploy_view.BoardsView(view, 1)
        for now in (100.0, 100.5, 103.5, 107.5, 112.5, 117.5, 122.5):  # as retries come
            monkeypatch.setattr("time.monotonic", lambda now=now: now)
            shown.lost(task, DeviceLost("the link broke"))
    assert capsys.readouterr().err.splitlines() == [
        "rk1: the link broke; retrying",
        "rk1: still no link after 12 s; retrying",
        "rk1: still no link after 22 s; retrying",
    ]
