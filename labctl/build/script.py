"""The script of a build, as data: files to write, commands to run, files to collect.

It is the same for every builder; ``labctl build --explain`` shows it without running anything.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from labctl.build import zig
from labctl.build.gcc import gcc_flags
from labctl.build.manifest import CompilerKind
from labctl.build.progress import Step
from labctl.build.spec import BuildSpec, Definition, ElfKind, ToolSpec, substitute
from labctl.build.toolchain import Toolchain
from labctl.build.workspace import Folders
from labctl.config.target import Target

#: The runtime has some 1,300 small files: 100 s on one core of this host.
RUNTIME_SECONDS = 1800.0
CONFIGURE_SECONDS = 900.0
COMPILE_SECONDS = 4 * 3600.0
STRIP_SECONDS = 120.0

TOOLCHAIN_FILE = "toolchain.cmake"


@dataclass(frozen=True)
class Command:
    """One program of a build."""

    step: Step
    message: str
    words: tuple[str, ...]
    seconds: float
    cwd: str | None = None
    """Working folder; ``None`` for the tree."""
    map_of: str | None = None
    """Tool whose link map it prints."""


@dataclass(frozen=True)
class Output:
    """A file that a build makes; a relative path starts at the tree."""

    path: str
    symbols: str | None
    """File that lists its functions: a link map, or the program before stripping."""


@dataclass(frozen=True)
class Script:
    """The whole build on one machine."""

    files: Mapping[str, str] = field(default_factory=dict)
    """Text files of the tree; the tree is made again when they change."""
    commands: tuple[Command, ...] = ()
    outputs: Mapping[str, Output] = field(default_factory=dict)


@dataclass(frozen=True)
class Order:
    """A product to build, with its toolchain and parameters."""

    target: Target
    spec: BuildSpec
    definitions: Mapping[str, Definition]
    toolchain: Toolchain
    jobs: int
    values: Mapping[str, str] = field(default_factory=dict)
    """Values of the parameters and of ``{version}`` in steps."""
    kit: str | None = None
    """Parameter whose folder is the source."""

    @property
    def what(self) -> str:
        """Name of the product and target, for messages."""
        return f"{self.spec.product} for {self.target.name}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags for every call of the compiler."""
        match self.toolchain.identity.compiler:
            case CompilerKind.ZIG:
                return zig.zig_flags(self.target, self.spec.zig_target)
            case CompilerKind.GCC:
                return gcc_flags(self.target)
            case CompilerKind.SDK:
                return ()


def make_script(order: Order, folders: Folders, tools: Sequence[str]) -> Script:
    """Return the files, commands and outputs that build these tools."""
    match order.spec.builder:
        case "compile":
            return _compile_script(order, folders, tools)
        case "cmake":
            return _cmake_script(order, folders, tools)
        case "steps":
            return _steps_script(order, folders, tools)


def _steps_script(order: Order, folders: Folders, tools: Sequence[str]) -> Script:
    """Return the spec's own commands; each word stays one argument."""
    values = {
        **order.values,
        "source": folders.source if order.kit is None else order.values[order.kit],
        "tree": folders.tree,
        "jobs": str(order.jobs),
    }
    commands = [
        Command(
            Step.COMPILE,
            f"{order.what}, step {number} of {len(order.spec.steps)}",
            tuple(substitute(word, values) for word in step.run),
            step.timeout,
            cwd=substitute(step.cwd, values),
        )
        for number, step in enumerate(order.spec.steps, 1)
    ]
    outputs = {
        name: Output(substitute(output, values), None)
        for name in tools
        if (output := order.spec.tools[name].output) is not None
    }
    return Script(commands=tuple(commands), outputs=outputs)


