"""``labctl boards probe`` as a user types it."""

import json
from collections.abc import Iterator
from pathlib import Path

import agent_builds
import pytest
from labs import LabUnderTest, lab_with_board

from labctl.board.probes import latest_probe
from labctl.records import BoardProbe, Execution

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]


@pytest.fixture
def native_lab(tmp_path: Path, private_state: Path) -> Iterator[LabUnderTest]:
    """A lab with a virtual board that runs this host's own programs."""
    agent_builds.native_agent()
    with lab_with_board(tmp_path, "--target", agent_builds.HOST) as lab:
        devices = lab.root / "devices.yaml"
        devices.write_text(devices.read_text().replace("rk3568", agent_builds.HOST))
        yield lab


def test_a_board_is_probed_kept_and_compared(native_lab: LabUnderTest) -> None:
    done = native_lab.run("boards", "probe", "--json")
    assert done.exit_status == 0, done.tail()
    first = BoardProbe.model_validate_json(done.stdout)
    assert first.execution is Execution.NATIVE_HOST
    assert not first.bounds_boards
    assert first.memory[0].threads == 1
    assert first.memory_bytes_per_second()
    assert {rate.pattern for rate in first.storage} == {"sequential", "random", "mapping"}
    assert any("NATIVE-HOST" in note for note in first.notes)
    assert latest_probe(native_lab.root, first.board) == first
    assert latest_probe(native_lab.root, first.board, Execution.BOARD) is None

    # As if the board had been twice as fast.
    (path,) = native_lab.root.glob("boards/*/probe-*.json")
    document = json.loads(path.read_text())
    for rate in document["memory"]:
        rate["bytes_per_second"] *= 100
    path.write_text(json.dumps(document))
    again = native_lab.run("boards", "probe")
    assert again.exit_status == 0, again.tail()
    assert "SLOWER: memory read, 1 thread:" in again.text
    assert "rates of the host" in again.text
    newest = latest_probe(native_lab.root, first.board)
    assert newest is not None
    assert newest.compared_with == first.taken
    assert len(list(native_lab.root.glob("boards/*/probe-*.json"))) == 2


def test_a_probe_leaves_nothing_on_the_board(native_lab: LabUnderTest) -> None:
    native_lab.run("boards", "probe")
    done = native_lab.run("shell", "cd /data/local/tmp/labctl && ls -A . jobs")
    assert ".bench-" not in done.text
    assert "probe-" not in done.text


def test_an_unknown_board_is_named(native_lab: LabUnderTest) -> None:
    done = native_lab.run("boards", "probe", "nonesuch")
    assert done.exit_status == 2
    assert "nonesuch" in done.tail()
