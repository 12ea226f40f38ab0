"""What telemetry becomes, and what it makes of a trial's trustworthiness."""

import json
from pathlib import Path
from typing import Any

import pytest
from records_made import timing

from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.records.telemetry import JobCounters
from labctl.records.trial import Check, JobStatus, TelemetrySummary
from labctl.results.telemetry import steadiness, summarise_telemetry

SECOND = 10**9


def facts(execution: Execution = Execution.BOARD) -> BoardFacts:
    return BoardFacts(
        execution=execution,
        machine="aarch64",
        kernel="5.10",
        boot_id="b",
        memory_total_bytes=2_000_000_000,
        cpus=(CpuFacts(count=2),),
    )


def checks(
    found: TelemetrySummary | None, execution: Execution = Execution.BOARD
) -> dict[str, Check]:
    return {check.name: check for check in steadiness(found, facts(execution))}


def job(**changes: Any) -> JobStatus:
    values: dict[str, Any] = {
        "outcome": "exited", "exit_status": 0, "start_mono_ns": 0, "end_mono_ns": 10 * SECOND,
        "wall_ns": 10 * SECOND, "stdout_bytes": 0, "stderr_bytes": 0, "boot_id": "b", "epoch": 1,
        "major_faults": 7,
    }  # fmt: skip
    return JobStatus(**{**values, **changes})


def telemetry(folder: Path, *samples: dict[str, Any]) -> Path:
    path = folder / "telemetry"
    path.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    return path


def test_no_telemetry_is_no_evidence(tmp_path: Path) -> None:
    assert summarise_telemetry(tmp_path / "telemetry", job(), None) is None
    assert steadiness(None, facts()) == ()


