"""Find out from the output why a compiler, CMake or Ninja failed."""

import re
import shutil
import tempfile
from pathlib import Path

from labctl.errors import CompileError, ConfigError, HostError, LabctlError, tells_full_disk
from labctl.files import has_inodes
from labctl.process import Completed

_ERROR = re.compile(
    r"\berror:|undefined (?:reference|symbol)|^CMake Error|ninja: error:|multiple definition"
)
_MOST_LINES = 12
#: With less free space, a failure says nothing about the source: compilers report a full disk in
#: many ways, or not at all.
_LEAST_FREE_BYTES = 32 << 20


def disk_is_full(folder: Path) -> bool:
    """Return True if the disk of ``folder``, or of temporary files, is full."""
    places = (folder, Path(tempfile.gettempdir()))
    return any(
        shutil.disk_usage(place).free < _LEAST_FREE_BYTES or not has_inodes(place)
        for place in places
    )


class ErrorLines:
    """Keeps the first lines of a build's output that report errors."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._after_cmake_error = 0

    def see(self, line: str) -> None:
        """Read one line of output."""
        found = _ERROR.search(line)
        if line.startswith("CMake Error"):
            self._after_cmake_error = 4  # CMake explains the error in the next lines
        wanted = found or (self._after_cmake_error > 0 and line.strip())
        self._after_cmake_error -= 1
        if wanted and len(self.lines) < _MOST_LINES:
            self.lines.append(line.strip())


def explain(
    what: str, done: Completed, errors: ErrorLines, log: Path, *, untrusted: bool = False
) -> LabctlError:
    """Return the error for a failed build step; ``what`` is e.g. ``llama.cpp for rk3568``.

    An ``untrusted`` source can print anything, so only facts that this host itself knows count.
    """
    printed = "\n".join([*errors.lines, done.text])
    details = "\n".join(errors.lines) or done.tail(_MOST_LINES)
    hint = f"the whole log: {log}"
    if disk_is_full(log.parent) or (tells_full_disk(printed) and not untrusted):
        of_files = "" if has_inodes(log.parent) else ": no inodes are left"
        return HostError(f"{what}: the disk is full{of_files}", hint=hint, details=details)
    if untrusted:
        return CompileError(f"{what} does not compile", hint=hint, details=details)
    if re.search(
        r"unable to spawn|OutOfMemory|Cannot allocate memory|terminated by signal", printed
    ):
        return HostError(
            f"{what}: a compiler was killed, or had too little memory",
            hint=f"fewer at once may help: --jobs 1; {hint}",
            details=details,
        )
    unknown = re.search(r"ninja: error: unknown target '([^']*)'", printed)
    if unknown:
        return ConfigError(f"{what}: the source has no tool {unknown[1]!r}", hint=hint)
    if "does not appear to contain CMakeLists.txt" in printed:
        return ConfigError(f"{what}: the source has no CMakeLists.txt", hint=hint)
    return CompileError(f"{what} does not compile", hint=hint, details=details)
