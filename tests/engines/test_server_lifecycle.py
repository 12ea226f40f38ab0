"""Servers: started, ready in time or not, asked, dead while they serve, stopped."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fake_server
import pytest
from jobs import is_alive
from shouter import TOOL, Shouter

from labctl import process
from labctl.config.recipe import EngineChoice
from labctl.engines.base import Inputs
from labctl.engines.registry import make_engine, make_server
from labctl.engines.server import Question
from labctl.engines.server_lifecycle import Server, serve
from labctl.engines.this_host import HostServer, ThisHost
from labctl.errors import (
    ConfigError,
    OutputNotUnderstood,
    ProgramFailed,
    ProgramTimeout,
    ToolMissing,
)
from labctl.retry import wait_until
from labctl.runs.inputs.prepare import read_recipe


@dataclass(frozen=True)
class Watched(ThisHost):
    """Remembers what it started."""

    started: list[HostServer]
    argv: list[Sequence[str]]

    def start(self, argv: Sequence[str], port: int) -> HostServer:
        self.argv.append(argv)
        self.started.append(super().start(argv, port))
        return self.started[-1]


@pytest.fixture
def host(tmp_path: Path) -> Watched:
    return Watched(tmp_path, [], [])


@contextmanager
def shouting(host: Watched, *, ready_within: float = 30, **parameters: Any) -> Iterator[Server]:
    inputs = Inputs(sys.executable, files={"script": str(fake_server.__file__)})
    engine = Shouter()
    asked = engine.parameters(parameters)
    with serve(engine, TOOL, asked, inputs, host=host, ready_within=ready_within) as server:
        yield server


def ask(server: Server, prompt: str, timeout: float = 30) -> str:
    return server.ask(Question(prompt, 4), timeout=timeout).text


def test_a_server_is_asked_many_times_and_stopped(host: Watched) -> None:
    with shouting(host, load=0.3) as server:
        assert [ask(server, text) for text in ("one", "zwei", "三\n")] == ["ONE", "ZWEI", "三\n"]
        assert host.started[0].end() is None
    assert host.started[0].end() is not None
    assert not is_alive(host.started[0].program.pid)


def test_no_environments_proxy_is_asked(host: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with shouting(host) as server:
        assert ask(server, "x") == "X"


def test_one_that_is_not_ready_in_time_is_told_and_stopped(host: Watched) -> None:
    began = time.monotonic()
    with (
        pytest.raises(ProgramTimeout, match=r"shouter was not ready within 1 s"),
        shouting(host, load=1000, ready_within=1),
    ):
        pass
    assert time.monotonic() - began < 60
    assert not is_alive(host.started[0].program.pid)


def test_one_that_ends_before_it_is_ready_is_told_at_once_with_its_last_words(
    host: Watched,
) -> None:
    for status in (3, 0):
        with pytest.raises(ProgramFailed) as failed, shouting(host, die_on_load=status):
            pass
        assert "no such model" in (failed.value.details or "")
        assert f"status {status}" in failed.value.message


@pytest.mark.parametrize(
    ("prompt", "because"),
    [("die", "shouter was killed by SIGSEGV"), ("exit", "ended by itself while it was asked")],
)
def test_death_while_it_serves_is_told(host: Watched, prompt: str, because: str) -> None:
    with shouting(host) as server:
        assert ask(server, "x") == "X"
        for _ in range(2):  # and it stays dead
            with pytest.raises(ProgramFailed, match=because):
                ask(server, prompt)


def test_an_answer_that_does_not_come_is_told_and_the_next_may_come(host: Watched) -> None:
    with shouting(host) as server:
        with pytest.raises(ProgramTimeout, match=r"shouter did not answer within 0\.5 s"):
            ask(server, "hang", timeout=0.5)
        assert ask(server, "x") == "X"


def test_what_ignores_sigterm_ends_all_the_same_and_its_children_too(host: Watched) -> None:
    with shouting(host, stubborn=True):
        assert wait_until(
            lambda: b"child" in host.started[0].output().stderr, timeout=30, interval=0.05
        )
        child = int(host.started[0].output().stderr.split()[1])
    assert not is_alive(host.started[0].program.pid)
    assert wait_until(lambda: not is_alive(child), timeout=30, interval=0.05)


CONTROLLER = """\
import sys, time
from pathlib import Path
from labctl.engines.this_host import ThisHost
started = ThisHost(Path(sys.argv[1])).start(sys.argv[2:], 1)
print(started.program.pid, flush=True)
time.sleep(600)  # until it is killed
"""


def test_a_server_ends_with_its_controller_however_that_ends(tmp_path: Path) -> None:
    words = [sys.executable, fake_server.__file__, "--port", "0", "--name", "x", "--stubborn"]
    argv = [sys.executable, "-c", CONTROLLER, str(tmp_path), *words]
    controller = process.start(argv, env=os.environ)
    try:
        assert controller.stdout is not None
        server = int(controller.stdout.readline())
        said = tmp_path / "stderr"
        assert wait_until(lambda: b"child" in said.read_bytes(), timeout=30, interval=0.05)
        child = int(said.read_bytes().split()[1])
        assert is_alive(server)
    finally:
        controller.kill()
        controller.communicate()
    for pid in (server, child):
        assert wait_until(lambda pid=pid: not is_alive(pid), timeout=30, interval=0.05)  # type: ignore[misc]


def test_an_error_in_the_block_stops_the_server(host: Watched) -> None:
    with pytest.raises(KeyboardInterrupt), shouting(host):
        raise KeyboardInterrupt
    assert not is_alive(host.started[0].program.pid)


def test_another_server_on_the_port_is_not_taken_for_ours(host: Watched, tmp_path: Path) -> None:
    class Taken(Watched):
        def free_port(self) -> int:
            return host.started[0].port

        def start(self, argv: Sequence[str], port: int) -> HostServer:
            return super().start(["sleep", "1000"], port)

    with (
        shouting(host),
        pytest.raises(OutputNotUnderstood, match="another server answers"),
        shouting(Taken(tmp_path, [], [])),
    ):
        pass


def test_a_program_that_is_not_there_is_the_hosts(host: Watched) -> None:
    engine = Shouter()
    inputs = Inputs("/nowhere/shouter", files={"script": "x"})
    with (
        pytest.raises(ToolMissing),
        serve(engine, TOOL, engine.parameters({}), inputs, host=host, ready_within=1),
    ):
        pass


def test_a_recipe_runs_no_server(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "name: r\ntarget: rk3568\nengine: {name: llama_cpp, task: serve}\n"
        "models: {m: {file: m.gguf}}\nmax_time: 10m\n"
    )
    with pytest.raises(ConfigError, match=r"r\.yaml:3:33: engine\.task: serve is a server, which"):
        read_recipe(tmp_path / "r.yaml")
    with pytest.raises(ConfigError, match="serve is a server"):
        make_engine(EngineChoice(name="llama_cpp", task="serve"))
    assert make_server(EngineChoice(name="llama_cpp", task="serve")).task == "serve"
    with pytest.raises(ConfigError, match=r"engine\.task: completion is no server"):
        make_server(EngineChoice(name="llama_cpp"))
