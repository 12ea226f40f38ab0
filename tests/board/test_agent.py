"""The agent's host side against scripted answers: what each failure means."""

import json
import re
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labctl.board.agent import BoardAgent
from labctl.board.job import JobSpec, JobState, Started
from labctl.errors import (
    BoardError,
    BoardNoSpace,
    BoardPermission,
    BoardRebooted,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    InfraError,
    LabctlError,
    LeaseLost,
    LinkRefused,
    ProgramFailed,
    ProtocolError,
    SurvivingProcess,
)
from labctl.records.board import BoardFacts, Execution
from labctl.records.trial import JobStatus
from labctl.runs.board.server_host import BoardServer, BoardServers
from labctl.transport.base import TransferOptions
from labctl.transport.testing import ScriptedTransport

STARTED = json.dumps(
    {
        "schema": 1,
        "pid": 10,
        "job_pid": 11,
        "boot_id": "boot",
        "start_mono_ns": 5,
        "emulator": None,
    }
)
SPEC = JobSpec(
    directory="/w/jobs/one", argv=("/w/store/x", "a b"), timeout_s=1.5, epoch=3, lease_path="/w/l"
)


def status(outcome: str = "exited", error: str | None = None) -> dict[str, object]:
    return {
        "outcome": outcome,
        "exit_status": 0,
        "error": error,
        "start_mono_ns": 1,
        "end_mono_ns": 2,
        "wall_ns": 1,
        "stdout_bytes": 3,
        "stderr_bytes": 0,
        "boot_id": "boot",
        "epoch": 3,
    }


def look(state: str, **more: object) -> str:
    seen = {"state": state, "boot_id": "boot", "mono_ns": 9, "status": None}
    return json.dumps({**seen, "stdout_bytes": 3, "stderr_bytes": None, **more})


def agent(*answers: str | tuple[int, str] | Exception) -> tuple[BoardAgent, ScriptedTransport]:
    link = ScriptedTransport(*answers)
    return BoardAgent(link, "/w/store/agent", "/w"), link


def failure(kind: str, message: str = "why") -> str:
    return json.dumps({"schema": 1, "error": kind, "message": message})


def test_a_job_is_started_with_every_word_quoted() -> None:
    board, link = agent(STARTED)
    started = board.start(SPEC)
    assert (started.pid, started.job_pid, started.boot_id) == (10, 11, "boot")
    (command,) = link.commands
    assert command == (
        "umask 022; { [ -d /w/jobs ] || mkdir -p /w/jobs; } &&"
        " /w/store/agent run --dir /w/jobs/one --timeout 1.500 --epoch 3"
        " --lease /w/l --sample-ms 1000 --max-output-bytes 67108864"
        " -- /w/store/x 'a b'"
    )


def test_variables_are_given_by_env() -> None:
    board, link = agent(STARTED)
    board.start(JobSpec("/w/jobs/one", ("/x",), 1, 3, environment={"A": "b c"}))
    assert "&& env 'A=b c' /w/store/agent run" in link.commands[0]


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ((75, failure("stale-epoch")), LeaseLost, "another controller"),
        ((127, failure("spawn-failed", "cannot execute /x: No such file")), ProgramFailed, "/x"),
        (
            (127, failure("spawn-failed", "cannot execute /x: its loader /lib/ld.so is not there")),
            ConfigError,
            "/lib/ld.so",
        ),
        (
            (127, failure("spawn-failed", "cannot execute /x: its interpreter /a\r is not there")),
            ConfigError,
            "/a",
        ),
        ((126, failure("exec-format")), ConfigError, "cannot execute"),
        ((2, failure("usage", "unknown option --new")), ProtocolError, "--new"),
        ((73, failure("directory", "x: No space left on device")), BoardNoSpace, "No space"),
        ((73, failure("directory", "x: Read-only file system")), BoardPermission, "Read-only"),
        ((73, failure("directory-used", "x already holds a job")), BoardError, "already holds"),
        ((1, "mkdir: '/w/jobs': Permission denied\n"), BoardPermission, "Permission denied"),
        ((126, "sh: agent: Exec format error\n"), ConfigError, "cannot execute the agent"),
        ((132, ""), ConfigError, "cannot execute the agent"),
        (
            (1, "sh: agent: not executable: 64-bit ELF file"),
            ConfigError,
            "cannot execute the agent",
        ),
        ((2, "agent: 1: Syntax error: word unexpected"), ConfigError, "cannot execute the agent"),
        ((126, "sh: agent: Permission denied"), BoardPermission, "Permission denied"),
        ((127, "sh: agent: inaccessible or not found"), BoardError, "not found"),
        ((0, "garbage\n"), ProtocolError, "cannot be understood"),
        ((0, ""), ProtocolError, "cannot be understood"),
        ((0, "{}"), ProtocolError, "cannot be understood"),
        ((0, "[1]"), ProtocolError, "cannot be understood"),
        ((9, ""), BoardError, "no reason given"),
    ],
)
def test_each_refusal_has_its_blame(
    answer: tuple[int, str], error: type[LabctlError], words: str
) -> None:
    board, _ = agent(answer)
    with pytest.raises(error, match=words) as caught:
        board.start(SPEC)
    assert type(caught.value) is error


