"""``labctl nightly`` while a board restarts, a database is away, or no network reaches a source."""

import json
import signal
import socket
import subprocess
import time
from pathlib import Path

import forked
import pytest
from labs import LabUnderTest, said
from night_hosts import night_hosts
from night_lab import PLAN, give_ticker
from postgres_server import postgres_server

from labctl import process
from labctl.retry import wait_until
from labctl.virtual.control import Control
from labctl.virtual.fault_script import Drop

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture
def lab(native_lab: LabUnderTest) -> LabUnderTest:
    give_ticker(native_lab.root)
    return native_lab


def started(lab: LabUnderTest) -> "subprocess.Popen[bytes]":
    with (lab.root / "night.err").open("wb") as log:
        return forked.start(["nightly", "plan.yaml"], cwd=lab.root, stderr=log.fileno())


def lines(lab: LabUnderTest) -> str:
    """What the night has said so far."""
    return (lab.root / "night.err").read_text()


def journal(root: Path) -> list[dict[str, object]]:
    texts = [path.read_text() for path in root.glob("nights/*/night.jsonl")]
    lines = [line for text in texts for line in text.splitlines(keepends=True)]
    return [json.loads(line) for line in lines if line.endswith("\n")]


def test_the_only_board_is_waited_for_while_it_restarts(lab: LabUnderTest) -> None:
    faults = Control(lab.board.directory)
    faults.add(Drop(on="handshake", times=None))
    with started(lab) as night:
        # Its first job was tried three times in vain.
        assert wait_until(lambda: "tried again in" in lines(lab), timeout=300, interval=0.05)
        faults.clear()
        text, _ = night.communicate(timeout=400)
    assert night.returncode == 0, lines(lab)
    assert b"GOOD" in text
    events = [one["event"] for one in journal(lab.root)]
    assert events.count("failed") == 1


def test_ctrl_c_ends_a_wait_and_the_same_command_goes_on(lab: LabUnderTest) -> None:
    faults = Control(lab.board.directory)
    faults.add(Drop(on="handshake", times=None))
    with started(lab) as night:
        assert wait_until(lambda: "tried again in" in lines(lab), timeout=300, interval=0.05)
        night.send_signal(signal.SIGINT)
        night.communicate(timeout=60)
    assert night.returncode == 130, lines(lab)
    assert "to continue: labctl nightly plan.yaml" in lines(lab)
    faults.clear()
    done = lab.run("nightly", "plan.yaml")
    assert done.exit_status == 0, said(done)
    assert "continues" in said(done)
    assert [one["event"] for one in journal(lab.root)].count("failed") == 1


def test_a_night_on_one_board_is_not_over_before_its_time(lab: LabUnderTest) -> None:
    (lab.root / "plan.yaml").write_text(PLAN.replace("time: 1h", "time: 70s"))
    process.stop(lab.board.process)
    began = time.monotonic()
    lost = lab.run("nightly", "plan.yaml", "--json")
    assert lost.exit_status == 3, said(lost)
    assert 45 < time.monotonic() - began < 170
    (finding,) = json.loads(lost.stdout)["findings"]
    assert (finding["verdict"], finding["blame"]) == ("not measured", "infra")


def test_a_database_that_restarts_moves_no_row(tmp_path: Path, private_state: Path) -> None:
    with postgres_server() as server, night_hosts(tmp_path, server) as hosts:
        words = ["nightly", "plan.yaml", "--host", "lab1"]
        with forked.start(words, cwd=hosts.lab1) as night:
            for count, how, seconds in (
                (1, signal.SIGINT, 1.0),
                (4, signal.SIGQUIT, 1.0),  # as if its machine failed
                (8, signal.SIGINT, 8.0),
            ):

                def is_under_way(count: int = count) -> bool:
                    assert night.poll() is None, night.communicate()
                    return sum(one["event"] == "measured" for one in hosts.journal()) >= count

                assert wait_until(is_under_way, timeout=300, interval=0.02)
                server.stop(how)
                time.sleep(seconds)  # as long as it is away
                server.start()
            text, errors = night.communicate(timeout=400)
        assert night.returncode == 0, errors.decode()
        events = [one["event"] for one in hosts.journal()]
        assert not {"failed", "moved", "gave-up"} & {*events}
        assert text.startswith(b"GOOD: 2 of 2\n")


def test_a_source_that_cannot_be_reached_is_waited_for(lab: LabUnderTest) -> None:
    upstream = lab.root / "served" / "upstream"
    upstream.mkdir(parents=True)
    code = (lab.root / "source" / "head" / "ticker.c").read_text()
    (upstream / "ticker.c").write_text(code)
    for words in (
        ("init", "--quiet", "--initial-branch", "main"),
        ("add", "."),
        ("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "one"),
    ):
        subprocess.run(["git", "-C", str(upstream), *words], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    source = f"{{git: 'git://127.0.0.1:{port}/upstream', ref: main}}"
    (lab.root / "plan.yaml").write_text(PLAN.replace("{folder: source/head}", source))
    serve = ["git", "daemon", "--export-all", f"--base-path={upstream.parent}"]
    serve += ["--listen=127.0.0.1", f"--port={port}", "--reuseaddr"]
    with started(lab) as night:
        # The second pause is longer.
        assert wait_until(lambda: lines(lab).count("cannot reach") == 2, timeout=120, interval=0.05)
        daemon = process.start(serve, cwd=upstream, stdout=None, stderr=None)
        try:
            text, _ = night.communicate(timeout=400)
        finally:
            process.stop(daemon)
    assert night.returncode == 0, lines(lab)
    assert b"GOOD" in text
