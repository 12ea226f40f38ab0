"""Changes of a board for the time of a run, and their undoing.

Each change is noted in a file on the board *before* it is made, so that the next controller can
undo it if this one dies: a line ``boot <id>``, then ``set <path> <value>``, ``continue <pid>
<start>`` and ``wake``. Notes of another boot no longer count: a restart undid the changes. On a
virtual board all paths are below its simulated folder (``labctl.virtual.marks``), and only its own
processes are stopped: its host does not change.
"""

from dataclasses import dataclass

from labctl.board.lease import Fence
from labctl.records.telemetry import MEMORY_NAMES, NO_MEMORY_NAMES
from labctl.records.trial import ConditionRecord
from labctl.transport.base import remote_words
from labctl.virtual.marks import BOOT_ID, KERNEL_ROOT, OWN_PROCESS

STATE_FILE = "conditions"
TIMEOUT_SECONDS = 30.0

#: Sets ``$root``, the prefix of every path of the kernel.
ROOT = f"root={KERNEL_ROOT}\n"
_BOOT = f"boot={BOOT_ID}\n"
_CPUS, _DEVICES = "/sys/devices/system/cpu/", "/sys/class/devfreq/"
CPU_CLOCKS = (f"{_CPUS}cpu[0-9]*/cpufreq",)
MEMORY_CLOCKS = tuple(f"{_DEVICES}*{name}*" for name in MEMORY_NAMES)
#: Start of a process in clock ticks: field 22 of its ``stat``, the 20th after the name.
_START = "$(sed 's/^.*) //' /proc/$pid/stat | cut -d ' ' -f 20)"
_STATE = "$(sed 's/^.*) //' /proc/$pid/stat | cut -d ' ' -f 1)"
#: ``power``: the state of OpenHarmony's power manager (its ability 3301), if available;
#: ``until_power``: gives it some seconds to reach one of the given states.
_POWER = """\
power() {
  bounded=; command -v timeout >/dev/null 2>&1 && bounded='timeout 5'
  $bounded hidumper -s 3301 -a -a 2>/dev/null </dev/null |
    sed -n 's/^Current State: *\\([A-Z_]*\\).*/\\1/p' | head -n 1
}
until_power() {
  for second in 1 2 3; do
    now=$(power)
    [ -n "$now" ] || return 0
    for state in "$@"; do [ "$now" != "$state" ] || return 0; done
    sleep 1
  done
}
"""
#: States of the power manager in which the screen is off.
_DARK = ("INACTIVE", "STAND_BY", "DOZE", "SLEEP", "HIBERNATE")


