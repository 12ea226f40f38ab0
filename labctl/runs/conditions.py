"""Bringing a board into the state that a recipe asks for, and back.

What is changed is noted in a file on the board *before* it is changed, so that whoever comes next
can put it back when this controller dies: lines ``set <path> <value>``, ``continue <pid> <start>``
and ``wake``. On a virtual board all is looked for below the folder of what it makes up
(``LABCTL_SANDBOX_FAKES``), and only its own processes are stopped: nothing of its host changes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import JsonValue

from labctl.board.sections import SECTION, sections
from labctl.config.conditions import Conditions
from labctl.errors import BoardError, ConfigError, InfraError
from labctl.records import ConditionRecord
from labctl.retry import wait_until
from labctl.transport import Transport, remote_words, require

STATE_FILE = "conditions"
_TIMEOUT_SECONDS = 30.0
_WAIT_SECONDS = 600.0
#: Between two looks at a board that has to cool: as seldom as a job is looked at.
_LOOK_SECONDS = 5.0

_ROOT = "root=${LABCTL_SANDBOX_FAKES:-}\n"
_CPUFREQ = "/sys/devices/system/cpu/cpu[0-9]*/cpufreq"
_OWN = (
    '[ -z "$LABCTL_SANDBOX" ] || tr "\\0" "\\n" </proc/$pid/environ'
    ' | grep -qx "LABCTL_SANDBOX=$LABCTL_SANDBOX" || continue'
)
#: Start of a process in clock ticks: field 22 of its ``stat``, the 20th after the name.
_START = "$(sed 's/^.*) //' /proc/$pid/stat | cut -d ' ' -f 20)"
_LOOK = f"""\
{SECTION}{_ROOT}section heat
for zone in "$root"/sys/class/thermal/thermal_zone*/temp; do cat "$zone" 2>/dev/null; done
section memory; sed -n 's/^MemAvailable: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo
section before; head -n 1 /proc/stat
sleep 1
section after; head -n 1 /proc/stat
section cpus; grep -c '^cpu[0-9]' /proc/stat
:
"""


@dataclass
class BoardConditions:
    """The conditions of one run on one board. Methods raise LinkError and BoardError."""

    transport: Transport
    workdir: str
    wanted: Conditions
    note: Callable[[str], None]
    _once: list[ConditionRecord] = field(default_factory=list)
    _noted: set[str] = field(default_factory=set)

    @property
    def _wait_seconds(self) -> float:
        return self.wanted.max_wait or _WAIT_SECONDS

    @property
    def _state(self) -> str:
        return remote_words(f"{self.workdir}/{STATE_FILE}")

    @property
    def unlike(self) -> dict[str, JsonValue]:
        """Which of them make two records unlike when they differ."""
        wanted = {
            "governor": self.wanted.governor,
            "frequency_mhz": self.wanted.frequency_mhz,
            "cold": self.wanted.drop_caches or None,
        }
        return {name: value for name, value in wanted.items() if value is not None}

    def restore(self) -> None:
        """Put back what this or an earlier controller changed; what failed is told."""
        text = self._run(f"[ ! -f {self._state} ] || cat {self._state}", "cannot read what to undo")
        script = []
        for line in text.splitlines():
            match line.split(" ", 2):
                case ["set", path, value] if "/sys/devices/system/cpu/" in path:
                    script.append(f"printf '%s\\n' {remote_words(value)} >{remote_words(path)}")
                case ["continue", pid, start] if pid.isdigit() and start.isdigit():
                    script.append(f"pid={pid}; [ {_START} != {start} ] || kill -CONT {pid}")
                case ["wake"]:
                    script.append("power-shell wakeup >/dev/null")
        if text:
            # Twice: a least frequency above the most one is refused until that one is back.
            undo = "\n".join(script * 2)
            self._run(f"{{\n{undo}\n}} 2>/dev/null\nrm -f {self._state}", "cannot undo")

    def hold(self) -> None:
        """Set what stays for the whole run. Raises ConfigError when strict and not to be had."""
        found = []
        if self.wanted.governor is not None:
            found.append(self._set("governor", self.wanted.governor, ("scaling_governor",)))
        if self.wanted.frequency_mhz is not None:
            limits = ("scaling_max_freq", "scaling_min_freq")
            found.append(self._set("frequency", str(self.wanted.frequency_mhz * 1000), limits))
        found += [self._stop(name) for name in self.wanted.stop_processes]
        if self.wanted.screen_off:
            found.append(self._screen_off())
        self._refuse(found)
        self._once = found

    def ready(self) -> tuple[ConditionRecord, ...]:
        """Wait until a trial may start; how the board is then.

        What was set is looked at again, and set again where a restart undid it. Raises BoardError
        when strict and the board does not become what was asked for.
        """
        self.hold()
        seen: list[ConditionRecord] = []

        def good() -> bool:
            seen[:] = self._look()
            return all(one.ok is not False for one in seen)

        if any((self.wanted.max_start_temperature, self.wanted.max_load,
                self.wanted.min_free_memory)):  # fmt: skip
            wait_until(good, timeout=self._wait_seconds, interval=_LOOK_SECONDS)
        missed = [one for one in seen if one.ok is False]
        if missed and self.wanted.strict:
            told = "; ".join(f"{one.name}: {one.had}, wanted {one.wanted}" for one in missed)
            raise BoardError(
                f"the board did not become ready within {self._wait_seconds:g} s: {told}",
                hint="let it cool, find what keeps it busy, or relax the recipe's conditions",
            )
        if self.wanted.drop_caches:
            seen.append(self._drop_caches())
        self._refuse(seen)
        return (*self._once, *seen)

    def _refuse(self, found: list[ConditionRecord]) -> None:
        missing = [one for one in found if one.ok is not True]
        if missing and self.wanted.strict:
            one = missing[0]
            raise ConfigError(
                f"the board cannot be had with {one.name} {one.wanted}: {one.had}",
                hint="without conditions.strict it is measured all the same, and that is recorded",
            )
        for one in missing:
            text = f"note: {one.name} {one.wanted} could not be had: {one.had}"
            if text not in self._noted:
                self._noted.add(text)
                self.note(text)

    def _set(self, name: str, value: str, files: tuple[str, ...]) -> ConditionRecord:
        """Write a value to files of every CPU's cpufreq, and read it back."""
        paths = " ".join(f'"$root"{_CPUFREQ}/{file}' for file in files)
        word = remote_words(value)
        script = f"""\
{_ROOT}mkdir -p {remote_words(self.workdir)}
for file in {paths}; do
  [ -f "$file" ] || continue
  old=$(cat "$file")
  [ "$old" != {word} ] || continue
  grep -qF "set $file " {self._state} 2>/dev/null || echo "set $file $old" >>{self._state}
done
sync
for again in 1 2; do for file in {paths}; do
  [ ! -f "$file" ] || [ "$(cat "$file")" = {word} ] || echo {word} >"$file"
done; done 2>/dev/null
for file in {paths}; do [ ! -f "$file" ] || cat "$file"; done
"""
        now = sorted(set(self._run(script, f"cannot set the {name}").split()))
        if not now:
            return ConditionRecord(name=name, wanted=value, had="the board has no cpufreq", ok=None)
        return ConditionRecord(name=name, wanted=value, had=", ".join(now), ok=now == [value])

    def _stop(self, name: str) -> ConditionRecord:
        script = f"""\
mkdir -p {remote_words(self.workdir)}
for pid in $(pidof {remote_words(name)}); do
  {_OWN}
  start={_START}
  grep -qx "continue $pid $start" {self._state} 2>/dev/null \
    || echo "continue $pid $start" >>{self._state}
  kill -STOP $pid
  sed 's/^.*) \\(.\\).*/\\1/' /proc/$pid/stat
done
:
"""
        states = self._run(script, f"cannot stop {name}").split()
        stopped = all(state == "T" for state in states)
        had = f"{len(states)} stopped" if stopped else "not all of them stopped"
        return ConditionRecord(name="stopped", wanted=name, had=had, ok=stopped)

    def _screen_off(self) -> ConditionRecord:
        script = f"""\
command -v power-shell >/dev/null 2>&1 || exit 0
mkdir -p {remote_words(self.workdir)}
grep -qx wake {self._state} 2>/dev/null || echo wake >>{self._state}
power-shell suspend >/dev/null && echo done
"""
        done = self._run(script, "cannot switch the screen off").strip() == "done"
        had = "asked for; the board does not say" if done else "the board has no power-shell"
        return ConditionRecord(name="screen", wanted="off", had=had, ok=True if done else None)

    def _drop_caches(self) -> ConditionRecord:
        script = (
            f"{_ROOT}sync; file=$root/proc/sys/vm/drop_caches\n"
            '[ -w "$file" ] && echo 3 >"$file" && echo done; :'
        )
        done = self._run(script, "cannot empty the page cache").strip() == "done"
        had = "dropped" if done else "the board does not let its page cache be emptied"
        return ConditionRecord(name="caches", wanted="dropped", had=had, ok=True if done else None)

    def _look(self) -> list[ConditionRecord]:
        told = sections(self._run(_LOOK, "cannot look at the board's state"))
        wanted, found = self.wanted, []
        if wanted.max_start_temperature is not None:
            zones = [int(word) for word in told.get("heat", "").split() if word.isdigit()]
            heat = max(zones) / 1000 if zones else None
            most = wanted.max_start_temperature
            ok = None if heat is None else heat <= most
            found.append(_bounded("temperature", f"<= {most:g} °C", heat, "°C", ok))
        if wanted.max_load is not None:
            load = _load(told)
            ok = None if load is None else load <= wanted.max_load
            found.append(_bounded("load", f"<= {wanted.max_load:g} CPUs", load, "CPUs", ok))
        if wanted.min_free_memory is not None:
            text = told.get("memory", "").strip()
            free = int(text) * 1024 if text.isdigit() else None
            ok = None if free is None else free >= wanted.min_free_memory
            found.append(_bounded("memory", f">= {wanted.min_free_memory} B", free, "B", ok))
        return found

    def _run(self, script: str, what: str) -> str:
        return require(self.transport.run(script, timeout=_TIMEOUT_SECONDS), what).text


