"""Wall clocks of processes that a test sets at any time, also while they run.

libfaketime also changes what sleeps wait for, and Python's fail: here the wall clock alone is set.
"""

import struct
import subprocess
from pathlib import Path

_SOURCE = """\
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *skew;

__attribute__((constructor)) static void find_skew(void)
{
    const char *name = getenv("LAB_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *skew, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED)
        skew = page;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME && skew)
        now->tv_sec += *skew;
    return result;
}
"""


def clock_library(file: Path) -> Path:
    """Compile the library that sets the clocks of processes."""
    compiler = ["cc", "-shared", "-fPIC", "-O2", "-o", str(file), "-x", "c", "-"]
    subprocess.run(compiler, input=_SOURCE, text=True, check=True)
    return file


class Clock:
    """The wall clock of some processes; it is wrong by some seconds."""

    def __init__(self, file: Path, library: Path, seconds: int):
        self._file = file
        file.write_bytes(bytes(8))
        self.set(seconds)
        self.environment = {"LD_PRELOAD": str(library), "LAB_CLOCK": str(file)}

    def set(self, seconds: int) -> None:
        """Set it, in the processes that run as well."""
        with self._file.open("r+b", buffering=0) as file:
            file.write(struct.pack("=q", seconds))