def test_a_link_lost_while_starting_finds_the_job_again() -> None:
    board, link = agent(DeviceLost("cable"), LinkRefused("not yet"), look("running"), STARTED)
    assert board.start(SPEC).pid == 10
    assert sum("agent run" in command for command in link.commands) == 1


def test_a_job_that_a_lost_link_never_started_is_started() -> None:
    board, link = agent(DeviceLost("cable"), look("absent"), STARTED)
    assert board.start(SPEC).pid == 10
    assert sum("agent run" in command for command in link.commands) == 2


USED = (73, failure("directory-used", "/w/jobs/one already holds a job"))


def test_a_start_that_is_still_under_way_after_a_lost_link_is_waited_for() -> None:
    """The first command reached the board; its program was not executed yet when it was asked."""
    absent, runs = look("absent"), look("running")
    board, link = agent(DeviceLost("cable"), absent, USED, absent, runs, runs, STARTED)
    assert board.start(SPEC).pid == 10
    assert sum("agent run" in command for command in link.commands) == 2


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param((look("lost"),), id="at the first look"),
        pytest.param((look("absent"), USED, look("lost"), look("lost")), id="while it is awaited"),
    ],
)
def test_a_supervisor_killed_before_the_start_is_told_as_such(
    answers: tuple[str | tuple[int, str], ...],
) -> None:
    """There is no started.json then, and nobody to wait for."""
    missing = (1, "cat: /w/jobs/one/started.json: No such file or directory")
    board, _ = agent(DeviceLost("cable"), *answers, missing)
    with pytest.raises(BoardError, match="the agent was killed on the board") as caught:
        board.start(SPEC)
    assert type(caught.value) is BoardError


@pytest.mark.parametrize("left", ["", "\0" * 40, STARTED[:20]])
def test_a_start_whose_words_a_power_cut_took_is_over(left: str) -> None:
    """As if the link had failed, it would be asked for again by each resume, for ever."""
    board, _ = agent(look("lost", boot_id="another"), left)
    with pytest.raises(BoardError, match="its end is unknown") as caught:
        board.start(SPEC, again=True)
    assert type(caught.value) is BoardError


def test_a_job_of_somebody_else_is_not_waited_for() -> None:
    board, link = agent(USED)
    with pytest.raises(BoardError, match="already holds a job") as caught:
        board.start(SPEC)
    assert type(caught.value) is BoardError
    assert len(link.commands) == 1


@pytest.mark.parametrize("state", ["absent", "lost", "rebooted", "running"])
def test_a_restart_that_took_the_jobs_files_along_is_a_restart(state: str) -> None:
    """What was not on the board's disk yet when its power went is not there after it."""
    board, _ = agent(STARTED, look(state, boot_id="another"))
    with pytest.raises(BoardRebooted):
        board.wait(board.start(SPEC), timeout_s=1.5)


def test_a_job_that_ended_before_the_restart_has_ended() -> None:
    finished = look("finished", boot_id="another", status=status())
    board, _ = agent(STARTED, finished)
    assert board.wait(board.start(SPEC), timeout_s=1.5).outcome == "exited"


