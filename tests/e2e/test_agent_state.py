"""The board's state around a job: clocks, cooling, and how much of the model was in memory."""

import os
from pathlib import Path
from typing import Any

import agent_builds
import pytest
from jobs import Job

from labctl.records.trial import JobStatus

pytestmark = pytest.mark.e2e

MIB = 1 << 20


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(agent_builds.native_agent(), tmp_path / "job")


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")


def drop(path: Path) -> None:
    """Take a file out of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def read_half(path: Path) -> None:
    """Read the first half of it, and nothing ahead."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    for _ in range(path.stat().st_size // 2 // MIB):
        os.read(descriptor, MIB)
    os.close(descriptor)


def resident(job: Job, path: Path) -> dict[str, int] | None:
    job.start("/bin/true", options=("--resident", str(path)))
    found: dict[str, int] | None = job.finish()["state"]["resident"]
    return found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.write_bytes(os.urandom(80 * MIB + 100))  # more than is looked at in one go
    return path


def test_a_model_that_was_just_written_is_warm(job: Job, model: Path) -> None:
    size = model.stat().st_size
    assert resident(job, model) == {"file_bytes": size, "resident_bytes": size}


def test_a_model_that_was_dropped_is_cold_and_looking_does_not_warm_it(
    tmp_path: Path, model: Path
) -> None:
    drop(model)
    for name in ("first", "second"):
        found = resident(Job(agent_builds.native_agent(), tmp_path / name), model)
        if found and found["resident_bytes"] == found["file_bytes"]:
            pytest.skip("the files of tests lie in memory here")
        assert found == {"file_bytes": model.stat().st_size, "resident_bytes": 0}


def test_half_a_model_is_between(job: Job, model: Path) -> None:
    drop(model)
    read_half(model)
    found = resident(job, model)
    assert found is not None
    if found["resident_bytes"] == found["file_bytes"]:
        pytest.skip("the files of tests lie in memory here")
    assert found["resident_bytes"] == pytest.approx(40 * MIB, rel=0.05)


