"""``labctl deploy`` as users type it: several boards, plans, proofs, and what is removed."""

import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agent_builds
import forked
import pytest
from labs import RECIPE, said
from small_disk import fill, small_disk
from tiny_gguf import write_tiny_gguf

from labctl import process
from labctl.config.lab import find_lab
from labctl.config.target import load_target
from labctl.retry import wait_until
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.session import hold_board
from labctl.transport.base import remote_words
from labctl.transport.built_in import TRANSPORTS
from labctl.transport.hdc import HdcTcpConfig
from labctl.virtual.board import Served, VirtualBoard, serving

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(3000),
    pytest.mark.usefixtures("private_state"),
]


@dataclass
class Lab:
    root: Path
    boards: tuple[Served, ...]

    def run(self, *words: str, status: int = 0) -> process.Completed:
        command = () if words[:1] == ("store",) else ("deploy",)
        done = forked.run((*command, *words), cwd=self.root, timeout=280)
        assert done.exit_status == status, said(done)
        assert "Traceback" not in said(done)
        return done

    def json(self, *words: str, status: int = 0) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = json.loads(self.run(*words, "--json", status=status).text)
        return told

    def store(self, number: int = 0) -> Path:
        return self.boards[number].workdir / "store"

    def stored(self, name: str, number: int = 0) -> Path:
        """The file that is called so in a board's store."""
        (found,) = [p for p in self.store(number).glob("*.name") if p.read_text().strip() == name]
        return found.with_suffix("")

    def recipe(self, text: str = RECIPE) -> None:
        (self.root / "recipes").mkdir(exist_ok=True)
        (self.root / "recipes" / "tiny.yaml").write_text(text)


@pytest.fixture
def lab(tmp_path: Path, rk3568: None) -> Iterator[Lab]:
    root = tmp_path / "lab"
    (root / "models").mkdir(parents=True)
    write_tiny_gguf(root / "models" / "tiny.gguf")
    emulator = load_target("rk3568").emulator
    assert emulator is not None
    # The board says that it emulates; no program of the target is started here.
    words = (shutil.which(emulator.argv[0]) or sys.executable,)
    plans = [VirtualBoard(name, tmp_path / name, emulator=words) for name in ("vb0", "vb1")]
    with serving(*plans) as boards:
        entries = [
            f"  {board.name}: {{target: rk3568, workdir: {board.workdir}, tags: [desk],"
            f' transport: {{kind: hdc, link: tcp, address: "{board.address}"}}}}\n'
            for board in boards
        ]
        entries.append(
            "  gone: {target: rk3568, transport: {kind: hdc, link: tcp, address: '127.0.0.1:1'}}\n"
        )
        text = "default_board: vb0\nboards:\n" + "".join(entries)
        (root / "devices.yaml").write_text(text)
        made = Lab(root, tuple(boards))
        made.recipe()
        yield made


def test_one_boards_failure_does_not_stop_the_others(lab: Lab) -> None:
    first = lab.json("--all", status=3)
    assert [told["board"] for told in first] == ["vb0", "vb1", "gone"]
    assert [item["name"] for item in first[1]["sent"]] == ["llama-completion", "tiny.gguf"]
    assert first[2]["error"]["kind"] == "LinkRefused"
    for number in range(2):
        content = (lab.root / "models" / "tiny.gguf").read_bytes()
        assert lab.stored("tiny.gguf", number).read_bytes() == content
    second = lab.json("--tag", "desk")
    assert [told["sent"] for told in second] == [[], []]


def test_a_board_in_use_keeps_nobody_waiting_for_the_others(lab: Lab, tmp_path: Path) -> None:
    found, said_so = find_lab(lab.root, TRANSPORTS), tmp_path / "said"
    with (
        said_so.open("wb") as errors,
        HdcTcpConfig(address=lab.boards[1].address).open() as transport,
    ):
        with hold_board(found.board("vb1"), transport, found, BoardUse("test")):
            words = ("deploy", "--tag", "desk")
            running = forked.start(words, cwd=lab.root, stderr=errors.fileno())
            served = wait_until(
                lambda: len(list(lab.store().glob("*.name"))) == 3, timeout=120, interval=0.1
            )
            assert running.poll() is None
            assert not lab.store(1).exists()
        told = running.communicate(timeout=120)[0].decode()
    assert served, said_so.read_text()
    assert (running.returncode, told.count("has all 2 files; 2 were sent")) == (0, 2)
    text = said_so.read_text()
    assert text.count("waiting until it is free") == 1
    assert "\n  memory: " in text  # what a board needs is several lines
    assert "\\x0a" not in text


def test_a_plan_moves_nothing(lab: Lab) -> None:
    done = lab.run("--plan")
    assert "vb0 needs 2 files" in done.text
    assert "transfer time unknown, no speed was measured yet" in done.text
    assert "weights mapped" in done.text
    assert not lab.store().exists()


