"""A command right at the start of a session, whenever the board ends the handshake."""

from pathlib import Path

import pytest
from daemons import daemon
from late_closes import NEVER, WITH_THE_FIRST_COMMAND, LateCloses, When, as_it_comes

from labctl.hdc.host.link import shell
from labctl.hdc.host.session import Session


def say(address: str, word: str) -> bytes:
    """A session of its own for one command, which takes long enough to be ended in the middle."""
    host, _, port = address.rpartition(":")
    with Session.connect(host, int(port), timeout=30) as session:
        return b"".join(shell(session, f"sleep 0.05; echo {word}", timeout=30))


@pytest.mark.parametrize("when", [0.0, 0.02, WITH_THE_FIRST_COMMAND, NEVER])
def test_the_first_command_survives_the_end_of_the_handshake(tmp_path: Path, when: When) -> None:
    with daemon(tmp_path, interference=LateCloses(lambda: when)) as address:
        assert say(address, "hello") == b"hello\n"


def test_many_sessions_with_a_command_at_once(tmp_path: Path) -> None:
    with daemon(tmp_path, interference=as_it_comes(seed=1)) as address:
        assert [say(address, str(n)) for n in range(24)] == [b"%d\n" % n for n in range(24)]
