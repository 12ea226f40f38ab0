"""The local builder: zig compiles on this host, driven by CMake and Ninja or called directly."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labctl import process
from labctl.build import toolchain
from labctl.build.diagnose import ErrorLines, disk_is_full, explain
from labctl.build.progress import OnProgress, Progress, Step
from labctl.build.spec import BuildSpec, Definition, ToolSpec
from labctl.config.target import Target
from labctl.errors import CompileError, ConfigError, HostError
from labctl.files import host_writes, write_atomic

CONFIGURE_SECONDS = 900.0
COMPILE_SECONDS = 4 * 3600.0

_NINJA_PROGRESS = re.compile(r"\[(\d+)/(\d+)\] ?(.*)")


@dataclass(frozen=True)
class Job:
    """One build on this host, in a tree of its own that stays for the next one.

    ``lock`` is the descriptor of the tree's lock: compilers inherit it, so that the tree stays
    locked until they have ended, also when labctl is killed.
    """

    target: Target
    spec: BuildSpec
    definitions: dict[str, Definition]
    flags: tuple[str, ...]
    source: Path
    tree: Path
    jobs: int
    lock: int
    on_progress: OnProgress

    @property
    def log(self) -> Path:
        """All that the build programs print."""
        return self.tree / "build.log"

    def run(self, tools: Sequence[str]) -> dict[str, Path]:
        """Build tools; their files in the build tree.

        Raises CompileError, ConfigError, ToolMissing, HostError, HostTimeout.
        """
        programs = toolchain.locate()
        self._prepare_tree(self._toolchain_file(programs))
        if self.spec.builder == "compile":
            return {name: self._compile(programs, name, self.spec.tools[name]) for name in tools}
        self._runtime(programs)
        self._configure(programs)
        self._ninja(programs, tools)
        return {name: self._built(name) for name in tools}

    def _prepare_tree(self, toolchain_file: str) -> None:
        """Keep the tree of the last build, unless its programs have moved: CMake refuses that."""
        file = self.tree / "toolchain.cmake"
        with host_writes(self.tree):
            if not file.is_file() or file.read_text() != toolchain_file:
                shutil.rmtree(self.tree, ignore_errors=True)
            self.tree.mkdir(parents=True, exist_ok=True)
            self.log.write_bytes(b"")
        write_atomic(file, toolchain_file)

    @property
    def _what(self) -> str:
        return f"{self.spec.product} for {self.target.name}"

    def _step(self, step: Step, words: Sequence[str], timeout: float) -> None:
        """Run one program, its output in the log."""
        errors = ErrorLines()

        def see(line: str) -> None:
            errors.see(line)
            moved = _NINJA_PROGRESS.match(line)
            if moved:
                done, total, message = int(moved[1]), int(moved[2]), moved[3]
                self.on_progress(Progress(step, message, done, total))

        with host_writes(self.log):
            with self.log.open("ab") as log:
                log.write(f"$ {' '.join(words)}\n".encode())
            done = process.run_streaming(
                words,
                timeout=timeout,
                on_line=see,
                log=self.log,
                cwd=self.tree,
                env=toolchain.environment(),
                keep_open=(self.lock,),
            )
        if done.exit_status != 0:
            raise explain(self._what, done, errors, self.log)

    def _runtime(self, programs: toolchain.Programs) -> None:
        """Have the libraries that every program of the target is linked with."""
        what = f"C and C++ runtime for {self.target.name}"
        self.on_progress(Progress(Step.RUNTIME, f"{what}, once for all builds"))
        failed = toolchain.prepare_runtime(programs, self.flags, self.tree)
        if failed is not None:
            full = ": the disk is full" if disk_is_full(self.tree) else ""
            raise HostError(f"zig cannot build its {what}{full}", details=failed.tail(12) or None)

    def _configure(self, programs: toolchain.Programs) -> None:
        self.on_progress(Progress(Step.CONFIGURE, self._what))
        given = {
            "CMAKE_MAKE_PROGRAM": str(programs.ninja),
            "CMAKE_TOOLCHAIN_FILE": str(self.tree / "toolchain.cmake"),
            "CMAKE_RUNTIME_OUTPUT_DIRECTORY": str(self.tree / "bin"),
            **self.definitions,
        }
        words = [str(programs.cmake), "-G", "Ninja", "-S", str(self.source), "-B", str(self.tree)]
        words += [f"-D{name}={cmake_value(value)}" for name, value in given.items()]
        self._step(Step.CONFIGURE, words, CONFIGURE_SECONDS)

    def _toolchain_file(self, programs: toolchain.Programs) -> str:
        """CMake's view of zig: one program that is C compiler, C++ compiler and archiver."""
        flags = (*self.flags, *toolchain.prefix_maps(self.source, self.tree))
        lines = [
            "set(CMAKE_SYSTEM_NAME Linux)",
            f"set(CMAKE_SYSTEM_PROCESSOR {self.target.machine})",
            # No program or library of this host's gets in.
            "set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)",
            "set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)",
            "set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)",
            f"set(CMAKE_FIND_ROOT_PATH {cmake_quoted(str(self.tree / 'no-libraries'))})",
        ]
        zig = cmake_quoted(str(programs.zig))
        for language, command in (("C", "cc"), ("CXX", "c++"), ("ASM", "cc")):
            words = " ".join(cmake_quoted(word) for word in (command, *flags))
            lines.append(f"set(CMAKE_{language}_COMPILER {zig} {words})")
            # CMake wants one program as archiver; zig is one only with an argument.
            archive = cmake_quoted(f'"{programs.zig}" ar qcD <TARGET> <OBJECTS>')
            lines.append(f"set(CMAKE_{language}_ARCHIVE_CREATE {archive})")
            append = cmake_quoted(f'"{programs.zig}" ar qD <TARGET> <OBJECTS>')
            lines.append(f"set(CMAKE_{language}_ARCHIVE_APPEND {append})")
            finish = cmake_quoted(f'"{programs.zig}" ranlib <TARGET>')
            lines.append(f"set(CMAKE_{language}_ARCHIVE_FINISH {finish})")
        return "\n".join(lines) + "\n"

    def _ninja(self, programs: toolchain.Programs, tools: Sequence[str]) -> None:
        self.on_progress(Progress(Step.COMPILE, self._what))
        words = [str(programs.ninja), "-C", str(self.tree), "-j", str(self.jobs), *tools]
        self._step(Step.COMPILE, words, COMPILE_SECONDS)

    def _built(self, name: str) -> Path:
        path = self.tree / "bin" / name
        if not path.is_file():
            raise ConfigError(
                f"{self._what}: building {name!r} gave no program of that name",
                hint="a tool has to be an executable target of the source's CMakeLists.txt",
            )
        return path

    def _compile(self, programs: toolchain.Programs, name: str, tool: ToolSpec) -> Path:
        """One call of the compiler for all of a tool's C files."""
        self.on_progress(Progress(Step.COMPILE, f"{name} for {self.target.name}"))
        files = [self.source / given for given in tool.sources]
        for file in files:
            if not file.is_file():
                raise ConfigError(f"{self._what}: no source file {file}")
        output = self.tree / name
        maps = toolchain.prefix_maps(self.source, self.tree)
        words = [str(programs.zig), "cc", *self.flags, *maps, *tool.flags]
        words += [*map(str, files), "-o", str(output)]
        self._step(Step.COMPILE, words, COMPILE_SECONDS)
        if not output.is_file():
            raise CompileError(f"the compiler left no {name}", hint=f"the whole log: {self.log}")
        return output


def cmake_value(value: Definition) -> str:
    """A definition's value as CMake writes it."""
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return str(value)


def cmake_quoted(text: str) -> str:
    """A quoted argument of the CMake language, cmake-language(7)."""
    escaped = re.sub(r'([\\"$])', r"\\\1", text)
    return f'"{escaped}"'