def test_what_will_not_fit_is_refused_without_a_terminal_unless_allowed(lab: Lab) -> None:
    (lab.boards[0].directory / ".labctl-fakes" / "memory_kb").write_text("800000\n")
    lab.recipe(RECIPE.replace("context: 128", "context: 16777216, batch: 4096, ubatch: 4096"))
    refused = lab.run(status=2)
    assert "use --yes" in said(refused)
    assert "the kernel cannot drop" in said(refused)
    assert not lab.store().exists()
    assert "has all 2 files; 2 were sent" in lab.run("--yes").text


@pytest.mark.soak
def test_what_a_model_larger_than_memory_costs_is_told_before_it_moves(lab: Lab) -> None:
    """The board says it has 4.5 MB; the rate of storage is the target's."""
    (lab.boards[0].directory / ".labctl-fakes" / "memory_kb").write_text("4395\n")
    done = lab.run("--plan")
    assert re.search(
        r"memory: tiny tiny: [\d.]+ MB of 4\.50 MB available: \d+ kB weights mapped,"
        r" 65\.5 kB KV cache, [\d.]+ kB compute buffers, 3\.95 MB program",
        done.text,
    )
    assert re.search(
        r"warning: tiny tiny needs [\d.]+ MB of 4\.50 MB, within 15% of what fits: it may"
        r" re-read \d+ kB from storage for every token, about [\d.]+ ms a token at 162 MB/s",
        done.text,
    )
    (told,) = lab.json("--plan")
    assert told["memory"][0]["kv_bytes"] == 65536
    assert told["memory"][0]["available_bytes"] == 4395 * 1024
    assert "1 variant may not fit in memory, " in said(lab.run(status=2))
    lab.run("--yes")
    assert "0 were sent" in lab.run().text  # what is there already needs no answer


def test_all_problems_are_told_before_the_first_byte(lab: Lab) -> None:
    devices = lab.root / "devices.yaml"
    text = devices.read_text().replace("tags: [desk]", "limits: {storage: 1kB}", 1)
    devices.write_text(text.replace(str(lab.boards[0].workdir), "/proc/labctl"))
    done = lab.run(status=3)
    assert "vb0 cannot take these files, for 2 reasons; nothing was sent" in said(done)
    assert "1. the board's shell user cannot write to /proc/labctl" in said(done)
    assert "2. the board's limits.storage is 1.00 kB" in said(done)


def test_damage_that_a_stamp_vouches_for_is_found_removed_and_mended(lab: Lab) -> None:
    lab.run()
    assert "3 of 3 files are good" in lab.run("store", "verify").text
    path = lab.stored("tiny.gguf")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with HdcTcpConfig(address=lab.boards[0].address).open() as transport:
        quoted = remote_words(str(path))
        stat = f"TZ=UTC0 stat -c '%s %i %y %z' {quoted} >{quoted}.stamp"
        transport.run(stat, timeout=30).check()
    assert lab.json()[0]["sent"] == []  # who can forge a stamp is believed until a proof
    done = lab.run("store", "verify", status=3)
    assert "vb0: tiny.gguf was damaged and is removed" in done.text
    assert "vb0: 2 of 3 files are good" in done.text
    assert [item["name"] for item in lab.json()[0]["sent"]] == ["tiny.gguf"]
    assert "3 of 3 files are good" in lab.run("store", "verify").text


@pytest.mark.soak
def test_boards_are_looked_after_at_once_and_none_hides_another(lab: Lab) -> None:
    lab.run("--tag", "desk")
    lab.stored("tiny.gguf", 1).write_bytes(b"torn")
    done = lab.run("store", "verify", "--all", status=3)
    assert done.text.splitlines() == [
        "vb0: 3 of 3 files are good",
        "vb1: tiny.gguf was damaged and is removed",
        "vb1: 2 of 3 files are good",
        "gone: failed: no board answers at 127.0.0.1:1: Connection refused",
    ]
    pruned = lab.json("store", "prune", "--free", "1000TB", "--dry-run", "--all", status=3)
    assert [told["board"] for told in pruned] == ["vb0", "vb1", "gone"]
    assert [sorted(item["name"] for item in told["removed"]) for told in pruned[:2]] == [
        ["llama-completion", "tiny.gguf"],
        ["llama-completion"],
    ]
    assert pruned[2]["error"]["kind"] == "LinkRefused"


def test_a_target_without_recipes_stops_only_its_own_boards(lab: Lab) -> None:
    devices = lab.root / "devices.yaml"
    devices.write_text(
        devices.read_text().replace("gone: {target: rk3568", "gone: {target: rk3588")
    )
    told = lab.json("--all", status=2)
    assert [item["name"] for item in told[1]["sent"]] == ["llama-completion", "tiny.gguf"]
    assert told[2]["error"]["kind"] == "ConfigError"


