"""People's commands while a lab is broken: none ends with infra, what is printed exists once."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from labctl.state.job import NewJob
from labctl.state.state import LabState

#: A board that no host serves: holding it keeps no job off its board.
SHELF = "b-shelf"
#: Recipes of clients have numbers from here on.
FIRST_NUMBER = 1_000_000
_READING = (
    ("queue", "--json"),
    ("boards", "history", SHELF),
    ("worker", "--list", "--json"),
    ("state", "audit", "--json"),
    ("hold", "--list", "--json"),
    ("baseline", "list", "--json"),
    ("serve", "token", "list"),
)
_WAITING = "retrying for at most 10 minutes"
_SUBMITTING = ("run", "hold", "reserve", "token", "bad")


@dataclass(frozen=True)
class Client:
    """One command; ``kind`` is what it submits, or ``read``."""

    number: int
    kind: str
    words: Sequence[str]
    output: Path

    @property
    def tag(self) -> str:
        """Name of what it makes."""
        return f"client-{self.number}"

    def said(self) -> str:
        """What it wrote, for a test that failed."""
        texts = (Path(f"{self.output}.{suffix}") for suffix in ("out", "err"))
        return f"{' '.join(self.words)}\n" + "\n".join(path.read_text() for path in texts)


@dataclass
class Clients:
    """The clients of one lab."""

    root: Path
    state: LabState
    server: "subprocess.Popen[str]"
    made: list[Client] = field(default_factory=list)
    running: list[Client] = field(default_factory=list)
    #: Jobs of clients that ended, by id.
    jobs: dict[str, NewJob] = field(default_factory=dict)
    #: Tags of what else must exist, with the question that counts it.
    others: dict[str, str] = field(default_factory=dict)
    #: Clients that waited for the database.
    waited: int = 0

    def start(self, count: int) -> None:
        """Start clients of the next kinds in turn, submitting and reading ones."""
        for _ in range(count):
            number = len(self.made)
            half = number // 2
            kind = _SUBMITTING[half % len(_SUBMITTING)] if number % 2 == 0 else "read"
            words = _words(kind, number, half)
            client = Client(number, kind, words, self.root / f"client-{number}")
            self._say([str(client.output), "--lab", str(self.root / "desk"), *words])
            self.made.append(client)
            self.running.append(client)

    def all_wait(self, count: int) -> bool:
        """Return True once the last ``count`` clients have said that they wait."""
        errors = [Path(f"{client.output}.err") for client in self.running[-count:]]
        return all(path.exists() and _WAITING in path.read_text() for path in errors)

    def finish(self) -> None:
        """Wait for the clients; each ended well, and what it made is there once."""
        if not self.running:
            return
        self._say("wait")
        assert self.server.stdout is not None
        ended = json.loads(self.server.stdout.readline())
        for client in self.running:
            assert ended[str(client.output)] == 0, client.said()
            self.waited += _WAITING in client.said()
            if client.kind == "run":
                job_id = Path(f"{client.output}.out").read_text().strip()
                job = self.state.jobs.get(job_id)
                assert job is not None, f"{job_id} does not exist: {client.said()}"
                self.jobs[job.id] = NewJob(job.name, job.content, job.boards, id=job.id)
            elif client.kind != "read":
                self.others[client.tag] = _COUNTS[client.kind]
                self._check(client.tag)
        self.running.clear()

    def forget(self) -> None:
        """A backup was restored: what was made after it is gone, but for the jobs."""
        self.others.clear()

    def check(self) -> None:
        """See that all that was made is there once, each job with one number of its own."""
        numbers = [_number(job) for job in self.jobs.values()]
        assert len(numbers) == len(set(numbers))
        question = "SELECT id, content FROM job JOIN job_content ON sha256 = request"
        rows = self.state.ask(f"{question} WHERE runner = 'worker'", {})
        there = [(name, request) for name, request in rows if name in self.jobs]
        assert len(there) == len(self.jobs)
        every = [_number_of(json.loads(request)) for _, request in rows]
        assert all(every.count(number) == 1 for number in numbers), "a job was submitted twice"
        for tag in self.others:
            self._check(tag)

    def _check(self, tag: str) -> None:
        found = self.state.ask(self.others[tag], {"tag": tag})[0][0]
        assert found == 1, f"{tag} is there {found} times"

    def _say(self, what: object) -> None:
        assert self.server.stdin is not None
        self.server.stdin.write(f"{json.dumps(what)}\n")
        self.server.stdin.flush()


#: How often what a client made is there. A hold ends an earlier hold: the audit log has each.
_COUNTS = {
    "hold": "SELECT COUNT(*) FROM audit WHERE action = 'hold' AND reason = :tag",
    "reserve": "SELECT COUNT(*) FROM reservation WHERE reason = :tag",
    "token": "SELECT COUNT(*) FROM access_token WHERE name = :tag",
    "bad": "SELECT COUNT(*) FROM audit WHERE action = 'health retired' AND reason = :tag",
}


def _words(kind: str, number: int, half: int) -> Sequence[str]:
    tag = f"client-{number}"
    match kind:
        case "run":
            recipe = f"parameters.number={FIRST_NUMBER + number}"
            return ("run", "sleeping", "--set", recipe, "--board", "b-1", "--detach")
        case "hold":
            return ("hold", SHELF, "--for", "2m", "--reason", tag)
        case "reserve":
            day = f"2{100 + number // 20_000:03d}-{number // 700 % 12 + 1:02d}"
            at = f"{day}-{number // 24 % 28 + 1:02d}T{number % 24:02d}:00"
            return ("hold", SHELF, "--from", at, "--for", "30m", "--reason", tag, "--json")
        case "token":
            return ("serve", "token", "add", tag)
        case "bad":
            return ("boards", "retire", SHELF, "--reason", tag)
    return _READING[half % len(_READING)]


def _number(job: NewJob) -> object:
    return _number_of(job.request)


def _number_of(request: object) -> object:
    assert isinstance(request, dict)
    return request["recipe"]["parameters"]["number"]


@contextmanager
def lab_clients(root: Path, state: LabState) -> Iterator[Clients]:
    """The clients of a lab; the process that forks them ends with the block."""
    script = str(Path(__file__).parent / "chaos_client.py")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, script], stdin=pipe, stdout=pipe, text=True) as server:
        try:
            yield Clients(root, state, server)
        finally:
            assert server.stdin is not None
            server.stdin.close()
            server.wait(120)
