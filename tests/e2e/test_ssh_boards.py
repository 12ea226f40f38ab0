"""A board over ssh, used as any other: sessions of a real sshd within a virtual board's sandbox."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import agent_builds
import pytest
from cli_calls import LabctlIn
from labs import TALKING, LabUnderTest, blamed, give_talker, lab_with_board, said
from ssh_into_board import ssh_into
from sshd_host import SshHost

from labctl.board.probe_files import latest_probe
from labctl.records.board import Execution
from labctl.records.probe import BoardProbe

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]

#: A trial of each number of tokens; that of 12 is long enough to be struck in the middle.
TRIALS = ("--set", "matrix.tokens=[4, 12, 3]", "--set", "parameters.tokens=")


@pytest.fixture
def lab(tmp_path: Path, private_state: Path, rk3568: None) -> Iterator[LabUnderTest]:
    with lab_with_board(tmp_path, "--target", "rk3568") as lab:
        give_talker(lab, TALKING.replace(agent_builds.HOST, "rk3568"))
        yield lab


@pytest.fixture
def host(lab: LabUnderTest, tmp_path: Path) -> Iterator[SshHost]:
    with ssh_into(lab, tmp_path / "sshd") as host:
        yield host


def one_line_a_trial(lab: LabUnderTest, count: int = 3) -> None:
    (path,) = lab.root.glob("runs/*/records.jsonl")
    numbers = [json.loads(line)["number"] for line in path.read_text().splitlines()]
    assert numbers == list(range(1, count + 1))
    assert lab.end()["state"] == "finished"
    assert lab.run("shell", "vb", "--", "ls", f"{lab.board.workdir}/jobs").text == ""


def test_boards_shell_and_deploy(lab: LabUnderTest, host: SshHost) -> None:
    boards = lab.run("boards")
    assert boards.exit_status == 0, said(boards)
    assert "EMULATED" in boards.text
    assert lab.run("shell", "vb", "--", "sh", "-c", "exit 7").exit_status == 7
    recipe = lab.recipe()
    deployed = lab.run("deploy", recipe)
    assert deployed.exit_status == 0, said(deployed)
    again = lab.run("deploy", recipe)
    assert again.exit_status == 0, said(again)
    assert len(list(Path(lab.board.workdir, "store").iterdir())) >= 3


def test_a_run_goes_on_after_kill_9_of_its_controller(lab: LabUnderTest, host: SshHost) -> None:
    running = lab.start("run", "talking", *TRIALS)
    running.waiting_for(lambda: lab.is_under_way(2))
    running.process.send_signal(signal.SIGKILL)
    running.finish()
    done = lab.run("resume", "latest")
    assert done.exit_status == 0, said(done)
    assert "1 of 3 trials were finished" in said(done)
    one_line_a_trial(lab)
    records = sorted(lab.root.glob("runs/*/trials/*/record.json"))
    # The job that was under way was taken over: it did not notice.
    assert json.loads(records[1].read_text())["attempt"] == 1


def test_a_run_survives_a_cut_link(lab: LabUnderTest, host: SshHost) -> None:
    running = lab.start("run", "talking", *TRIALS)
    running.waiting_for(lambda: lab.is_under_way(1))
    host.hang_up()
    running.waiting_for(lambda: lab.is_under_way(2))
    host.hang_up()
    done = running.finish()
    assert done.exit_status == 0, said(done)
    one_line_a_trial(lab)
    for path in lab.root.glob("runs/*/trials/*/record.json"):
        assert json.loads(path.read_text())["attempt"] == 1


def test_a_run_that_loses_its_board_for_good_is_resumed(lab: LabUnderTest, host: SshHost) -> None:
    keys = host.folder / "authorized_keys"
    allowed = keys.read_text()
    running = lab.start("run", "talking", *TRIALS)
    running.waiting_for(lambda: lab.is_under_way(2))
    keys.write_text("")
    host.hang_up()
    lost = running.finish()
    assert lost.exit_status == 3, said(lost)
    keys.write_text(allowed)
    done = lab.run("resume", "latest")
    assert done.exit_status == 0, said(done)
    one_line_a_trial(lab)


def test_a_board_is_probed(lab: LabUnderTest, host: SshHost, measuring_briefly: LabctlIn) -> None:
    told, _ = measuring_briefly(lab.root, "boards", "probe", "--json")
    probe = BoardProbe.model_validate_json(told)
    assert latest_probe(lab.root, "vb") == probe
    assert probe.execution is Execution.EMULATED  # and never taken for rates of a board
    assert probe.memory[0].threads == 1
    assert {rate.pattern for rate in probe.storage} == {"sequential", "random", "mapping"}
    rates = [rate.bytes_per_second for rate in (*probe.memory, *probe.storage)]
    assert min(rates) > 0, rates
    assert any("EMULATED" in note for note in probe.notes)
    assert all(rate.bytes_read > 0 for rate in probe.storage)


def test_an_unknown_host_is_refused_with_what_to_do(lab: LabUnderTest, host: SshHost) -> None:
    host.known_hosts.write_text("")
    done = lab.run("shell", "vb", "--", "true")
    blamed(done, 255, "infra", "is not in known_hosts; it shows the ssh-ed25519 key SHA256:")
    assert "ssh-keyscan" in said(done)
    assert "unauthorised" in lab.run("boards").text


def test_a_changed_host_key_is_refused(lab: LabUnderTest, host: SshHost) -> None:
    kind, key = (host.folder / "user_key.pub").read_text().split()[:2]
    host.known_hosts.write_text(f"[127.0.0.1]:{host.port} {kind} {key}\n")
    done = lab.run("shell", "vb", "--", "true")
    blamed(done, 255, "infra", "is not the host it was", "ssh-keygen")