def _compile_script(order: Order, folders: Folders, tools: Sequence[str]) -> Script:
    """Compile all C files of each tool with one call of the compiler."""
    commands: list[Command] = []
    outputs: dict[str, Output] = {}
    strip = order.toolchain.strip
    for name in tools:
        output = f"{name}.full" if strip else name
        message = f"{name} for {order.target.name}"
        words = _compiler_call(order, folders, order.spec.tools[name], output)
        map_of = None if strip else name
        commands.append(Command(Step.COMPILE, message, words, COMPILE_SECONDS, map_of=map_of))
        if strip:
            commands.append(_strip(order, name, output, name))
        outputs[name] = Output(name, output if strip else f"{name}.map")
    return Script(commands=tuple(commands), outputs=outputs)


def _compiler_call(order: Order, folders: Folders, tool: ToolSpec, output: str) -> tuple[str, ...]:
    sources = [f"{folders.source}/{given}" for given in tool.sources]
    words = [*order.toolchain.c, *order.flags, *prefix_maps(folders), *tool.flags]
    if not order.toolchain.strip:
        words.append(zig.PRINT_MAP)
    # A linker searches a library only for symbols needed by the words before it.
    libraries = [word for word in words if word.startswith("-l")]
    words = [word for word in words if not word.startswith("-l")]
    return (*words, *sources, *libraries, "-o", f"{folders.tree}/{output}")


def _cmake_script(order: Order, folders: Folders, tools: Sequence[str]) -> Script:
    toolchain, tree = order.toolchain, folders.tree
    files = {TOOLCHAIN_FILE: toolchain_file(order, folders)}
    commands: list[Command] = []
    if toolchain.identity.compiler is CompilerKind.ZIG:
        files |= {**zig.RUNTIME, zig.RUNTIME_NINJA: _runtime(order)}
        what = f"C and C++ runtime for {order.target.name}, once for all builds"
        words = (toolchain.ninja, "-C", tree, "-f", zig.RUNTIME_NINJA)
        commands.append(Command(Step.RUNTIME, what, words, RUNTIME_SECONDS))
    given: dict[str, Definition] = {
        "CMAKE_MAKE_PROGRAM": toolchain.ninja,
        "CMAKE_TOOLCHAIN_FILE": f"{tree}/{TOOLCHAIN_FILE}",
        "CMAKE_RUNTIME_OUTPUT_DIRECTORY": f"{tree}/bin",
        **order.definitions,
    }
    if toolchain.ccache:
        given |= {f"CMAKE_{lang}_COMPILER_LAUNCHER": toolchain.ccache for lang in ("C", "CXX")}
    configure = [toolchain.cmake, "-G", "Ninja", "-S", folders.source, "-B", tree]
    configure += [f"-D{name}={cmake_value(value)}" for name, value in given.items()]
    ninja = (toolchain.ninja, "-C", tree, "-j", str(order.jobs), *tools)
    commands.append(Command(Step.CONFIGURE, order.what, tuple(configure), CONFIGURE_SECONDS))
    commands.append(Command(Step.COMPILE, order.what, ninja, COMPILE_SECONDS))
    outputs: dict[str, Output] = {}
    for name in tools:
        if toolchain.strip:
            commands.append(_strip(order, name, f"bin/{name}", f"bin/{name}.stripped"))
            outputs[name] = Output(f"bin/{name}.stripped", f"bin/{name}")
        else:
            outputs[name] = Output(f"bin/{name}", f"bin/{name}.map")
    return Script(files, tuple(commands), outputs)


def _runtime(order: Order) -> str:
    """Return ninja's file for the libraries that every program of the target is linked with.

    zig builds one library at a time; started for C and for C++ at once, it builds two. Format:
    https://ninja-build.org/manual.html#ref_ninja_file
    """
    compilers = {"runtime.c": order.toolchain.c, "runtime.cpp": order.toolchain.cxx}
    lines = []
    for name, compiler in compilers.items():
        words = shlex.join((*compiler, *order.flags, "-O2", name, "-o", f"{name}.out"))
        lines += [f"rule {name}", f"  command = {words.replace('$', '$$')}"]
        lines += [f"build {name}.out: {name} {name}"]
    return "\n".join(lines) + "\n"


