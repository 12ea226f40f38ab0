"""Telemetry is read as far as it goes."""

from pathlib import Path

from labctl.records.telemetry import TelemetrySample
from labctl.results.telemetry import held_down_share, read_telemetry

LINE = (
    b'{"mono_ns":5,"utime_ns":40,"minflt":3,"threads":{"12":[30,10]},"temps_mc":{"zone soc":41000},'
    b'"pressure_ns":{"io_full":7},"from_the_future":{"a":1}}\n'
)


def test_fields_of_a_newer_agent_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "telemetry"
    path.write_bytes(LINE)
    (sample,) = read_telemetry(path).samples
    assert (sample.mono_ns, sample.user_ns, sample.minor_faults) == (5, 40, 3)
    assert sample.threads == {"12": (30, 10)}
    assert sample.temperatures_mc == {"zone soc": 41000}
    assert sample.pressure_ns == {"io_full": 7}


def test_what_the_board_does_not_tell_is_absent(tmp_path: Path) -> None:
    path = tmp_path / "telemetry"
    path.write_bytes(b'{"mono_ns":1}\n')
    (sample,) = read_telemetry(path).samples
    assert sample.major_faults is None
    assert sample.read_bytes is None
    assert sample.freq_khz == {}


def test_half_a_line_is_counted_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "telemetry"
    path.write_bytes(LINE + b'{"mono_ns":6,"utim')
    read = read_telemetry(path)
    assert [sample.mono_ns for sample in read.samples] == [5]
    assert read.unreadable_lines == 1


def test_a_job_without_telemetry_has_no_samples(tmp_path: Path) -> None:
    assert read_telemetry(tmp_path / "telemetry").samples == ()


def test_the_share_of_samples_in_which_clocks_were_held_down() -> None:
    limits = [{"cpu0": 1_992_000}, {"cpu0": 1_416_000}, {"cpu0": 1_992_000}, {"cpu0": 816_000}]
    samples = [TelemetrySample(mono_ns=n, freq_limit_khz=each) for n, each in enumerate(limits)]
    assert held_down_share(samples) == 0.5
    assert held_down_share([TelemetrySample(mono_ns=1)]) is None
    cooled = [TelemetrySample(mono_ns=n, cooling={"thermal-cpufreq-0": n}) for n in range(4)]
    assert held_down_share(cooled) == 0.75
