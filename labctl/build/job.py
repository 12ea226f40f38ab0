"""Run a build's script in a workspace, and fetch its outputs."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from labctl.build.diagnose import ErrorLines, disk_is_full, explain
from labctl.build.manifest import LOG
from labctl.build.parameters import check
from labctl.build.progress import BuildProgress, OnProgress, Step
from labctl.build.script import Command, Order, Output, Script, make_script
from labctl.build.workspace import Program, Workspace
from labctl.errors import CompileError, ConfigError, HostError, printable
from labctl.files import host_writes
from labctl.process import Completed

#: Maximum size of a file of an untrusted source (a tool or its map; a static llama.cpp has some 10
#: MB), and of all such files of a build: the container's disk limit does not count holes.
_MOST_BYTES = 512 << 20
_MOST_IN_ALL = 2 << 30
_NINJA_PROGRESS = re.compile(r"\[(\d+)/(\d+)\] ?(.*)")


@dataclass(frozen=True)
class Made:
    """A built file on this host, and the file that lists its functions."""

    file: Path
    symbols: Path | None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that exist."""
        return (self.file,) if self.symbols is None else (self.file, self.symbols)


@dataclass(frozen=True)
class Job:
    """One build in one workspace. ``home`` is its folder on this host."""

    order: Order
    workspace: Workspace
    home: Path
    on_progress: OnProgress
    untrusted: bool = False
    """True if the source is untrusted: it is to blame for its output and files."""

    @property
    def log(self) -> Path:
        """Log with all output of the build programs."""
        return self.home / LOG

    def run(self, tools: Sequence[str]) -> dict[str, Made]:
        """Build tools; return their files on this host.

        Raises CompileError, ConfigError, ToolMissing, HostError, HostTimeout, IntegrityError.
        """
        check(self.order.spec, self.order.values, self.workspace)
        script = make_script(self.order, self.workspace.folders, tools)
        with host_writes(self.log):
            self.home.mkdir(parents=True, exist_ok=True)
            self.log.write_bytes(b"")
        self._prepare(script)
        for command in script.commands:
            self._show(command)
            self._check_program(command)
            self._check(command, *self._run(command))
        made: dict[str, Made] = {}
        for name, output in script.outputs.items():
            files = [file for one in made.values() for file in one.files]
            made[name] = self._collect(name, output, sum(one.stat().st_size for one in files))
        return made

    def _prepare(self, script: Script) -> None:
        """Keep the tree of the last build, unless its programs moved, which CMake refuses."""
        if any(self.workspace.read(name) != text for name, text in script.files.items()):
            self.workspace.clear()
            for name, text in script.files.items():
                self.workspace.write(name, text)

    def _check_program(self, command: Command) -> None:
        """Check that a step's program exists before it runs, so that the error names the step."""
        program = command.words[0]
        if command.cwd is None or "/" not in program:
            return
        path = program if program.startswith("/") else f"{command.cwd}/{program}"
        if not self.workspace.exists(path):
            raise ConfigError(
                f"{command.message}: there is no {program} in {command.cwd}",
                hint="the build spec's step has to fit its source",
                details=" ".join(command.words),
            )

    def _show(self, command: Command) -> None:
        self.on_progress(BuildProgress(command.step, command.message))

    def _run(self, command: Command) -> tuple[Completed, ErrorLines]:
        errors = ErrorLines()
        printed: list[str] = []

        def see(line: str) -> None:
            errors.see(line)
            if command.map_of is not None:
                printed.append(line)
            moved = _NINJA_PROGRESS.match(line)
            if moved:
                done, total, message = int(moved[1]), int(moved[2]), printable(moved[3])
                self.on_progress(BuildProgress(command.step, message, done, total))

        with host_writes(self.log), self.log.open("ab") as log:
            log.write(f"$ {' '.join(command.words)}\n".encode())
        done = self.workspace.run(
            Program(
                words=command.words,
                timeout=command.seconds,
                on_line=see,
                log=self.log,
                env=self.order.toolchain.environment,
                cwd=command.cwd,
            )
        )
        if command.map_of is not None and done.exit_status == 0:
            self.workspace.write(f"{command.map_of}.map", "\n".join(printed) + "\n")
        return done, errors

    def _check(self, command: Command, done: Completed, errors: ErrorLines) -> None:
        if done.exit_status == 0:
            return
        if command.step is Step.RUNTIME:
            what = command.message.partition(",")[0]
            full = ": the disk is full" if disk_is_full(self.home) else ""
            raise HostError(f"zig cannot build its {what}{full}", details=done.tail(12) or None)
        raise explain(self.order.what, done, errors, self.log, untrusted=self.untrusted)

    def _collect(self, name: str, output: Output, before: int) -> Made:
        """Fetch a file of the tree to this host, and the file that lists its functions.

        ``before``: number of bytes already fetched.
        """
        if not self.workspace.exists(output.path):
            raise self._not_made(name)
        folder = self.home / "made"
        self.on_progress(BuildProgress(Step.COLLECT, name))
        most = min(_MOST_BYTES, _MOST_IN_ALL - before) if self.untrusted else None
        self.workspace.fetch(output.path, folder / name, most=most)
        with host_writes(folder):
            (folder / name).chmod(0o755)
        if output.symbols is None or not self.workspace.exists(output.symbols):
            return Made(folder / name, None)
        symbols = folder / f"{name}.symbols"
        if most is not None:
            most = min(most, _MOST_IN_ALL - before - (folder / name).stat().st_size)
        self.workspace.fetch(output.symbols, symbols, most=most)
        return Made(folder / name, symbols)

    def _not_made(self, name: str) -> ConfigError | CompileError:
        what = self.order.what
        if self.order.spec.builder == "cmake" and not self.untrusted:
            return ConfigError(
                f"{what}: building {name!r} produced no such program",
                hint="a tool has to be an executable target of the source's CMakeLists.txt",
            )
        if self.order.spec.builder == "steps":
            return ConfigError(
                f"{what}: the steps succeeded but did not produce {name}",
                hint=f"the build spec's output has to be where they leave it; the log: {self.log}",
            )
        return CompileError(f"the build left no {name}", hint=f"the whole log: {self.log}")


def missing_sources(source: Path, files: Iterable[str]) -> list[str]:
    """List the files that are missing in a source."""
    return [name for name in files if not (source / name).is_file()]
