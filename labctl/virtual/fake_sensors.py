"""Simulated sensors, wall clock and kernel counters for the on-board agent.

The agent looks below the folder that ``LABCTL_SANDBOX_FAKES`` names (``toolchains/agent/util.h``):

- ``sys/…``: if it exists, thermal zones and frequencies are read only there;
- ``clock``: seconds added to the wall clock;
- ``oom_kills``: added to the kernel's count;
- ``no_pid_namespaces``: the kernel has no PID namespaces;
- ``memory_kb``: memory size, all of it free (``labctl.board.facts`` reads it, too).

Nothing exists until it is set: a board shows only simulated values.
"""

import asyncio
import os
import shlex
import shutil
from pathlib import Path

from labctl.files import host_writes, write_atomic

_FOLDER = Path(".labctl-fakes")
_CPUS = 4
_COOL_MILLICELSIUS, _FULL_KHZ, _FULL_MEMORY_HZ = 45_000, 1_992_000, 1_560_000_000
#: Settings of the memory's clock, as a kernel of Rockchip's shows them.
_MEMORY_CLOCK = {
    "governor": "dmc_ondemand",
    "available_governors": "dmc_ondemand userspace powersave performance simple_ondemand",
    "available_frequencies": "324000000 528000000 920000000 1560000000",
    "min_freq": "324000000",
}
_STEP_SECONDS = 0.1
#: Fixed width: a number is overwritten in one call, so a reader sees either the old or the new one.
_WIDTH = 16

#: toybox has its own format of seconds. With a time or a file, ``date`` does not show the clock.
_DATE = """#!/bin/sh
for word; do case $word in -d*|-s*|-r*|-[!-]*[dsr]) exec {toybox} date "$@";; esac; done
now=$({toybox} date +%s.%N)
exec {toybox} date -d "@$((${{now%.*}} + $(cat {clock}))).${{now#*.}}" "$@"
"""


class Fakes:
    """Simulated values of one boot; values of an earlier boot are removed."""

    def __init__(self, directory: Path):
        self.folder = directory / _FOLDER
        self._clock_seconds = 0
        self._oom_kills = 0
        self._millicelsius, self._khz = _COOL_MILLICELSIUS, _FULL_KHZ
        self._memory_hz = _FULL_MEMORY_HZ
        with host_writes(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)

    def show_sensors(self) -> None:
        """Create a thermal zone, four cores and a memory clock, unless they exist.

        Raises HostError.
        """
        if self._zone(0).exists():
            return
        write_atomic(self._zone(0).with_name("type"), "soc-thermal\n")
        for name, text in _MEMORY_CLOCK.items():
            write_atomic(self._memory / name, f"{text}\n")
        self._write_sensors()

    def show_zone(self, zone: int, reads: str) -> None:
        """Let a thermal zone show a text, in any unit. Raises HostError."""
        self.show_sensors()
        kind = self._zone(zone).with_name("type")
        if not kind.exists():
            write_atomic(kind, "vendor-thermal\n")
        _overwrite(self._zone(zone), reads)

    async def throttle(self, celsius: float, khz: int, memory_hz: int, within: float) -> None:
        """Change temperature and frequencies in equal steps within ``within`` seconds."""
        self.show_sensors()
        steps = max(int(within / _STEP_SECONDS), 1)
        hotter = (celsius * 1000 - self._millicelsius) / steps
        slower = (khz - self._khz) / steps
        memory_slower = (memory_hz - self._memory_hz) / steps
        from_heat, from_khz, from_hz = self._millicelsius, self._khz, self._memory_hz
        for step in range(1, steps + 1):
            if within:
                await asyncio.sleep(within / steps)
            self._millicelsius = round(from_heat + hotter * step)
            self._khz = round(from_khz + slower * step)
            self._memory_hz = round(from_hz + memory_slower * step)
            self._write_sensors()

    def jump_clock(self, seconds: int, programs: Path) -> None:
        """Move the wall clock; ``date`` in ``programs`` is replaced. Raises HostError."""
        self._clock_seconds += seconds
        clock = self.folder / "clock"
        write_atomic(clock, f"{self._clock_seconds}\n")
        date = programs / "date"
        if date.is_symlink():  # the board's own toybox
            toybox = shlex.quote(str(date.resolve()))
            script = _DATE.format(toybox=toybox, clock=shlex.quote(str(clock)))
            write_atomic(date, script)
            date.chmod(0o755)

    def show_memory(self, size_bytes: int) -> None:
        """Show this memory size, all free; programs still see this host's. Raises HostError."""
        write_atomic(self.folder / "memory_kb", f"{size_bytes // 1024}\n")

    def lack_pid_namespaces(self) -> None:
        """Imitate a kernel in which a job can reach its supervisor. Raises HostError."""
        write_atomic(self.folder / "no_pid_namespaces", "1\n")

    def count_oom_kill(self) -> None:
        """Count one more OOM kill. Raises HostError."""
        self._oom_kills += 1
        write_atomic(self.folder / "oom_kills", f"{self._oom_kills}\n")

    def _zone(self, zone: int) -> Path:
        return self.folder / f"sys/class/thermal/thermal_zone{zone}/temp"

    @property
    def _memory(self) -> Path:
        return self.folder / "sys/class/devfreq/dmc"

    def _write_sensors(self) -> None:
        _overwrite(self._zone(0), self._millicelsius)
        for name in ("cur_freq", "max_freq"):
            _overwrite(self._memory / name, self._memory_hz)
        for number in range(_CPUS):
            cpu = self.folder / f"sys/devices/system/cpu/cpu{number}/cpufreq"
            _overwrite(cpu / "scaling_cur_freq", self._khz)


def _overwrite(path: Path, value: int | str) -> None:
    with host_writes(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, str(value).encode().ljust(_WIDTH, b"\n"), 0)
        finally:
            os.close(descriptor)
