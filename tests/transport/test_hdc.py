"""The hdc transport against boards that no virtual board can play."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from raw_hdc import RawPeer, scripted_board

from labctl.errors import CommandTimeout, LabctlError
from labctl.hdc.wire import Command
from labctl.transport import Transport, connect


def test_many_who_wait_for_a_silent_board_wait_once() -> None:
    def silent(peer: RawPeer) -> None:
        peer.receive()
        peer.receive()

    def ask(transport: Transport) -> LabctlError | None:
        try:
            transport.run("true", timeout=5)
        except LabctlError as error:
            return error
        return None

    with scripted_board(silent) as port:
        transport = connect("hdc", address=f"127.0.0.1:{port}", connect_timeout=0.5)
        began = time.monotonic()
        with ThreadPoolExecutor(16) as pool:
            errors = list(pool.map(ask, [transport] * 16))
        assert time.monotonic() - began < 2
        assert {type(error) for error in errors} == {CommandTimeout}
        assert len({id(error) for error in errors}) == 16
        began = time.monotonic()
        assert isinstance(ask(transport), CommandTimeout)  # who asks later gets a new attempt
        assert time.monotonic() - began > 0.4


@pytest.mark.parametrize(("pid", "kills"), [(0, False), (1, False), (4711, True)])
def test_nothing_but_the_commands_own_group_is_killed(pid: int, kills: bool) -> None:
    asked: list[bytes] = []

    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel, _, script = peer.receive()
        nonce = re.match(rb"echo (labctl-\w+):", script)
        assert nonce is not None
        peer.send(channel, Command.ECHO_RAW, b"%s:%d\n" % (nonce[1], pid))
        while True:
            channel, command, data = peer.receive()
            if command == Command.UNITY_EXECUTE:
                asked.append(data)
                peer.send(channel, Command.ECHO_RAW, b"done\n")
                peer.send(channel, Command.CHANNEL_CLOSE, b"\x01")

    with scripted_board(board) as port, connect("hdc", address=f"127.0.0.1:{port}") as transport:
        with pytest.raises(CommandTimeout) as caught:
            transport.run("sleep 9", timeout=0.3)
        assert (caught.value.hint is None) == kills
    assert [b"kill -9 -%d " % pid in command for command in asked] == [True] * kills