def test_what_a_token_reads_is_counted_from_the_first_token_on(tmp_path: Path) -> None:
    """Loading the model reads too: 100 MB in the first two seconds, then 30 MB a second."""
    reads = [0, 50, 100, 130, 160, 190]
    samples = [{"mono_ns": n * SECOND, "read_bytes": r * 10**6} for n, r in enumerate(reads)]
    half_second = timing([500] * 4, ttft_ns=2 * SECOND, mean_ns=SECOND // 2)
    found = summarise_telemetry(telemetry(tmp_path, *samples), job(), half_second)
    assert found is not None
    assert (found.read_bytes, found.read_bytes_per_token) == (190_000_000, 15_000_000)
    assert found.major_faults == 7
    assert (found.limited, found.steal_share, found.others_share) == (None, None, None)


def test_throttling_is_a_failed_check(tmp_path: Path) -> None:
    samples = [
        {"mono_ns": n * SECOND, "freq_khz": {"0": khz}, "temps_mc": {"soc": heat}}
        for n, (khz, heat) in enumerate([(1_992_000, 45_000), (1_400_000, 85_000)])
    ]
    found = summarise_telemetry(telemetry(tmp_path, *samples), job(), None)
    check = checks(found, Execution.EMULATED)["frequency"]
    assert check.ok is False
    assert check.detail == "1400 to 1992 MHz, up to 85 °C"


def test_a_lowered_limit_of_the_memory_is_throttling(tmp_path: Path) -> None:
    samples = [
        {
            "mono_ns": n * SECOND,
            "devfreq_hz": {"dmc": hz, "fde60000.gpu": 1},
            "devfreq_limit_hz": {"dmc": hz},
        }
        for n, hz in enumerate((1_560_000_000, 528_000_000))
    ]
    found = summarise_telemetry(telemetry(tmp_path, *samples), job(), None)
    assert found is not None
    assert (found.memory_hz, found.limited) == (1_044_000_000, True)
    assert checks(found)["frequency"].detail == "limits lowered, DRAM 1044 MHz"


def test_a_governor_that_saves_power_is_no_throttling() -> None:
    idle = TelemetrySummary(
        samples=2, lowest_khz=408_000, highest_khz=1_992_000, highest_temperature_mc=45_000
    )
    assert checks(idle)["frequency"].ok is True


@pytest.mark.parametrize("execution", [e for e in Execution if e is not Execution.UNKNOWN])
def test_others_and_stolen_time_count_everywhere_and_memory_on_boards(
    tmp_path: Path, execution: Execution
) -> None:
    """A host's shares are of all its CPUs, here of two."""
    samples = [
        {
            "mono_ns": n * SECOND,
            "cpu_busy_ns": n * 3 * SECOND // 2,
            "tree_cpu_ns": n * SECOND,
            "cpu_steal_ns": n * SECOND // 10,
            "freq_khz": {"0": 1_000_000},
            "mem_available_bytes": 1_000_000_000 if n == 1 else 50_000_000,
        }
        for n in range(3)
    ]
    found = summarise_telemetry(telemetry(tmp_path, *samples), job(), None)
    assert found is not None
    assert (found.others_share, found.steal_share) == (0.5, 0.1)
    judged = checks(found, execution)
    failed = [name for name, check in judged.items() if check.ok is False]
    is_open = [name for name, check in judged.items() if check.is_open]
    if execution is Execution.BOARD:
        assert (failed, is_open) == (["memory", "quiet", "steal"], [])
        assert judged["quiet"].detail == "everything else used 50% of one CPU"
    else:
        assert (failed, is_open) == (["quiet", "steal"], ["memory"])
        assert judged["quiet"].detail == "everything else used 25% of the host's CPUs (2)"
        assert judged["memory"].detail == (
            f"not judged: {execution}, the memory is that of its host"
        )


def test_a_state_that_the_board_does_not_report_is_not_judged(tmp_path: Path) -> None:
    found = summarise_telemetry(telemetry(tmp_path, {"mono_ns": 0}), job(), None)
    for name in ("frequency", "memory", "quiet", "steal"):
        check = checks(found)[name]
        assert check.is_open, check
        assert check.detail == "not judged: the board does not report it"


def heated(
    folder: Path, *, seconds: int = 75, busy: float = 3.5, other: int = 60_000, dead: int = 45_000
) -> TelemetrySummary:
    """A zone that stays at 45 °C while the load rises from 0.5 CPUs, and the zone of the CPU."""
    samples, cpu_ns = [], 0
    for n in range(seconds + 1):
        warm = n > seconds // 2
        cpu_ns += round((busy if warm else 0.5) * SECOND)
        heat = {"cpu": other if warm else 45_000, "dead": dead if n == seconds else 45_000}
        samples.append({"mono_ns": n * SECOND, "cpu_busy_ns": cpu_ns, "temps_mc": heat})
    found = summarise_telemetry(telemetry(folder, *samples), job(), None)
    assert found is not None
    return found


def test_a_zone_that_never_moves_is_named_and_not_dropped(tmp_path: Path) -> None:
    found = heated(tmp_path)
    text = "45 °C for 75.0 s while 0.5 to 3.5 CPUs were busy and another zone moved by 15.0 °C"
    assert found.unmoved_zones == {"dead": text}
    assert found.highest_temperature_mc == 60_000
    check = checks(found)["temperature"]
    assert (check.is_open, check.detail) == (True, f"not judged: dead: {text}")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"seconds": 59}, id="not long enough"),
        pytest.param({"busy": 0.9}, id="the load changed by less than half"),
        pytest.param({"other": 46_000}, id="no other zone moved by more than a step"),
        pytest.param({"seconds": 60, "dead": 46_000}, id="it moved"),
    ],
)
def test_a_zone_that_may_stay_the_same_is_not_named(
    tmp_path: Path, changes: dict[str, int]
) -> None:
    found = heated(tmp_path, **changes)
    assert found.unmoved_zones == {}
    assert "temperature" not in checks(found)


def test_a_zone_that_is_not_trusted_is_absent_and_named(tmp_path: Path) -> None:
    vendor = {"soc": "78, perhaps whole degrees"}
    sample = {"mono_ns": 0, "temps_mc": {"gpu": 45_000}, "temps_untrusted": vendor}
    found = summarise_telemetry(telemetry(tmp_path, sample), job(), None)
    assert found is not None
    assert (found.start_temperature_mc, found.untrusted_zones) == (45_000, vendor)
    assert checks(found)["temperature"].detail == "not judged: soc: 78, perhaps whole degrees"