def test_what_was_printed_so_far_comes_with_a_look() -> None:
    sample = {
        "mono_ns": 8,
        "stdout": {"pieces": 3, "lines": 1, "bytes": 12, "first_ns": 5, "last_ns": 7},
        "temps_mc": {"thermal_zone0 soc": 61_000, "thermal_zone1 gpu": 48_500},
    }
    board, _ = agent(look("running", sample=sample, stderr_end="generate: "))
    seen = board.poll("/w/jobs/one")
    assert seen.sample is not None
    assert seen.sample.stdout is not None
    assert (seen.sample.stdout.pieces, seen.sample.stdout.last_ns) == (3, 7)
    assert seen.sample.stderr is None
    assert seen.sample.hottest_mc == 61_000
    assert seen.stderr_end == "generate: "


@pytest.mark.parametrize("sample", [None, {}, {"mono_ns": "x"}, [1], {"mono_ns": 1, "stdout": 3}])
def test_a_sample_that_cannot_be_read_does_not_end_a_run(sample: object) -> None:
    board, _ = agent(look("running", sample=sample))
    assert board.poll("/w/jobs/one").sample is None


def test_a_failure_to_start_that_a_lost_link_hid_is_found() -> None:
    failed = look("finished", status=status("spawn-failed", "cannot execute /x: gone"))
    board, _ = agent(DeviceLost("cable"), failed)
    with pytest.raises(ProgramFailed, match="gone"):
        board.start(SPEC)


def test_a_link_that_stays_lost_is_given_up() -> None:
    board, _ = agent(DeviceLost("cable"))
    with pytest.raises(DeviceLost):
        board.start(SPEC, reattach_s=0)


def test_waiting_ends_with_the_status_of_the_job() -> None:
    board, link = agent(STARTED, look("running"), look("finished", status=status()))
    seen = []
    job = board.wait(board.start(SPEC), timeout_s=1.5, on_progress=seen.append)
    assert (job.outcome, job.exit_status) == ("exited", 0)
    assert [progress.state for progress in seen] == [JobState.RUNNING, JobState.FINISHED]
    assert seen[0].stdout_bytes == 3
    assert seen[0].stderr_bytes is None
    assert link.commands[1] == "/w/store/agent wait --dir /w/jobs/one --seconds 10.000"


def test_a_job_that_never_ends_is_given_up() -> None:
    board, _ = agent(STARTED, look("running"))
    with pytest.raises(CommandTimeout, match="did not end the job"):
        board.wait(board.start(SPEC), timeout_s=-60)


def test_an_end_that_is_found_late_is_still_the_end() -> None:
    board, _ = agent(STARTED, look("finished", status=status()))
    assert board.wait(board.start(SPEC), timeout_s=-60).outcome == "exited"


def test_waiting_takes_a_lost_link_up_again() -> None:
    finished = look("finished", status=status())
    board, _ = agent(STARTED, DeviceLost("cable"), LinkRefused("booting"), finished)
    losses: list[LabctlError] = []
    job = board.wait(board.start(SPEC), timeout_s=1.5, on_link_loss=losses.append)
    assert job.outcome == "exited"
    assert [type(error) for error in losses] == [DeviceLost, LinkRefused]


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (look("lost"), BoardError, "the agent was killed"),
        (look("absent"), BoardError, "is gone"),
        (look("rebooted"), BoardRebooted, "restarted"),
        (look("new state"), ProtocolError, "cannot be understood"),
        (look("finished", status={"outcome": "exited"}), ProtocolError, "cannot be understood"),
    ],
)
def test_a_job_that_vanished_is_no_result(
    answer: str, error: type[LabctlError], words: str
) -> None:
    board, _ = agent(STARTED, answer)
    with pytest.raises(error, match=words):
        board.wait(board.start(SPEC), timeout_s=1.5)


def brought(files: dict[str, bytes], together: bool = True) -> bytes:
    """The board's answer to a request for the files of a job."""
    lines = (f"{sha256(raw).hexdigest()}  {len(raw)}  {name}\n" for name, raw in files.items())
    return "".join(lines).encode() + b"\n" + b"".join(files.values() if together else ())


FILES = {name: name.encode() for name in ("started.json", "status.json", "stdout")}


