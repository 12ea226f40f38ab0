"""Output of short programs in an image: asked once, since an image never changes."""

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from labctl import process
from labctl.build.container.engine import Engine
from labctl.build.container.run import Containers
from labctl.errors import HostError, ToolMissing
from labctl.files import write_atomic
from labctl.folders import cache_dir

#: The first start of an image can be slow: some storage drivers copy all of it.
ASK_SECONDS = 180.0
LABEL = "labctl.build=questions"

_SYSTEM = re.compile(r'^PRETTY_NAME="?(.*?)"?$', re.MULTILINE)


class _Known(BaseModel):
    """Known output of an image's programs."""

    engine: str
    """Another engine version may isolate differently."""
    isolated: bool
    """True if the engine can start its containers without a network."""
    answers: dict[str, str | None]


class Image:
    """An image of an engine, with the known answers of its programs. Raises HostError."""

    def __init__(self, engine: Engine, image: str):
        self.engine = engine
        self.id = image
        self._path = cache_dir() / "containers" / f"{image.removeprefix('sha256:')}.json"
        self._known = self._remembered() or _Known(
            engine=str(engine), isolated=self.is_isolated(), answers={}
        )

    @property
    def isolated(self) -> bool:
        """True if compilers in it have no network."""
        return self._known.isolated

    @property
    def machine(self) -> str:
        """Name that ``uname -m`` prints in it."""
        machine = self.ask(["uname", "-m"])
        if machine is None:
            raise HostError(f"no uname in the image {self.id}")
        return machine.strip()

    @property
    def system(self) -> str | None:
        """Operating system in it."""
        found = _SYSTEM.search(self.ask(["cat", "/etc/os-release"]) or "")
        return found[1] if found else None

    def ask(self, words: Sequence[str]) -> str | None:
        """Return a program's standard output; ``None`` if it is missing or fails."""
        question = "\0".join(words)
        if question not in self._known.answers:
            self._known.answers[question] = self._ask(words, network=not self.isolated)
            write_atomic(self._path, self._known.model_dump_json())
        return self._known.answers[question]

    def is_isolated(self) -> bool:
        """Start a container without a network, and return True if it can reach none.

        Raises HostError if no container starts at all.
        """
        try:
            routes = self._ask(["cat", "/proc/net/route", "/proc/net/ipv6_route"], network=False)
        except HostError:
            self._ask(["true"], network=True)
            return False
        return routes is not None and not _ways_out(routes)

    def forget(self) -> None:
        """Forget all answers."""
        self._path.unlink(missing_ok=True)

    def _ask(self, words: Sequence[str], *, network: bool) -> str | None:
        containers = Containers(self.engine, self.id, LABEL, questions_dir(), network)
        try:
            done = containers.run(words, launch=_launch, seconds=ASK_SECONDS, env={"LC_ALL": "C"})
        except ToolMissing:
            return None
        return done.text if done.exit_status == 0 else None

    def _remembered(self) -> _Known | None:
        try:
            known = _Known.model_validate_json(self._path.read_text(encoding="utf-8"))
        except (OSError, ValidationError):
            return None
        return known if known.engine == str(self.engine) else None


def questions_dir() -> Path:
    """Folder with the files that such containers share with labctl while they run."""
    return cache_dir() / "containers" / "questions"


def _launch(argv: list[str], cwd: Path, held: int) -> process.Completed:
    return process.run(argv, timeout=ASK_SECONDS, cwd=cwd, keep_open=(held,))


def _ways_out(routes: str) -> list[str]:
    """Return the routes that leave the machine.

    The interface is the first word of an IPv4 line (below a heading), and the last of an IPv6 line.
    """
    lines = [line.split() for line in routes.splitlines()]
    return [
        " ".join(words)
        for words in lines
        if words and words[0] != "Iface" and "lo" not in (words[0], words[-1])
    ]
