"""Somebody who has just installed labctl's wheel: no root, an empty folder, a terminal."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from terminals import terminal

from labctl import process
from labctl.folders import cache_dir

ROOT = Path(__file__).parents[2]
COLUMNS = 80
#: The user `nobody`, where the tests run as root.
NOBODY = 65534

_SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>])")


@dataclass(frozen=True)
class Shown:
    """What a command left on the terminal, and its exit status."""

    status: int
    raw: str

    @property
    def lines(self) -> list[str]:
        """Each line as it was last written; a terminal wraps those that are too long."""
        text = _SEQUENCE.sub("", self.raw).replace("\r\n", "\n")
        return [part.rstrip() for line in text.split("\n") for part in line.split("\r")]

    @property
    def text(self) -> str:
        """The same in one piece, with single blanks: no matter where a line is broken."""
        return " ".join(" ".join(self.lines).split())


@dataclass
class Newcomer:
    """A home, an empty lab in it, and labctl on PATH."""

    home: Path
    labctl: Path

    @property
    def lab(self) -> Path:
        """The folder in which all commands run."""
        return self.home / "lab"

    @property
    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
        path = os.pathsep.join([str(self.labctl.parent), os.environ["PATH"]])
        return {"HOME": str(self.home), "PATH": path, "TERM": "xterm-256color", **kept}

    def run(self, *words: str, timeout: float = 400) -> Shown:
        """Type a command into a terminal of 80 columns, and wait for its end."""
        with terminal(COLUMNS) as (theirs, seen):
            running = subprocess.Popen(
                _as_nobody(self.labctl, *words),
                cwd=self.lab,
                env=self._environment,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
            try:
                status = running.wait(timeout)
            except subprocess.TimeoutExpired:
                raise AssertionError(b"".join(seen).decode(errors="replace")[-4000:]) from None
            finally:
                process.stop(running)
        return Shown(status, b"".join(seen).decode(errors="replace"))

    def write(self, name: str, text: str) -> None:
        """Write a file of the lab, as its user would with an editor."""
        file = self.lab / name
        file.write_text(text, encoding="utf-8")
        file.chmod(0o644)

    def forget(self, name: str) -> None:
        """Remove a file or a folder of the lab, if it is there."""
        path = self.lab / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    @contextmanager
    def serving(self, *words: str) -> Iterator[Path]:
        """Leave a command running in another terminal; yield the file of its output."""
        log = self.home / "other-terminal"
        with log.open("wb") as output:
            running = subprocess.Popen(
                _as_nobody(self.labctl, *words),
                cwd=self.lab,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield log
        finally:
            process.stop(running)


@contextmanager
def newcomer(*, lend_cache: bool) -> Iterator[Newcomer]:
    """Install the checkout's wheel into a fresh environment of a user with an empty home."""
    home = Path(tempfile.mkdtemp(prefix="newcomer-"))
    try:
        home.chmod(0o755)
        python = home / "venv" / "bin" / "python"
        _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home), cwd=ROOT)
        (wheel,) = home.glob("*.whl")
        _run(_python(home), "-m", "venv", "--without-pip", str(home / "venv"))
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
        _run(*pip, "--no-deps", "--no-index", "--no-compile", str(wheel))
        (site,) = (home / "venv" / "lib").glob("python*/site-packages")
        # What labctl depends on is lent by the environment of the tests.
        (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
        (python.parent / "ninja").symlink_to(Path(sysconfig.get_path("scripts"), "ninja"))
        where = [python, "-c", "import click, labctl; print(labctl.__file__)"]
        found = process.run(_as_nobody(*where), timeout=60, cwd=home)
        assert found.text.startswith(str(site)), f"not the wheel: {found.tail()}"
        (home / "lab").mkdir()
        if lend_cache:
            _lend_cache(home / ".cache" / "labctl")
        if os.geteuid() == 0:
            _run("chown", "-R", f"{NOBODY}:{NOBODY}", str(home))
        yield Newcomer(home, python.parent / "labctl")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _python(folder: Path) -> str:
    """A Python of this version that the newcomer can run; the tests' own may lie in a home."""
    name = f"python3.{sys.version_info.minor}"
    found = shutil.which(name, path="/usr/local/bin:/usr/bin")
    # It starts itself again: a program may inherit rights that its child has no more.
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    for candidate in filter(None, (sys._base_executable, found)):  # type: ignore[attr-defined]
        if process.run(_as_nobody(candidate, "-c", code), timeout=60, cwd=folder).exit_status == 0:
            return str(candidate)
    pytest.skip(f"no {name} that user {NOBODY} can run")


def _lend_cache(cache: Path) -> None:
    """Copy what takes minutes to build, and the models of the first recipe, if they are here."""
    shutil.copytree(cache_dir() / "artifacts", cache / "artifacts", symlinks=True)
    for model in (cache_dir() / "models").glob("*/SmolLM2-135M-Instruct.Q*.gguf"):
        shutil.copytree(model.parent, cache / "models" / model.parent.name)


def _as_nobody(*words: object) -> list[str]:
    if os.geteuid() != 0:
        return list(map(str, words))
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed: cannot become another user")
    ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return ["setpriv", *ids, *map(str, words)]


def _run(*words: str, cwd: Path | None = None) -> None:
    done = process.run(list(words), timeout=120, cwd=cwd)
    assert done.exit_status == 0, done.tail()
