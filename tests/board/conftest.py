from collections.abc import Iterator
from pathlib import Path

import pytest

from labctl.transport.base import Transport
from labctl.transport.hdc import HdcTcpConfig
from labctl.transport.local import LocalConfig
from labctl.virtual.board import VirtualBoard, serving


@pytest.fixture(scope="session", params=["hdc", "local"])
def transport(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Transport]:
    """This host's own shell, and a virtual board's mksh and toybox."""
    if request.param == "local":
        with LocalConfig().open() as local:
            yield local
    else:
        directory = tmp_path_factory.mktemp("board")
        with (
            serving(VirtualBoard("b", directory)) as (board,),
            HdcTcpConfig(address=board.address).open() as remote,
        ):
            yield remote


@pytest.fixture
def workdir(tmp_path: Path) -> str:
    """A folder on the board that does not exist yet, with a name that needs quoting."""
    return str(tmp_path / "work dir's")
