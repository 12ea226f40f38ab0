"""Jobs that leave their supervisor behind: what keeps them, and what finds and ends them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import agent_builds
import pytest
from jobs import Job, answer, host_pid, is_alive, soon

from labctl import process

pytestmark = pytest.mark.e2e

#: Kills its supervisor once `{live}` has written the pid of what is to live on.
HOSTILE = """
import json, os, sys, time
def live_on():
    {live}
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        live_on()
    os._exit(0)
while not os.path.exists("{pid}"):
    time.sleep(0.01)
os.kill(json.load(open("started.json"))["pid"], 9)
time.sleep(600)
"""
#: Each puts off some of the signs by which it is known.
LIVES = {
    "as it is": "os.execv('/bin/sleep', ['sleep', '601'])",
    "without environment": "os.execve('/bin/sleep', ['sleep', '601'], {})",
    "nothing of the job": (
        "os.chdir('/'); os.closerange(0, 1000);"
        " os.execve('/bin/sleep', ['kthreadd', '601'], {'LABCTL_JOB': '/elsewhere'})"
    ),
    "its main thread has ended": (
        "import ctypes, threading; os.chdir('/'); os.closerange(0, 1000);"
        " threading.Thread(target=time.sleep, args=(601,)).start();"
        " ctypes.CDLL(None).pthread_exit(None)"
    ),
    "it forks all the time": (
        "end = time.time() + 120; os.chdir('/'); os.closerange(0, 1000)\n"
        "    while time.time() < end:\n"  # none is left for long, whatever the test finds
        "        if os.fork(): os._exit(0)\n        time.sleep(0.002)"
    ),
}


class Board:
    """The folders of a board, and its agent; without PID namespaces, unless it has them."""

    def __init__(self, root: Path, *, namespaces: bool = False):
        self.root = root
        for folder in ("jobs", "store", "fakes"):
            (root / folder).mkdir(parents=True)
        if not namespaces:
            (root / "fakes" / "no_pid_namespaces").write_text("1\n")
        self.environment = {
            "LABCTL_SANDBOX": str(root),
            "LABCTL_SANDBOX_FAKES": str(root / "fakes"),
        }
        self.lease = root / "lease"
        self.pid = root / "pid"
        self.epoch = 0
        self.prefix: tuple[str, ...] = ()

    def job(self, name: str = "one") -> Job:
        folder = self.root / "jobs" / name
        return Job(agent_builds.native_agent(), folder, self.environment, self.prefix)

    def start(self, job: Job, *words: str) -> dict[str, object]:
        return job.start(*words, options=("--lease", str(self.lease)))

    def hostile(self, live: str) -> int:
        """Run a job that kills its supervisor; return the process that lives on."""
        noted = (
            f"open('{self.pid}.new', 'w').write(str(os.getpid()))\n"
            f"    os.rename('{self.pid}.new', '{self.pid}')\n    {live}"
        )
        script = HOSTILE.format(live=noted, pid=self.pid)
        job = self.job()
        supervisor = self.start(job, sys.executable, "-c", script)["pid"]
        assert isinstance(supervisor, int)
        assert soon(lambda: self.pid.exists() and not is_alive(supervisor))
        return int(self.pid.read_text())

    def take(self) -> tuple[int, dict[str, object]]:
        self.epoch += 1
        numbers = ("--epoch", str(self.epoch), "--before", str(self.epoch - 1))
        words = ("take", "--lease", str(self.lease), *numbers, "--jobs", str(self.root / "jobs"))
        text = json.dumps({"epoch": self.epoch})
        command = [*self.prefix, agent_builds.native_agent(), *words, "--", text]
        done = process.run(command, timeout=60, env={**os.environ, **self.environment})
        return done.exit_status, answer(done)

    def left(self) -> list[int]:
        """All processes of its jobs that live, whatever they put off: the limit stays."""
        job = self.job("asks")
        job.start("/bin/grep", LIMIT, "/proc/self/limits")
        job.finish()
        own = job.read("stdout").decode().strip()
        return [pid for pid in _pids() if _limit(pid) == own and is_alive(pid)]


LIMIT = "Max file locks"


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _limit(pid: int) -> str | None:
    with suppress(FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
        return next((line.strip() for line in lines if line.startswith(LIMIT)), None)
    return None


@contextmanager
def beside(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is no job's, started in a folder."""
    running = process.start(["sleep", "600"], cwd=folder, stderr=None)
    try:
        yield running
    finally:
        if running.poll() is None:
            process.stop(running)
        assert running.stdout is not None
        running.stdout.close()


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    board = Board(tmp_path / "board")
    yield board
    board.take()