def test_what_was_not_used_for_long_goes_and_pins_stay(lab: Lab) -> None:
    lab.run()
    tool, model = lab.stored("llama-completion"), lab.stored("tiny.gguf")
    long_ago = lab.store().stat().st_mtime - 40 * 86400
    for path in (tool, model):
        os.utime(f"{path}.stamp", (long_ago, long_ago))
    left = lab.store() / f".part-{'a' * 64}"
    left.write_bytes(b"half")
    os.utime(left, (long_ago, long_ago))
    assert "pinned tiny.gguf" in lab.run("store", "pin", "tiny.gguf").text
    listed = lab.run("store", "list").text
    assert re.search(r"vb0: llama-completion  [\d.]+ MB, unused for 40 days$", listed, re.M)
    assert re.search(r"vb0: tiny.gguf  [\d.]+ kB, unused for 40 days, pinned$", listed, re.M)
    assert "incomplete" in listed
    planned = lab.run("store", "prune", "--dry-run").text
    assert "would remove: llama-completion" in planned
    assert "unused for 40 days" in planned
    assert tool.exists()
    (told,) = lab.json("store", "prune", "--older", "30d")
    assert sorted(item["name"] or item["path"] for item in told["removed"]) == [
        "llama-completion",
        f"store/{left.name}",
    ]
    assert (tool.exists(), left.exists(), model.exists()) == (False, False, True)
    lab.run("store", "pin", "--undo", "tiny.gguf")
    assert [i["name"] for i in lab.json("store", "prune", "--older", "30d")[0]["removed"]] == [
        "tiny.gguf"
    ]
    assert [path.read_text().strip() for path in lab.store().glob("*.name")] == ["agent"]


def test_a_disk_too_full_for_this_versions_agent_can_be_pruned(lab: Lab, tmp_path: Path) -> None:
    """An agent that an earlier version brought is there, and all that is left is filled."""
    with small_disk(tmp_path / "disk", 1000) as disk:
        devices = lab.root / "devices.yaml"
        workdir = disk / "labctl"
        devices.write_text(devices.read_text().replace(str(lab.boards[0].workdir), str(workdir), 1))
        (workdir / "store").mkdir(parents=True)
        agent = agent_builds.native_agent().read_bytes() + b"an earlier one"
        for name, content in (("agent", agent), ("model.gguf", bytes(200_000))):
            path = workdir / "store" / hashlib.sha256(content).hexdigest()
            path.write_bytes(content)
            path.chmod(0o755)
            Path(f"{path}.name").write_text(f"{name}\n")
            with HdcTcpConfig(address=lab.boards[0].address).open() as transport:
                stat = f"TZ=UTC0 stat -c '%s %i %y %z' {path} >{path}.stamp"
                transport.run(stat, timeout=30).check()
        fill(disk)
        (told,) = lab.json("store", "prune", "--free", "1GB")
        assert [item["name"] for item in told["removed"]] == ["model.gguf"]


def test_what_a_running_job_uses_stays(lab: Lab) -> None:
    lab.run()
    tool, model = lab.stored("llama-completion"), lab.stored("tiny.gguf")
    long_ago = lab.store().stat().st_mtime - 40 * 86400
    for path in (tool, model):
        os.utime(f"{path}.stamp", (long_ago, long_ago))
    agent, job = lab.stored("agent"), lab.boards[0].workdir / "jobs" / "1"
    words = [agent, "run", "--dir", job, "--timeout", "100", "--epoch", "1", "--", "/bin/sleep"]
    with HdcTcpConfig(address=lab.boards[0].address).open() as transport:
        make = remote_words("mkdir", "-p", str(job.parent))
        script = f"{make} && {remote_words(*map(str, words), '90')} {remote_words(str(model))}"
        # sleep refuses the second word; a shell that ignores it is what runs.
        script = script.replace("/bin/sleep 90", "/bin/sh -c 'sleep 90'")
        transport.run(script, timeout=30).check()
        (told,) = lab.json("store", "prune", "--free", "1000TB")
        assert [item["name"] for item in told["removed"]] == ["llama-completion"]
        transport.run(remote_words(str(agent), "stop", "--dir", str(job)), timeout=30).check()
        assert wait_until((job / "status.json").exists, timeout=120, interval=0.1)
    (told,) = lab.json("store", "prune", "--free", "1000TB")
    assert [item["name"] for item in told["removed"]] == ["tiny.gguf"]


def test_a_limited_rate_is_kept(lab: Lab) -> None:
    """Also for files that are too small for chunks; 9 MB at 3 MB/s are about 3 s."""
    assert "too slow for 1 board" in said(lab.run("--limit-rate", "10kB/s", status=2))
    began = time.monotonic()
    assert "2 were sent" in lab.run("--limit-rate", "3MB/s").text
    assert time.monotonic() - began > 2.5
