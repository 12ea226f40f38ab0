"""Transfers to a virtual phone, beside the official client over the same official server."""

import os
from pathlib import Path

import agent_builds
import pytest
from interleaved import medians, show
from official_adb import RELEASES, official_adb
from virtual_process import virtual_board_process

from labctl.board.store import BoardStore
from labctl.deploy.plan import agent_hash, describe, plan
from labctl.deploy.send import deploy
from labctl.transport.adb import AdbConfig
from labctl.transport.base import TransferOptions

pytestmark = pytest.mark.bench

FILE_BYTES = 1_000_000_000
_PIECE_BYTES = 1_000_000


@pytest.mark.parametrize("release", RELEASES)
def test_a_proven_push_is_nearly_as_fast_as_adbs(
    tmp_path: Path, private_state: Path, release: str
) -> None:
    """Bytes that no compression makes fewer, to a phone of a lab, which carries the agent."""
    local = tmp_path / "file"
    with local.open("wb") as file:
        for _ in range(FILE_BYTES // _PIECE_BYTES):
            file.write(os.urandom(_PIECE_BYTES))
    with (
        virtual_board_process(tmp_path / "board", "--protocol", "adb") as board,
        official_adb(release, tmp_path) as adb,
        AdbConfig(serial=board.address, server=adb.address).open() as link,
    ):
        adb.serial = board.address
        remote = f"{board.workdir}/copy"
        store = BoardStore(link, board.workdir)
        agent = describe(agent_builds.native_agent(), name="agent", executable=True)
        deploy(store, plan(store, [agent]))
        link.use_hash(agent_hash(link, board.workdir, agent_builds.HOST, tmp_path))
        options = TransferOptions(timeout=120)
        found = medians(
            3,
            {
                "adb push": lambda: adb.ok("push", str(local), remote),
                "push (proven)": lambda: link.push(local, remote, options),
            },
        )
    show(f"1 GB over adb {release}", found, "adb push")
    assert found["push (proven)"] <= found["adb push"] / 0.8