@pytest.fixture
def confining(tmp_path: Path) -> Board:
    if process.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], timeout=60).exit_status:
        pytest.skip("this host permits no PID namespace")
    return Board(tmp_path / "board", namespaces=True)


@pytest.mark.parametrize("live", LIVES.values(), ids=LIVES.keys())
def test_what_killed_its_supervisor_is_ended_and_named_by_the_next_holder(
    board: Board, live: str
) -> None:
    pid = board.hostile(live)
    status, told = board.take()
    assert status == 0, told
    survivors = told["survivors"]
    assert isinstance(survivors, list)
    assert all(one["name"] and one["sign"] == "limit" for one in survivors)
    if "os.fork()" not in live:
        assert pid in [one["pid"] for one in survivors]
    assert board.left() == []
    assert board.take() == (0, {"schema": 1})


def test_the_next_job_of_the_same_holder_ends_it_too(board: Board) -> None:
    """It says that its job had ended: no lease is taken then before the next job."""
    pid = board.hostile(LIVES["nothing of the job"])
    started = board.start(board.job("two"), "/bin/true")
    assert [one["pid"] for one in started["survivors"]] == [pid]  # type: ignore[attr-defined]
    assert not is_alive(pid)


def test_what_stands_for_long_below_a_supervisor_that_hangs_is_ended_too(board: Board) -> None:
    """It is no survivor as long as its supervisor lives."""
    job = board.job()
    script = f"setsid sh -c 'cd /; echo $$ >{board.pid}; exec sleep 606' & wait"
    supervisor = board.start(job, "/bin/sh", "-c", script)["pid"]
    assert isinstance(supervisor, int)
    assert soon(lambda: board.pid.exists() and board.pid.read_text().strip())
    pid = int(board.pid.read_text())
    time.sleep(11)  # what is younger is looked at again and again
    (job.directory / "started.json").unlink()  # as its job can
    os.kill(supervisor, signal.SIGSTOP)
    status, told = board.take()
    assert status == 0, told
    assert not is_alive(supervisor)
    assert not is_alive(pid)
    assert board.left() == []


def test_a_job_of_another_board_of_this_host_goes_on(board: Board, tmp_path: Path) -> None:
    other = Board(tmp_path / "other")
    pid = other.hostile(LIVES["nothing of the job"])
    running = other.start(other.job("running"), "/bin/sleep", "600")["job_pid"]
    assert isinstance(running, int)
    assert not is_alive(pid)  # by the start of that job
    assert board.take() == (0, {"schema": 1})
    assert is_alive(running)
    assert other.take()[0] == 0
    assert not is_alive(running)


def test_people_look_at_files_of_jobs(board: Board) -> None:
    """As from a shell of hdc: a process stands above it that has nothing to do with a job."""
    job = board.job()
    board.start(job, "/bin/true")
    job.finish()
    with beside(job.directory) as reader:
        assert board.take() == (0, {"schema": 1})
        assert reader.poll() is None


