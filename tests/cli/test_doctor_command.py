"""``labctl doctor`` about the boards of a lab."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from cli_calls import Labctl

from labctl.board.probe_files import save_probe
from labctl.records.board import BoardFacts, Execution
from labctl.records.probe import BoardProbe, MemoryRate

pytestmark = pytest.mark.usefixtures("private_state")


@pytest.fixture
def lab(empty_lab: Path) -> Path:
    way = "{kind: hdc, link: tcp, address: '127.0.0.1:1'}"
    (empty_lab / "devices.yaml").write_text(
        f"boards:\n  rk1: {{target: rk3568, transport: {way}}}\n"
    )
    facts = BoardFacts(
        execution=Execution.BOARD, machine="aarch64", kernel="5.10", boot_id="b", devfreq=()
    )
    probe = BoardProbe(
        board="rk1",
        taken=datetime(2026, 11, 20, tzinfo=UTC),
        agent_version="1",
        labctl_version="1",
        facts=facts,
        memory=(MemoryRate(threads=4, bytes_per_second=2_100_000_000),),
    )
    save_probe(empty_lab, probe)
    return empty_lab


def test_a_board_whose_memory_clock_is_not_visible_is_named(lab: Path, labctl: Labctl) -> None:
    told, _ = labctl("doctor")
    assert (
        "absent  memory clock of rk1: memory clock not visible; the probe of 2026-11-20 read 2.1 of"
        " 5.0 GB/s: DRAM is probably at a low fixed clock (as of 2026-11-20)"
    ) in told
    (lab / "devices.yaml").write_text("boards: 1\n")
    told, noted = labctl("doctor")
    assert "boards are not judged: " in noted
    assert "memory clock" not in told


def test_a_console_that_is_missing_is_named(lab: Path, labctl: Labctl) -> None:
    devices = lab / "devices.yaml"
    text = devices.read_text().replace("rk3568,", "rk3568, console: {device: /dev/nonesuch},")
    devices.write_text(text)
    told, _ = labctl("doctor")
    assert "absent  console of rk1: /dev/nonesuch is missing" in told
    devices.write_text(text.replace("/dev/nonesuch", "/dev/null"))
    told, _ = labctl("doctor")
    assert "ok      console of rk1: /dev/null" in told