def test_what_is_read_after_the_last_token_is_none_of_its(tmp_path: Path) -> None:
    reads = [0, 0, 0, 30, 60, 900]
    samples = [{"mono_ns": n * SECOND, "read_bytes": r * 10**6} for n, r in enumerate(reads)]
    four = timing([500] * 4, ttft_ns=2 * SECOND, mean_ns=SECOND // 2)
    found = summarise_telemetry(telemetry(tmp_path, *samples), job(), four)
    assert found is not None
    assert found.read_bytes_per_token == 15_000_000


def test_little_cpus_that_rest_are_no_throttling(tmp_path: Path) -> None:
    """On a hot board: the big one keeps its frequency, the little one idles."""
    samples = [
        {"mono_ns": n, "freq_khz": {"0": little, "7": 2_400_000}, "temps_mc": {"soc": 85_000}}
        for n, little in enumerate([1_800_000, 408_000])
    ]
    found = summarise_telemetry(telemetry(tmp_path, *samples), job(), None)
    assert checks(found)["frequency"].ok is True


@pytest.mark.parametrize(
    ("device", "limited"), [("cooling_device0 pwm-fan", None), ("cooling_device0 cpufreq-0", True)]
)
def test_a_fan_holds_nothing_back(tmp_path: Path, device: str, limited: bool | None) -> None:
    samples = [{"mono_ns": n, "cooling": {device: 2}} for n in range(2)]
    found = summarise_telemetry(telemetry(tmp_path, *samples), job(), None)
    assert found is not None
    assert found.limited is limited


@pytest.mark.parametrize(
    ("tree", "reclaim", "shares"),
    [
        pytest.param(1.25, 0, (0.0, 0.0), id="the program behind a shell"),
        pytest.param(0.75, 0.2, (0.3, 0.2), id="page reclaim beside others"),
        pytest.param(0.75, None, (0.5, None), id="no kernel thread to be seen"),
    ],
)
def test_neither_the_jobs_own_tree_nor_page_reclaim_is_everything_else(
    tmp_path: Path, tree: float, reclaim: float | None, shares: tuple[float, float | None]
) -> None:
    """1.25 CPUs are busy; the first process of the job is a shell that does nothing."""
    samples = []
    for n in range(3):
        now = {"cpu_busy_ns": 1.25, "tree_cpu_ns": tree, "reclaim_cpu_ns": reclaim}
        counted = {name: round(n * cpus * SECOND) for name, cpus in now.items() if cpus is not None}
        samples.append({"mono_ns": n * SECOND, "utime_ns": 0, "stime_ns": 0, **counted})
    found = summarise_telemetry(telemetry(tmp_path, *samples), job(), None)
    assert found is not None
    assert (found.others_share, found.reclaim_share) == pytest.approx(shares)
    quiet = checks(found)["quiet"]
    assert quiet.ok is (shares[0] <= 0.2)
    if shares[1]:
        assert "the kernel's page reclaim (kswapd, kcompactd) 20%" in quiet.detail


def test_samples_without_the_tree_are_passed_over(tmp_path: Path) -> None:
    """On boards of many processes only some samples have it."""
    samples: list[dict[str, Any]] = [
        {"mono_ns": n * SECOND, "cpu_busy_ns": n * SECOND, "utime_ns": 0, "stime_ns": 0}
        for n in range(5)
    ]
    for n in (0, 3):
        samples[n]["tree_cpu_ns"] = n * SECOND
    found = summarise_telemetry(telemetry(tmp_path, *samples), job(), None)
    assert found is not None
    assert found.others_share == 0


def test_a_sample_after_the_end_does_not_make_the_job_somebody_else(tmp_path: Path) -> None:
    """The kernel forgets a process that ended; its CPU time is in the board's all the same."""
    samples: list[dict[str, Any]] = [
        {"mono_ns": n * SECOND, "cpu_busy_ns": n * SECOND, "tree_cpu_ns": n * SECOND}
        for n in range(3)
    ]
    samples.append({"mono_ns": 4 * SECOND, "cpu_busy_ns": 4 * SECOND})
    found = summarise_telemetry(telemetry(tmp_path, *samples), job(), None)
    assert found is not None
    assert found.others_share == 0


def test_counters_are_cut_at_the_tokens(tmp_path: Path) -> None:
    """Loading has 0.5 instructions a cycle; then a token of half a second 20 million refills."""
    lines = [
        {"cycles": 2_000 * n, "instructions": 1_000 * min(n, 2) + 3_000 * max(n - 2, 0),
         "last_level_refills": 40_000_000 * max(n - 2, 0)}
        for n in range(5)
    ]  # fmt: skip
    (tmp_path / "counters").write_text(
        "".join(
            json.dumps({"mono_ns": n * SECOND, "counts": counts}) + "\n"
            for n, counts in enumerate(lines)
        )
    )
    path = telemetry(tmp_path, {"mono_ns": 0})
    half_second = timing([500] * 4, ttft_ns=2 * SECOND, mean_ns=SECOND // 2, generated_tokens=5)
    counters = JobCounters(line_bytes=64, counted_permille={"last_level_refills": 480, "x": 100})
    found = summarise_telemetry(path, job(counters=counters), half_second)
    assert found is not None
    assert found.instructions_per_cycle == 1.5
    assert found.prompt_instructions_per_cycle == 0.5
    assert found.dram_bytes_per_token == 20_000_000 * 64
    assert found.counted_permille == 480
    unknown = summarise_telemetry(path, job(counters=JobCounters()), half_second)
    assert unknown is not None
    assert unknown.dram_bytes_per_token is None
    without = summarise_telemetry(path, job(), half_second)
    assert without is not None
    assert without.instructions_per_cycle is None