def test_a_process_that_stays_keeps_everybody_out(tmp_path: Path) -> None:
    """Its user is another one by then: the agent of the shell's user cannot end it."""
    if os.geteuid() != 0:
        pytest.skip("only root makes a program of another user")
    board = Board(tmp_path / "board")
    program = tmp_path / "become-root"
    shutil.copy(Path(sys.executable).resolve(), program)
    program.chmod(0o4755)
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o011)
    script = (
        f"import posix, time; posix.setresuid(0, 0, 0); posix.chdir('/');"
        f" open('{board.pid}', 'w').write(str(posix.getpid()) + chr(10)); time.sleep(601)"
    )
    for path in (board.root, *board.root.iterdir()):
        os.chown(path, 65534, 65534)
    agent = tmp_path / "agent"
    shutil.copy(agent_builds.native_agent(), agent)
    agent.chmod(0o755)
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    environment = {**board.environment, "PYTHONHOME": sysconfig.get_config_var("prefix")}
    job = Job(agent, board.root / "jobs" / "one", environment, prefix=nobody)
    started = job.start(str(program), "-S", "-c", script)
    assert soon(lambda: board.pid.exists() and board.pid.read_text().endswith("\n"))
    pid = int(board.pid.read_text())
    try:
        os.kill(started["pid"], 9)
        words = ["take", "--lease", board.lease, "--epoch", "1", "--before", "0", "--jobs"]
        words += [board.root / "jobs", "--", '{"epoch": 1}']
        done = process.run(
            [*nobody, agent, *words], timeout=60, env={**os.environ, **board.environment}
        )
        told = answer(done)
        assert (done.exit_status, told["error"]) == (76, "survivor")
        assert str(pid) in told["message"]
        assert "become-root" in told["message"]
        assert not board.lease.exists()
    finally:
        os.kill(pid, 9)


def test_in_a_namespace_no_job_reaches_its_supervisor(confining: Board) -> None:
    job = confining.job()
    script = (
        "import json, os\n"
        "for pid in json.load(open('started.json'))['pid'], os.getppid() or 10**6:\n"
        "    try: os.kill(pid, 9)\n"
        "    except ProcessLookupError: print('no such process', flush=True)\n"
        "names = [n for n in os.listdir('/proc') if n.isdigit()]\n"
        "own = open('/proc/self/stat').read().split()[0]\n"
        "print(len(names), os.getcwd(), own == str(os.getpid()))\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    os.closerange(0, 9)\n"
        "    if os.fork() == 0: os.execve('/bin/sleep', ['sleep', '602'], {})\n"
        "    os._exit(0)\n"
        "raise SystemExit(7)\n"
    )
    started = confining.start(job, sys.executable, "-c", script)
    assert started["confinement"] == "pid-namespace"
    status = job.finish()
    assert (status["outcome"], status["exit_status"]) == ("exited", 7)
    assert status["leftover_processes"] == 1
    assert status["confinement"] == "pid-namespace"
    assert job.read("stdout").decode().splitlines() == [
        *["no such process"] * 2,
        f"2 {job.directory} True",
    ]


def test_beneath_the_proc_of_a_namespace_is_no_other(confining: Board) -> None:
    job = confining.job()
    script = "ls -d /sys/kernel; umount /proc && ls -d /proc/[0-9]* /proc/self || echo nothing"
    assert confining.start(job, "/bin/sh", "-c", script)["confinement"] == "pid-namespace"
    job.finish()
    assert job.read("stdout").decode().splitlines() == ["/sys/kernel", "nothing"]


def test_a_namespace_ends_with_its_supervisor(confining: Board) -> None:
    job = confining.job()
    script = f"setsid sh -c 'cd /; echo $$ >{confining.pid}; exec sleep 603' & wait"
    supervisor = confining.start(job, "/bin/sh", "-c", script)["pid"]
    assert isinstance(supervisor, int)
    assert soon(lambda: confining.pid.exists() and confining.pid.read_text().strip())
    pid = host_pid(int(confining.pid.read_text()), supervisor)
    os.kill(supervisor, 9)
    assert soon(lambda: not is_alive(pid))
    assert confining.take() == (0, {"schema": 1})


@pytest.mark.parametrize("make", [Board, lambda root: Board(root, namespaces=True)])
def test_a_job_cannot_say_that_it_has_ended(make: Callable[[Path], Board], tmp_path: Path) -> None:
    board = make(tmp_path / "board")
    job = board.job()
    script = (
        'echo \'{"schema":1,"outcome":"exited","exit_status":0}\' >status.json;'
        f" echo >{tmp_path}/written; sleep 604"
    )
    job_pid = board.start(job, "/bin/sh", "-c", script)["job_pid"]
    assert isinstance(job_pid, int)
    assert soon((tmp_path / "written").exists)
    assert job.look()["state"] == "running"
    stopped = job.look("stop", 30)
    assert stopped["status"]["outcome"] == "stopped"
    assert not is_alive(job_pid)


