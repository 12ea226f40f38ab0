from collections.abc import Iterator
from pathlib import Path

import pytest
from hdc_server import USB_KEY, Board, stand_in_server
from official_adb import RELEASES, official_adb
from sshd_host import ssh_host

from labctl.transport.adb import AdbConfig
from labctl.transport.base import Transport
from labctl.transport.hdc import HdcServerConfig, HdcTcpConfig
from labctl.transport.local import LocalConfig
from labctl.virtual.board import VirtualBoard, serving


@pytest.fixture(
    scope="module",
    params=[
        *("hdc tcp", "hdc server", "local"),
        *(f"adb {release}" for release in RELEASES),
        *(pytest.param(of, marks=pytest.mark.slow) for of in ("ssh", "ssh of a small server")),
    ],
)
def transport(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Transport]:
    if request.param == "local":
        with LocalConfig().open() as local:
            yield local
        return
    if request.param.startswith("adb"):
        release, scratch = request.param.split()[1], tmp_path_factory.mktemp("adb")
        with (
            serving(VirtualBoard("b", scratch / "b", protocol="adb")) as (board,),
            official_adb(release, scratch) as adb,
            AdbConfig(serial=board.address, server=adb.address).open() as phone,
        ):
            yield phone
        return
    if request.param.startswith("ssh"):
        # A small server has no sftp.
        config = "Subsystem sftp internal-sftp\n" if request.param == "ssh" else ""
        with (
            ssh_host(tmp_path_factory.mktemp("ssh") / "host", config=config) as host,
            host.board().open() as remote,
        ):
            yield remote
        return
    with serving(VirtualBoard("b", tmp_path_factory.mktemp("board"))) as (board,):
        if request.param == "hdc tcp":
            with HdcTcpConfig(address=board.address).open() as remote:
                yield remote
            return
        with (
            stand_in_server({USB_KEY: Board(board.address)}) as server,
            HdcServerConfig(key=USB_KEY, server=f"127.0.0.1:{server.port}").open() as remote,
        ):
            yield remote


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder on the board."""
    (tmp_path / "board").mkdir()
    return str(tmp_path / "board")
