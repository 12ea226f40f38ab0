"""``labctl nightly`` with boards of two hosts, each with a worker."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import forked
import pytest
from labs import said
from night_hosts import NightHosts, night_hosts
from night_lab import write_source
from postgres_server import PostgresServer

from labctl.retry import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture
def hosts(tmp_path: Path, private_state: Path, postgres: PostgresServer) -> Iterator[NightHosts]:
    with night_hosts(tmp_path, postgres) as made:
        yield made


def runs_of(hosts: NightHosts) -> set[str]:
    """All runs that came to their end on lab2."""
    ends = hosts.lab2.glob("runs/*-ticking-*/end.json")
    return {path.parent.name for path in ends if '"finished"' in path.read_text()}


def check_each_place_has_one_run(hosts: NightHosts) -> list[dict[str, object]]:
    """Nothing is measured twice or left in the queue; the measurements of all boards.

    But for a pair of which a run failed: both are made again.
    """
    measured = [one for one in hosts.journal() if one["event"] == "measured"]
    places = set[tuple[object, ...]]()
    for one in hosts.journal():
        pair = one.get("row"), one.get("stage"), one.get("pair")
        if one["event"] == "failed":
            places = {place for place in places if place[:3] != pair}
        elif one["event"] == "measured":
            assert (*pair, one["side"]) not in places
            places.add((*pair, one["side"]))
    assert len({one["job"] for one in measured}) == len(measured)
    assert len({one["run"] for one in measured}) == len(measured)
    assert {one["run"] for one in measured if one["board"] == "b-2"} == runs_of(hosts)
    assert not hosts.state.jobs.list()
    return measured


def test_a_slow_head_is_found_on_boards_of_both_hosts_and_a_kill_repeats_no_run(
    hosts: NightHosts,
) -> None:
    planned = hosts.nightly("--dry-run")
    assert planned.exit_status == 0, said(planned)
    assert "host lab1 (this one): b-1\nhost lab2: b-2; its worker is alive\n" in planned.text
    told = json.loads(hosts.nightly("--dry-run", "--json").stdout)["hosts"]
    assert told["lab2"] == {"boards": ["b-2"], "is_this": False, "unserved": {}}

    write_source(hosts.lab1, "head", 60)
    words = ["nightly", "plan.yaml", "--host", "lab1"]
    with forked.start(words, cwd=hosts.lab1) as night:

        def is_under_way() -> bool:
            steps = [one["event"] for one in hosts.journal() if one.get("board") == "b-2"]
            assert night.poll() is None, night.communicate()
            return steps.count("measured") >= 2 and steps.count("queued") > steps.count("measured")

        assert wait_until(is_under_way, timeout=300, interval=0.02)
        night.kill()
        night.communicate()
    before = hosts.journal()
    queued = {str(one["job"]) for one in before if one["event"] == "queued"}

    done = hosts.nightly("--junit", "junit.xml", "--write", "summary=night.md")
    assert done.exit_status == 1, said(done)
    assert "continues" in said(done)
    for board in ("b-1", "b-2"):
        assert f"SLOWER         ticker/ticking@{board}" in done.text
    assert "NATIVE-HOST" in done.text
    steps = hosts.journal()
    assert steps[: len(before)] == before
    measured = check_each_place_has_one_run(hosts)
    assert queued <= {one["job"] for one in measured}  # what the first night had put there
    assert not hosts.state.baselines.list()
    assert (hosts.lab1 / "junit.xml").read_text().count("<failure") == 2
    assert "FAILED" in (hosts.lab1 / "night.md").read_text()
    (page,) = hosts.lab1.glob("nights/*/report.html")
    assert "slower" in page.read_text()
    assert "<script" not in page.read_text()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_night_and_a_worker_that_are_killed_at_random_repeat_no_run(hosts: NightHosts) -> None:
    chance = Random(int(os.environ.get("LABCTL_NIGHT_SEED", "20261123")))
    write_source(hosts.lab1, "head", 60)
    words, kills = ["nightly", "plan.yaml", "--host", "lab1"], 0

    def is_running() -> bool:
        return any(job.state == "running" for job in hosts.state.jobs.list())

    def ends_within(night: "subprocess.Popen[bytes]", seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            night.wait(chance.uniform(0.0, seconds))
        return night.poll() is not None

    with ExitStack() as ending:
        while not (results := list(hosts.lab1.glob("nights/*/result.json"))):
            with forked.start(words, cwd=hosts.lab1) as night:
                if kills == 2:  # its job is another's once it was silent for a minute
                    assert wait_until(is_running, timeout=120, interval=0.01)
                    hosts.worker.kill()
                    ending.enter_context(hosts.start_worker())
                if not ends_within(night, 6.0) and chance.random() < 0.3:
                    night.send_signal(signal.SIGSTOP)
                    time.sleep(chance.uniform(1.0, 4.0))  # as long as it stands still
                    night.send_signal(signal.SIGCONT)
                if not ends_within(night, 3.0):
                    night.kill()
                    kills += 1
                night.communicate()
    findings = json.loads(results[0].read_text())["findings"]
    assert [one["verdict"] for one in findings] == ["slower", "slower"]
    measured = check_each_place_has_one_run(hosts)
    sys.stdout.write(f"{kills} kills, {len(measured)} runs\n")
    assert kills > 2