class Losing(ScriptedTransport):
    """Its link is lost once, while a file named so is fetched; its files are large."""

    def __init__(self, name: str, answer: bytes = brought(FILES, together=False)):
        super().__init__(answer)
        self.lost_at = name
        self.pulled: list[str] = []

    def pull(self, remote: str, local: Path, _: TransferOptions) -> None:
        self.pulled.append(local.name)
        if local.name == self.lost_at:
            self.lost_at = ""
            raise DeviceLost("the cable is out")
        local.write_text(remote)


def test_what_was_fetched_before_the_link_was_lost_is_not_fetched_again(tmp_path: Path) -> None:
    link, losses = Losing("stdout"), list[InfraError]()
    board = BoardAgent(link, "/w/store/agent", "/w")
    files = board.collect("/w/jobs/one", tmp_path, on_link_loss=losses.append)
    assert {name: path.read_text() for name, path in files.items()} == {
        name: f"/w/jobs/one/{name}" for name in FILES
    }
    assert sorted(link.pulled) == ["started.json", "status.json", "stdout", "stdout"]
    assert [loss.message for loss in losses] == ["the cable is out"]


def test_small_files_come_with_one_command(tmp_path: Path) -> None:
    raw = {**FILES, "stdout": b"\0\n\n\xff\x1e", "stderr": b""}
    link = Losing("", brought(raw))
    files = BoardAgent(link, "/w/store/agent", "/w").collect("/w/jobs/one", tmp_path)
    assert {name: path.read_bytes() for name, path in files.items()} == raw
    assert (len(link.commands), link.pulled) == (1, [])


def of_server(
    folder: Path, *answers: str | bytes | tuple[int, str]
) -> tuple[list[str], ScriptedTransport]:
    """Stop a server on a board that answers so; the notes for people."""
    link, notes = ScriptedTransport(*answers), list[str]()
    held: Any = SimpleNamespace(agent=BoardAgent(link, "/w/store/agent", "/w"))
    host = BoardServers(held, folder, 60, note=notes.append)
    started = {**json.loads(STARTED), "directory": "/w/jobs/serve-1"}
    BoardServer(host, Started.model_validate(started, extra="ignore"), 1).stop()
    return notes, link


def test_all_that_a_server_may_print_is_hashed_to_fetch_it(tmp_path: Path) -> None:
    printed = {**status(), "stdout_bytes": 800 << 20}
    files = brought({"status.json": b"", "stdout": b"", "stderr": b""})
    notes, link = of_server(tmp_path, look("finished", status=printed), files)
    asked = re.search(r"hash --plain (\d+) ", link.commands[-1])
    assert asked is not None
    assert int(asked[1]) >= 1 << 30
    assert len(notes) == 1  # the answer was a short one
    assert notes[0].startswith("the output of a server is not kept: the program changed the files")


def test_output_of_a_server_that_stays_on_the_board_is_noted(tmp_path: Path) -> None:
    changed = (1, "changed stdout: is larger than all that was written\n")
    notes, _ = of_server(tmp_path, look("finished", status=status()), changed)
    assert len(notes) == 1
    assert "stdout: is larger than all that was written" in notes[0]


def test_a_job_that_changed_its_files_is_not_read(tmp_path: Path) -> None:
    told = status("files-changed", "stdout is a FIFO")
    board, link = agent()
    with pytest.raises(ProgramFailed, match="stdout is a FIFO"):
        board.collect("/w/jobs/one", tmp_path, status=JobStatus.model_validate(told))
    assert link.commands == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((1, f"{'a' * 64}  5  stderr\nchanged stdout: is a symbolic link\n"), ProgramFailed),
        ((1, f"{'a' * 64}  5  stderr\nerror stdout: Input/output error\n"), BoardError),
    ],
)
def test_what_lies_in_place_of_a_file_is_the_jobs_fault_and_a_bad_disk_is_not(
    tmp_path: Path, answer: tuple[int, str], error: type[LabctlError]
) -> None:
    board, _ = agent(answer)
    with pytest.raises(error, match="stdout") as caught:
        board.collect("/w/jobs/one", tmp_path)
    assert type(caught.value) is error
    assert list(tmp_path.iterdir()) == []


def test_output_that_looks_like_that_answer_is_output(tmp_path: Path) -> None:
    raw = {**FILES, "stdout": b"changed stdout: is a FIFO\n"}
    link = Losing("", brought(raw))
    files = BoardAgent(link, "/w/store/agent", "/w").collect("/w/jobs/one", tmp_path)
    assert files["stdout"].read_bytes() == raw["stdout"]