def _strip(order: Order, name: str, full: str, stripped: str) -> Command:
    words = (*order.toolchain.strip, "--strip-all", full, "-o", stripped)
    return Command(Step.COMPILE, f"strip {name}", words, STRIP_SECONDS)


def toolchain_file(order: Order, folders: Folders) -> str:
    """Return CMake's toolchain file, cmake-toolchains(7)."""
    toolchain = order.toolchain
    flags = (*order.flags, *prefix_maps(folders))
    lines = [
        "set(CMAKE_SYSTEM_NAME Linux)",
        f"set(CMAKE_SYSTEM_PROCESSOR {order.target.machine})",
        # CMake must find no program or library of the build machine.
        "set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)",
        "set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)",
        "set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)",
        f"set(CMAKE_FIND_ROOT_PATH {cmake_quoted(f'{folders.tree}/no-libraries')})",
    ]
    for language, compiler in (("C", toolchain.c), ("CXX", toolchain.cxx), ("ASM", toolchain.c)):
        words = " ".join(cmake_quoted(word) for word in (*compiler, *flags))
        lines.append(f"set(CMAKE_{language}_COMPILER {words})")
        if len(toolchain.ar) > 1:
            lines += _archiver_rules(language, toolchain)
        if not toolchain.strip:
            lines.append(_link_with_map(language))
    if toolchain.identity.compiler is CompilerKind.GCC:
        # zig links statically by default.
        if all(tool.elf is ElfKind.STATIC_EXECUTABLE for tool in order.spec.tools.values()):
            lines.append("set(CMAKE_EXE_LINKER_FLAGS_INIT -static)")
        lines.append(f"set(CMAKE_AR {cmake_quoted(toolchain.ar[0])})")
        lines.append(f"set(CMAKE_RANLIB {cmake_quoted(toolchain.ranlib[0])})")
    return "\n".join(lines) + "\n"


def _archiver_rules(language: str, toolchain: Toolchain) -> list[str]:
    """Return CMake's archiver rules: CMake expects one program, zig needs an argument as well."""
    ar, ranlib = (" ".join(f'"{w}"' for w in words) for words in (toolchain.ar, toolchain.ranlib))
    rules = {
        "CREATE": f"{ar} qcD <TARGET> <OBJECTS>",
        "APPEND": f"{ar} qD <TARGET> <OBJECTS>",
        "FINISH": f"{ranlib} <TARGET>",
    }
    return [
        f"set(CMAKE_{language}_ARCHIVE_{rule} {cmake_quoted(words)})"
        for rule, words in rules.items()
    ]


def _link_with_map(language: str) -> str:
    """Return the rule that also writes the linker's map into a file beside the program."""
    rule = (
        f"<CMAKE_{language}_COMPILER> <FLAGS> <CMAKE_{language}_LINK_FLAGS> <LINK_FLAGS> <OBJECTS> "
        f"-o <TARGET> <LINK_LIBRARIES> {zig.PRINT_MAP} > <TARGET>.map"
    )
    return f"set(CMAKE_{language}_LINK_EXECUTABLE {cmake_quoted(rule)})"


def prefix_maps(folders: Folders) -> tuple[str, ...]:
    """Return flags that keep the build machine's folder names out of the programs."""
    return (
        f"-ffile-prefix-map={folders.source}=.",
        f"-ffile-prefix-map={folders.tree}=./build",
    )


def cmake_value(value: Definition) -> str:
    """Format a definition's value for CMake."""
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return str(value)


def cmake_quoted(text: str) -> str:
    """Format a quoted argument of the CMake language, cmake-language(7)."""
    escaped = re.sub(r'([\\"$])', r"\\\1", text)
    return f'"{escaped}"'
