"""The marks of a virtual board, for the shell scripts that run on any board.

A virtual board has the kernel of its host. Its environment marks it: the id of its boot, the
emulator of its programs, and a folder of files that replace the kernel's files. On a real board
these variables are empty. Only this module knows them, and only it reads a board's boot id;
:func:`labctl.process.boot_id` reads this host's boot id.
"""

MARK = "LABCTL_SANDBOX"
EMULATOR = "LABCTL_SANDBOX_EMULATOR"
FAKES = "LABCTL_SANDBOX_FAKES"

#: Shell words: the id of this boot, unique among all boots of all boards.
BOOT_ID = f"${{{MARK}:-$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)}}"
#: Prefix for the path of a kernel file.
KERNEL_ROOT = f"${{{FAKES}:-}}"
#: Shell commands: the first succeeds on a virtual board; the second skips a process (``$pid``, in a
#: loop) of its host.
IS_VIRTUAL = f'[ -n "${MARK}" ]'
OWN_PROCESS = (
    f'! {IS_VIRTUAL} || tr "\\0" "\\n" </proc/$pid/environ | grep -qx "{MARK}=${MARK}" || continue'
)
