"""Connecting within a time."""

import socket
import threading
import time

import pytest

from labctl.errors import ConfigError, LinkRefused
from labctl.tcp import dial


def call(host: str, port: int, timeout: float = 30) -> socket.socket:
    return dial(host, port, timeout=timeout, peer="board", hint="look")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_addresses_and_names(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with call(host, server.getsockname()[1]) as sock:
            accepted, caller = server.accept()
            assert caller == sock.getsockname()
            sock.sendall(b"x")
            assert accepted.recv(1) == b"x"
        accepted.close()


def test_a_slow_resolver_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    real, answer = socket.getaddrinfo, threading.Event()

    def slow(host: str, port: int, **options: int):
        if not options["flags"]:
            answer.wait(30)
        return real(host, port, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    began = time.monotonic()
    with pytest.raises(LinkRefused, match=r"board\.lab:1: its name was not resolved within 0\.2 s"):
        call("board.lab", 1, timeout=0.2)
    assert time.monotonic() - began < 20
    answer.set()
    for thread in threading.enumerate():
        if thread.name == "resolver":
            thread.join(30)


def test_all_addresses_of_a_name_are_tried_in_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as full:
        full.bind(("127.0.0.2", 0))  # bound, but nobody listens
        port = server.getsockname()[1]
        real = socket.getaddrinfo

        def two(host: str, _port: int, **options: int):
            if options["flags"]:
                raise socket.gaierror
            return real("127.0.0.2", full.getsockname()[1]) + real("127.0.0.1", port)

        monkeypatch.setattr(socket, "getaddrinfo", two)
        with call("board.lab", port) as sock:
            assert sock.getpeername() == ("127.0.0.1", port)
            accepted, caller = server.accept()
            assert caller == sock.getsockname()
            accepted.close()


def test_nothing_that_could_be_called() -> None:
    with pytest.raises(LinkRefused, match=r"no board answers at nowhere\.invalid:1"):
        call("nowhere.invalid", 1)
    with pytest.raises(ConfigError, match="not the name"):
        call("a..b", 1)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(LinkRefused, match="refused") as refused:
            call("127.0.0.1", closed.getsockname()[1])
    assert refused.value.hint == "look"