def _bounded(
    name: str, wanted: str, value: float | None, unit: str, ok: bool | None
) -> ConditionRecord:
    had = "the board does not tell" if value is None else f"{value:g} {unit}"
    return ConditionRecord(name=name, wanted=wanted, had=had, ok=ok)


def _load(told: Mapping[str, str]) -> float | None:
    """CPUs that were busy between two looks at /proc/stat (proc(5): idle and iowait are not)."""
    try:
        before, after = (
            [int(word) for word in told[name].split()[1:9]] for name in ("before", "after")
        )
        cpus = int(told["cpus"])
    except (KeyError, ValueError):
        return None
    grown = [now - was for now, was in zip(after, before, strict=True)]
    total = sum(grown)
    return None if total <= 0 else round((total - grown[3] - grown[4]) / total * cpus, 2)


@contextmanager
def held(conditions: BoardConditions, *, again: bool = False) -> Iterator[None]:
    """The board as asked for while the block lasts, put back whatever happens.

    ``again``: this run had it before, and a job of it may be under way; else what an earlier one
    left is put back first. What cannot be put back now, for want of a link, the next run puts back.
    """
    if not again:
        conditions.restore()
    try:
        conditions.hold()
        yield
    finally:
        try:
            conditions.restore()
        except InfraError as error:
            left = "the board is not as it was before; the next run on it undoes that"
            conditions.note(f"note: {left} ({error.message})")