@dataclass(frozen=True)
class BoardChanges:
    """The changes to one board. Methods raise LinkError, LeaseLost and BoardError."""

    fence: Fence

    @property
    def _state(self) -> str:
        return remote_words(f"{self.fence.workdir}/{STATE_FILE}")

    @property
    def _to_note(self) -> str:
        """Makes ``note`` write a line once; a change that cannot be noted must not be made."""
        return f"""\
{_BOOT}state={self._state}
mkdir -p {remote_words(self.fence.workdir)} || exit 1
[ "$(head -n 1 "$state" 2>/dev/null)" = "boot $boot" ] || echo "boot $boot" >"$state" || exit 1
note() {{ grep -qxF -e "$1" "$state" || echo "$1" >>"$state" || exit 1; }}
"""

    @property
    def question(self) -> str:
        """Script that prints something if noted changes were not undone."""
        return f"[ ! -e {self._state} ] || echo noted"

    def restore(self) -> str:
        """Undo the changes of this or an earlier controller.

        Changes that cannot be undone stay noted; returns the first such line.
        """
        script = (
            f'{_BOOT}state={self._state}; [ -f "$state" ] || exit 0\n'
            '[ "$(head -n 1 "$state")" = "boot $boot" ] && cat "$state" || rm -f "$state"'
        )
        lines = self._run(script, "cannot read the changes to undo").splitlines()
        undo, look = [], []
        for line in lines:
            match line.split(" ", 2):
                case ["set", path, value] if _CPUS in path or _DEVICES in path:
                    file, was = remote_words(path), remote_words(value)
                    undo.append(f"[ ! -e {file} ] || echo {was} >{file}")
                    look.append(f'[ ! -e {file} ] || [ "$(cat {file})" = {was} ]')
                case ["continue", pid, start] if pid.isdigit() and start.isdigit():
                    same = f"pid={pid}; [ {_START} = {start} ]"
                    undo.append(f"{same} && kill -CONT {pid}")
                    look.append(f"! {{ {same}; }} || [ {_STATE} != T ]")
                case ["wake"]:
                    undo.append("power-shell wakeup >/dev/null; until_power AWAKE")
                    look.append('case $(power) in AWAKE | "") ;; *) false;; esac')
                case _:
                    continue
            look[-1] = f"{{ {look[-1]}; }} || echo {remote_words(line)}"
        if not lines:
            return ""
        # Twice: a minimum frequency above the maximum is refused until the maximum is restored.
        parts = "\n".join(
            [_POWER + "undo() {", *undo, ":", "}", "left() {", *look, ":", "}", "undo; undo"]
        )
        script = (
            f"{{\n{parts}\nleft=$(left)\n}} 2>/dev/null\n"
            f'[ -n "$left" ] || rm -f {self._state}\necho "$left"'
        )
        return self._run(script, "cannot undo").split("\n")[0].strip()

    def set_clocks(
        self, name: str, value: str, files: tuple[str, ...], clocks: tuple[str, ...] = CPU_CLOCKS
    ) -> ConditionRecord:
        """Write a value to files of every clock (patterns of folders), and read it back."""
        paths = " ".join(f'"$root"{clock}/{file}' for clock in clocks for file in files)
        word = remote_words(value)
        others = "|".join(f"*{name}*" for name in NO_MEMORY_NAMES)
        # The governor "userspace" forgets its frequency when it is left.
        script = f"""\
{ROOT}{self._to_note}set --
for file in {paths}; do
  case ${{file#"$root"}} in {others}) ;; *) [ ! -f "$file" ] || set -- "$@" "$file";; esac
done
for file; do
  old=$(cat "$file")
  [ "$old" != {word} ] || continue
  grep -qF -e "set $file " "$state" || note "set $file $old"
  fixed=${{file%/*}}/userspace/set_freq
  [ "$old" = userspace ] && [ -f "$fixed" ] || continue
  hz=$(cat "$fixed")
  case $hz in [0-9]*) grep -qF -e "set $fixed " "$state" || note "set $fixed $hz";; esac
done
sync
for again in 1 2; do for file; do
  [ "$(cat "$file")" = {word} ] || echo {word} >"$file"
done; done 2>/dev/null
for file; do cat "$file"; done
"""
        now = sorted(set(self._run(script, f"cannot set the {name}").split()))
        if not now:
            had = "the board has no cpufreq" if clocks is CPU_CLOCKS else "memory clock not visible"
            return ConditionRecord(name=name, wanted=value, had=had, ok=None)
        return ConditionRecord(name=name, wanted=value, had=", ".join(now), ok=now == [value])

    def stop(self, name: str) -> ConditionRecord:
        """Stop (SIGSTOP) all processes of a name."""
        script = f"""\
{self._to_note}for pid in $(pidof {remote_words(name)}); do
  {OWN_PROCESS}
  note "continue $pid {_START}"
  kill -STOP $pid
  for again in 1 2 3; do [ "{_STATE}" != T ] || break; sleep 1; done  # it has to run, to stop
  echo "{_STATE}"
done
:
"""
        states = self._run(script, f"cannot stop {name}").split()
        stopped = all(state == "T" for state in states)
        had = f"{len(states)} stopped" if stopped else "not all of them stopped"
        return ConditionRecord(name="stopped", wanted=name, had=had, ok=stopped)

    def screen_off(self) -> ConditionRecord:
        """Switch the screen off if it is on, and check that it is off, which takes a moment."""
        dark = "|".join(_DARK)
        script = f"""\
command -v power-shell >/dev/null 2>&1 || {{ echo none; exit 0; }}
{_POWER}case $(power) in {dark}) ;; *)
  {self._to_note}note wake
  power-shell suspend >/dev/null 2>&1
  until_power {" ".join(_DARK)};;
esac
echo "now $(power)"
"""
        answer = self._run(script, "cannot switch the screen off").split()
        match answer:
            case ["none"]:
                had, ok = "the board has no power-shell", None
            case ["now", state]:
                ok = state in _DARK
                had = f"{'off' if ok else 'on'} ({state})"
            case _:
                had, ok = "set, not verifiable: the board does not report it", None
        return ConditionRecord(name="screen", wanted="off", had=had, ok=ok)

    def _run(self, script: str, what: str) -> str:
        return self.fence.run(script, what, timeout=TIMEOUT_SECONDS)
