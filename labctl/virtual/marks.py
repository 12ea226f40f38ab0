"""The marks of a virtual board, for the shell scripts that run on any board.

A virtual board has the kernel of its host. Its environment says so: the id of its boot, the
emulator of its programs, and a folder of files that stand for the kernel's. On a real board these
variables are empty. No other module knows them, nor asks a board for its boot id in another way;
:func:`labctl.process.boot_id` reads this host's own.
"""

MARK = "LABCTL_SANDBOX"
EMULATOR = "LABCTL_SANDBOX_EMULATOR"
FAKES = "LABCTL_SANDBOX_FAKES"

#: Shell words: the id of this boot, which no other boot of any board has.
BOOT_ID = f"${{{MARK}:-$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)}}"
#: What stands before the path of a file of the kernel's.
KERNEL_ROOT = f"${{{FAKES}:-}}"
#: Shell commands: succeed on a virtual board; skip a process (``$pid``, in a loop) of its host.
IS_VIRTUAL = f'[ -n "${MARK}" ]'
OWN_PROCESS = (
    f'! {IS_VIRTUAL} || tr "\\0" "\\n" </proc/$pid/environ | grep -qx "{MARK}=${MARK}" || continue'
)
