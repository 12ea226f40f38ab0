"""Messages of kernels, found by the texts of their sources and in a real log."""

from pathlib import Path

import pytest

from labctl.board.kernel_messages import KernelReader

_LOG = Path(__file__).parents[1] / "fixtures/console/debian_6.1_oom_panic.txt"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("[    5.90] x", None),
        ("[  100.901220] Kernel panic - not syncing: Hard LOCKUP", "kernel panic"),
        ("<0>[  100.901220][  T12] Kernel panic - not syncing: Attempted", "kernel panic"),
        ("Kernel panic - not syncing: VFS: Unable to mount root fs", "kernel panic"),
        ("[    9.000000] Internal error: Oops: 96000004 [#1] SMP", "kernel oops"),
        (
            "[    9.000000] Unable to handle kernel NULL pointer dereference at virtual address 0",
            "kernel oops",
        ),
        ("[    9.000000] kernel BUG at mm/slub.c:305!", "kernel oops"),
        (
            "[    9.000000] Out of memory: Killed process 79 (busybox) total-vm:374828kB",
            "out-of-memory kill",
        ),
        (
            "[    9.000000] Out of memory: Kill process 79 (llama-cli) score 9 or sacrifice child",
            "out-of-memory kill",
        ),
        (
            "[    9.000000] Memory cgroup out of memory: Killed process 4 (a (b)) total-vm:1kB",
            "out-of-memory kill",
        ),
        ("[    9.000000] watchdog: Watchdog detected hard LOCKUP on cpu 6", "hard lockup"),
        ("[    9.000000] watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 3", "hard lockup"),
        ("[    9.000000] NMI watchdog: Watchdog detected hard LOCKUP on cpu 1", "hard lockup"),
        (
            "[    9.000000] watchdog: BUG: soft lockup - CPU#2 stuck for 22s! [llama:12]",
            "soft lockup",
        ),
        ("[    9.000000] INFO: rcu_preempt self-detected stall on CPU", "RCU stall"),
        ("[    9.000000] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", "RCU stall"),
        (
            "[    9.000000] rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: {",
            "RCU stall",
        ),
        (
            "[  243.000000] INFO: task kworker/0:1:23 blocked for more than 120 seconds.",
            "hung task",
        ),
        ("[    9.000000] softdog: Initiating system reboot", "watchdog reset"),
        ("Killed", None),
        ("user: I killed process 12 of mine", None),
        ("[    9.000000] watchdog: watchdog0: watchdog did not stop!", None),
    ],
)
def test_a_line_of_a_kernel(line: str, kind: str | None) -> None:
    found = KernelReader().read(line)
    assert (found.kind if found else None) == kind


def test_a_real_log_of_a_kill_a_panic_and_a_boot() -> None:
    reader = KernelReader()
    found = [one for line in _LOG.read_text().splitlines() if (one := reader.read(line))]
    assert [one.kind for one in found] == ["boot", "out-of-memory kill", "kernel panic", "boot"]
    assert found[1].pid == 79


def test_a_boot_whose_first_lines_were_lost_is_found_by_its_times() -> None:
    reader = KernelReader()
    lines = ["[  100.000000] a", "[   99.900000] b", "[    1.500000] c", "[    1.600000] d"]
    assert [bool(reader.read(line)) for line in lines] == [False, False, True, False]