def test_what_a_job_writes_of_its_start_moves_no_signal(board: Board) -> None:
    """A process that it names is left alone; its own end comes all the same."""
    job = board.job()
    with beside(board.root) as other:
        named = {"pid": other.pid, "job_pid": other.pid, "boot_id": str(board.root)}
        script = f"echo '{json.dumps(named)}' >x; mv x started.json; echo >{board.pid}; sleep 605"
        job_pid = board.start(job, "/bin/sh", "-c", script)["job_pid"]
        assert isinstance(job_pid, int)
        assert soon(board.pid.exists)
        assert board.take()[0] == 0
        assert not is_alive(job_pid)
        assert other.poll() is None


#: `run` starts a job of the present lease, `look` waits for its end.
IN_ITS_OWN_PIDS = """\
set -u
lease="--lease $PWD/lease --epoch"
run() { job=$1; shift; "$AGENT" run --dir $PWD/jobs/$job --timeout 60 $lease 1 -- "$@"; }
look() { "$AGENT" wait --dir $PWD/jobs/$1 --seconds 60; }
"""
#: Goes on until it is told to end.
GOES_ON = "sh -c 'while [ ! -e go ]; do sleep 0.05; done'"


def on_a_board(board: Board, script: str) -> list[dict[str, Any]]:
    """Run a script where orphans go to the first process, as on a board; return the answers."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if process.run([*unshare, "true"], timeout=60).exit_status:
        pytest.skip("this host permits no PID namespace")
    environment = {"AGENT": str(agent_builds.native_agent()), **board.environment}
    done = process.run(
        [*unshare, "sh", "-c", script],
        timeout=120,
        env={**os.environ, **environment},
        cwd=board.root,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def outcomes(seen: dict[str, Any]) -> tuple[str, str, int]:
    return (seen["state"], seen["status"]["outcome"], seen["status"]["exit_status"])


WELL = ("finished", "exited", 0)


@pytest.mark.parametrize("namespaces", [False, True])
def test_two_jobs_of_one_lease_both_end_well(tmp_path: Path, namespaces: bool) -> None:
    board = Board(tmp_path / "board", namespaces=namespaces)
    script = f"{IN_ITS_OWN_PIDS} run one {GOES_ON}; run two true; touch jobs/one/go"
    first, second, *seen = on_a_board(board, f"{script}; look one; look two")
    assert "survivors" not in first
    assert "survivors" not in second
    assert [outcomes(one) for one in seen] == [WELL, WELL]


def test_a_second_start_in_a_directory_leaves_the_first(tmp_path: Path) -> None:
    """As when the answer to the first command was lost while the board began the job."""
    board = Board(tmp_path / "board")
    script = f"{IN_ITS_OWN_PIDS} run one {GOES_ON}; run one true; touch jobs/one/go; look one"
    _, again, seen = on_a_board(board, script)
    assert again["error"] == "directory-used"
    assert outcomes(seen) == WELL


def test_a_second_start_in_a_directory_ends_nothing(board: Board) -> None:
    """It is refused before anything is looked for."""
    pid = board.hostile(LIVES["nothing of the job"])
    done = board.job().run("/bin/true", options=("--lease", str(board.lease)))
    assert answer(done)["error"] == "directory-used"
    assert is_alive(pid)


def test_what_a_lost_job_left_ends_alone(tmp_path: Path) -> None:
    board = Board(tmp_path / "board")
    script = f"""{IN_ITS_OWN_PIDS} run one {GOES_ON}; run two {GOES_ON}
        kill -9 $(grep -o '"pid":[0-9]*' jobs/two/started.json | cut -d: -f2)
        "$AGENT" stop --dir $PWD/jobs/two --seconds 5 $lease 1
        touch jobs/one/go; look one"""
    *_, stopped, seen = on_a_board(board, script)
    assert stopped["state"] == "lost"
    assert outcomes(seen) == WELL


@pytest.mark.parametrize("place", ["store", "bin"])
def test_jobs_of_another_folder_go_on(tmp_path: Path, place: str) -> None:
    """Of another lab, which has brought another agent, perhaps to no store of a board's."""
    board = Board(tmp_path / "board")
    other = board.root / "other"
    for folder in (other / "jobs", other / place):
        folder.mkdir(parents=True)
    shutil.copy(agent_builds.native_agent(), other / place / "agent")
    away = f"other/{place}/agent run --dir {other}/jobs/one --timeout 60 --epoch 1 -- {GOES_ON}"
    script = f"""{IN_ITS_OWN_PIDS} unset LABCTL_SANDBOX; {away}; run two true
        "$AGENT" take $lease 2 --before 0 --jobs $PWD/jobs -- '{{"epoch":2}}'
        touch other/jobs/one/go; look ../other/jobs/one"""
    _, started, taken, seen = on_a_board(board, script)
    assert "survivors" not in started
    assert "survivors" not in taken
    assert outcomes(seen) == WELL