def test_output_of_another_length_is_the_jobs_fault(tmp_path: Path) -> None:
    link = Losing("", brought({**FILES, "stdout": b"more", "stderr": b""}))
    board = BoardAgent(link, "/w/store/agent", "/w")
    with pytest.raises(ProgramFailed, match="stdout has 4 bytes, not 3"):
        board.collect("/w/jobs/one", tmp_path, status=JobStatus.model_validate(status()))


def test_a_process_that_stays_is_an_error_of_its_own() -> None:
    board, _ = agent((76, failure("survivor", "process 7 (worm) of an earlier job does not end")))
    with pytest.raises(SurvivingProcess, match=r"7 \(worm\)"):
        board.stop("/w/jobs/one")


@pytest.mark.parametrize(
    "came", [b"started.jsonstatus.jsonstdouT", b"started.jsonstatus.jsonstd", b"cat: no memory"]
)
def test_what_does_not_come_whole_with_the_others_is_fetched(tmp_path: Path, came: bytes) -> None:
    link = Losing("", brought(FILES, together=False) + came)
    files = BoardAgent(link, "/w/store/agent", "/w").collect("/w/jobs/one", tmp_path)
    assert files["stdout"].read_text() == "/w/jobs/one/stdout"
    assert "stdout" in link.pulled
    assert set(files) == set(FILES)


@pytest.mark.parametrize(
    "line", [f"{'a' * 64}  5  ../../evil", "surprise", f"{'a' * 64}  x  stdout"]
)
def test_a_list_of_files_that_is_none_is_not_believed(tmp_path: Path, line: str) -> None:
    link = Losing("", f"{line}\n\nxxxxx".encode())
    with pytest.raises(ProtocolError, match="files of a job"):
        BoardAgent(link, "/w/store/agent", "/w").collect("/w/jobs/one", tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_a_link_that_stays_lost_while_files_are_fetched_is_told(tmp_path: Path) -> None:
    with pytest.raises(DeviceLost):
        BoardAgent(Losing("stdout"), "/w/store/agent", "/w").collect(
            "/w/jobs/one", tmp_path, reattach_s=0
        )


@pytest.mark.parametrize(
    "directory", ["/", "/w", "/w/jobs", "/w/jobs/", "/w/jobs/..", "/w/jobs/a/b"]
)
def test_only_directories_of_jobs_are_removed(directory: str) -> None:
    board, link = agent("")
    with pytest.raises(ConfigError):
        board.remove(directory)
    assert link.commands == []
    board.remove("/w/jobs/it's")
    assert link.commands == [board.fence.guarded("rm -rf '/w/jobs/it'\"'\"'s'")]


FACTS = BoardFacts(
    execution=Execution.BOARD, machine="armv7l", kernel="5", boot_id="boot", os_version="OH"
)
SEEN = {
    "machine": "aarch64",
    "kernel": "5.10",
    "boot_id": "boot",
    "cpus": [{"count": 6, "part": "0xd05", "features": ["fp"]}],
    "cpus_allowed": "0-2,5",
    "memory_total_bytes": 10,
    "memory_available_bytes": None,
    "devfreq": [],
}


def test_the_agent_refines_what_the_probe_saw() -> None:
    board, _ = agent(json.dumps(SEEN))
    facts = board.refine(FACTS)
    assert (facts.machine, facts.cores, facts.memory_total_bytes) == ("aarch64", 4, 10)
    assert facts.memory_available_bytes is None
    assert facts.os_version == "OH"
    assert facts.execution is Execution.BOARD


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpus": None},
        {"memory_total_bytes": "much"},
        {"kernel": None},
        {"cpus_allowed": "all"},
        {"cpus_allowed": "3-1"},
    ],
)
def test_facts_of_another_shape_are_not_taken(wrong: dict[str, object]) -> None:
    board, _ = agent(json.dumps({**SEEN, **wrong}))
    with pytest.raises(ProtocolError, match="cannot be understood"):
        board.refine(FACTS)


def test_a_board_that_restarted_since_the_probe_is_noticed() -> None:
    board, _ = agent(json.dumps({**SEEN, "boot_id": "another"}))
    with pytest.raises(BoardRebooted):
        board.refine(FACTS)