@pytest.mark.parametrize("name", ["missing", "folder", "empty", "pipe"])
def test_what_is_no_file_is_not_told(job: Job, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    assert resident(job, tmp_path / name) is None


def test_a_file_of_somebody_else_is_not_told(tmp_path: Path) -> None:
    """Since Linux 5.2 its pages all seem to be there."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    words = ("setpriv", "--reuid", "65534", "--clear-groups", "--bounding-set", "-all")
    folder = Path("/var/tmp/labctl-test-somebody") / tmp_path.name
    folder.mkdir(parents=True)
    os.chown(folder, 65534, 65534)
    agent = folder / "agent"
    agent.write_bytes(agent_builds.native_agent().read_bytes())
    agent.chmod(0o755)
    model = folder / "model"
    model.write_bytes(bytes(MIB))
    model.chmod(0o644)
    try:
        assert resident(Job(agent, folder / "job", prefix=words), model) is None
    finally:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()


def board(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """Two clusters of two CPUs, and a cooling device that counts its states."""
    fakes = tmp_path / "fakes"
    cpu = fakes / "sys/devices/system/cpu"
    for number in range(4):
        first = number // 2 * 2
        clocks = cpu / f"cpu{number}/cpufreq"
        write(
            clocks,
            affected_cpus=f"{first} {first + 1}",
            scaling_governor="schedutil" if first == 0 else "performance",
            scaling_min_freq="408000",
            scaling_max_freq="1800000" if first == 0 else "2400000",
        )
        write(clocks / "stats", time_in_state="408000 100\n1800000 50")
    cooler = fakes / "sys/class/thermal/cooling_device0"
    write(cooler, type="cpufreq-cpu0", cur_state="0")
    write(cooler / "stats", time_in_state_ms="state0\t5000\nstate1\t0\nstate2\t0")
    write(
        fakes / "sys/class/devfreq/dmc",
        governor="dmc_ondemand",
        available_governors="dmc_ondemand performance",
        available_frequencies="324000000 1560000000 528000000",
        cur_freq="528000000",
        min_freq="324000000",
        max_freq="920000000",
    )
    write(fakes / "sys/class/devfreq/fde60000.gpu", cur_freq="200000000")
    return fakes, {"LABCTL_SANDBOX": "one", "LABCTL_SANDBOX_FAKES": str(fakes)}


def test_clocks_and_cooling_are_told_as_they_were_and_by_what_they_grew(tmp_path: Path) -> None:
    fakes, environment = board(tmp_path)
    cpu = fakes / "sys/devices/system/cpu"
    script = (
        f"printf '408000 101\\n1800000 150\\n' >{cpu}/cpu0/cpufreq/stats/time_in_state\n"
        f"printf 'state0\\t5000\\nstate1\\t0\\nstate2\\t700\\n'"
        f" >{fakes}/sys/class/thermal/cooling_device0/stats/time_in_state_ms\n"
        f"echo powersave >{cpu}/cpu0/cpufreq/scaling_governor"
    )
    job = Job(agent_builds.native_agent(), tmp_path / "job", environment)
    job.start("/bin/sh", "-c", script)
    status = job.finish()
    little = {
        "cpus": "0-1", "governor": "schedutil", "min_khz": 408_000, "max_khz": 1_800_000,
        "time_in_state_ms": {"408000": 10, "1800000": 1000},
    }  # fmt: skip
    big = {
        "cpus": "2-3", "governor": "performance", "min_khz": 408_000, "max_khz": 2_400_000,
        "time_in_state_ms": {},
    }  # fmt: skip
    assert status["state"]["cpufreq"] == [little, big]
    cooling = {"device": "cooling_device0 cpufreq-cpu0", "time_in_state_ms": {"2": 700}}
    assert status["state"]["cooling"] == [cooling]
    memory = {
        "device": "dmc", "governor": "dmc_ondemand", "governors": "dmc_ondemand performance",
        "current_hz": 528_000_000, "min_hz": 324_000_000, "max_hz": 920_000_000,
        "highest_hz": 1_560_000_000,
    }  # fmt: skip
    gpu = {**dict.fromkeys(memory), "device": "fde60000.gpu", "current_hz": 200_000_000}
    assert status["state"]["devfreq"] == [memory, gpu]
    assert job.telemetry()[0]["devfreq_hz"] == {"dmc": 528_000_000, "fde60000.gpu": 200_000_000}
    assert job.telemetry()[0]["devfreq_limit_hz"] == {"dmc": 920_000_000}
    assert JobStatus.model_validate(status, extra="ignore").state is not None


def test_a_board_that_tells_nothing_has_no_state(tmp_path: Path) -> None:
    (tmp_path / "fakes/sys").mkdir(parents=True)
    environment = {"LABCTL_SANDBOX": "one", "LABCTL_SANDBOX_FAKES": str(tmp_path / "fakes")}
    job = Job(agent_builds.native_agent(), tmp_path / "job", environment)
    job.start("/bin/true")
    assert job.finish()["state"] == {"cpufreq": [], "cooling": [], "devfreq": [], "resident": None}


def test_many_devices_do_not_displace_the_rest_of_the_state(tmp_path: Path) -> None:
    fakes, environment = board(tmp_path)
    for number in range(40):
        folder = fakes / f"sys/class/devfreq/soc:{number}"
        write(folder, governor="g" * 100, available_governors="x" * 120)
    job = Job(agent_builds.native_agent(), tmp_path / "job", environment)
    job.start("/bin/true")
    state = job.finish()["state"]
    assert state["devfreq"][0]["device"] == "dmc"
    assert 5 < len(state["devfreq"]) < 16
    assert len(state["cpufreq"]) == 2


def test_more_state_than_an_answer_holds_is_left_out(tmp_path: Path) -> None:
    fakes, environment = board(tmp_path)
    long = "\n".join(f"{khz} 1" for khz in range(100_000, 100_200))
    grown = "\n".join(f"{khz} 2" for khz in range(100_000, 100_200))
    for number in range(64):
        clocks = fakes / f"sys/devices/system/cpu/cpu{number}/cpufreq"
        write(clocks, scaling_governor="x" * 100, affected_cpus=str(number))
        write(clocks / "stats", time_in_state=long)
    job = Job(agent_builds.native_agent(), tmp_path / "job", environment)
    script = (
        f"for file in {fakes}/sys/devices/system/cpu/cpu*/cpufreq/stats/time_in_state;"
        f" do cat {tmp_path}/grown >$file; done"
    )
    (tmp_path / "grown").write_text(f"{grown}\n")
    job.start("/bin/sh", "-c", script)
    status: dict[str, Any] = job.finish()
    assert (status["exit_status"], status["state"]) == (0, None)