@pytest.mark.parametrize("marked", [True, False])
def test_what_pretends_to_be_a_supervisor_is_ended(board: Board, marked: bool) -> None:
    """Where the agent's own limit is too low for a mark, and where the job lowers the mark."""
    if not marked:
        board.prefix = ("prlimit", "--locks=5:5")
    pid = board.hostile(
        "import resource; resource.setrlimit(10, (5, 5)); os.execv('/bin/sh',"
        " ['agent', '-c', 'sleep 606; :', 'run', '--dir', '/x/jobs/one'])"
    )
    environment = Path(f"/proc/{pid}/environ")  # empty for a moment after the exec
    assert soon(lambda: Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"agent\0"))
    assert soon(lambda: b"LABCTL_JOB" in environment.read_bytes())
    status, told = board.take()
    assert status == 0, told
    assert pid in [one["pid"] for one in told["survivors"]]  # type: ignore[attr-defined]
    assert not is_alive(pid)


@pytest.mark.parametrize("user", [0, 65534])
@pytest.mark.parametrize("begin", ["prlimit --locks=1000:1000", "env -C jobs", "env -C jobs/one"])
def test_what_is_no_job_goes_on(tmp_path: Path, user: int, begin: str) -> None:
    """A service with a lower limit, and a server from a shell in the folder of jobs."""
    if os.geteuid() != 0:
        pytest.skip("only root becomes another user")
    board = Board(tmp_path / "board")
    del board.environment["LABCTL_SANDBOX"]  # its mark is another one
    (board.root / "jobs" / "one").mkdir()
    for path in (board.root, *board.root.rglob("*")):
        os.chown(path, user, user)
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o011)
    agent = board.root / "agent"
    shutil.copy(agent_builds.native_agent(), agent)
    become = f"setpriv --reuid={user} --regid={user} --clear-groups"
    script = f"""lease="--lease $PWD/lease --epoch"
        (setsid {become} {begin} sleep 607 <&- >&- 2>&- & echo $! >fakes/daemon)
        pid=$(cat fakes/daemon)
        until grep -q sleep /proc/$pid/comm; do sleep 0.05; done
        {become} $PWD/agent take $lease 1 --before 0 --jobs $PWD/jobs -- '{{"epoch":1}}'
        grep -q sleep /proc/$pid/comm && echo '{{"alive": true}}'"""
    assert on_a_board(board, script) == [{"schema": 1}, {"alive": True}]


@pytest.mark.parametrize("left", ["exec 9<started.json; cd /", "cp /bin/sleep .; PATH=.:$PATH"])
def test_what_uses_files_of_a_job_is_ended(tmp_path: Path, left: str) -> None:
    """By nothing but them: it was no job's child."""
    board = Board(tmp_path / "board")
    (board.root / "jobs" / "one").mkdir()
    (board.root / "jobs" / "one" / "started.json").touch()
    script = f"""lease="--lease $PWD/lease --epoch"
        (setsid sh -c 'cd jobs/one; {left}; exec sleep 607' <&- >&- 2>&- & echo $! >fakes/daemon)
        until grep -q sleep /proc/$(cat fakes/daemon)/comm; do sleep 0.05; done
        "$AGENT" take $lease 1 --before 0 --jobs $PWD/jobs -- '{{"epoch":1}}'"""
    (taken,) = on_a_board(board, script)
    assert [one["sign"] for one in taken["survivors"]] == ["folder"]
