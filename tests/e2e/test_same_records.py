"""The same recipe over hdc, adb and ssh: the records differ by the way to the board alone."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import agent_builds
import pytest
from labs import LabUnderTest, give_talker, lab_with_board, lab_with_phone, said
from official_adb import official_adb
from ssh_into_board import ssh_into

#: Times, ids, the transport, and what a phone tells of itself beyond other boards.
MAY_DIFFER = {
    *("id", "boot_id", "started", "finished", "transport"),
    *("os_version", "phone", "phone_state", "power_source", "serial", "shell"),
}
#: What no two trials have in common.
MEASURED = {
    *("least_available_bytes", "others_share", "max_rss_bytes", "tokens_per_second", "seconds"),
    *("context_switches", "page_faults", "minor_faults", "major_faults", "samples"),
    *("reclaim_share", "steal_share", "memory_available_bytes", "storage_free_bytes"),
    "job",  # its id in the queue; of a record, the agent's report
}
#: Checks whose result is the host's matter: other tests use its CPUs.
OF_A_BUSY_HOST = {"quiet", "steal", "stamps", "drift"}

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@contextmanager
def reached_by(way: str, root: Path) -> Iterator[LabUnderTest]:
    """A lab with the talker; its board is reached by ``way``."""
    root.mkdir()
    if way == "adb":
        with official_adb("29", root) as adb, lab_with_phone(root, adb) as lab:
            yield lab
        return
    with lab_with_board(root, "--target", agent_builds.HOST) as lab:
        give_talker(lab)
        devices = lab.root / "devices.yaml"
        devices.write_text(devices.read_text().replace("rk3568", agent_builds.HOST))
        if way == "ssh":
            with ssh_into(lab, root / "sshd", agent_builds.HOST):
                yield lab
        else:
            yield lab


def alike(document: Any, key: str = "") -> Any:
    """A document of a run without what may differ; of measurements, their kind and number."""
    if isinstance(document, dict):
        document = {k: alike(v, k) for k, v in document.items() if k not in MAY_DIFFER}
        if document.get("name") in OF_A_BUSY_HOST:
            del document["ok"]
        return document
    if isinstance(document, list):
        return [alike(one, key) for one in document]
    if key in MEASURED or key.endswith("_ns"):
        return type(document).__name__
    return re.sub(r"[\d.]+( [nµm]?s\b)?", "N", document) if key == "detail" else document


def test_records_differ_by_the_way_alone(tmp_path: Path, private_state: Path) -> None:
    agent_builds.native_agent()
    found = {}
    for way in ("hdc", "adb", "ssh"):
        with reached_by(way, tmp_path / way) as lab:
            done = lab.run("run", "talking", "--set", "parameters.tokens=4", "--set", "repeats=2")
            assert done.exit_status == 0, said(done)
            (folder,) = lab.root.glob("runs/*/records.jsonl")
            run = json.loads((folder.parent / "run.json").read_text())
            assert run["transport"] == way
            texts = folder.read_text().replace(lab.board.workdir, "WORKDIR").splitlines()
            found[way] = [alike(one) for one in (run, *map(json.loads, texts), lab.end())]
    assert len(found["hdc"]) == 4
    assert found["adb"] == found["hdc"]
    assert found["ssh"] == found["hdc"]
