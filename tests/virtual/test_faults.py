"""What scripts of faults may say, and which operations a fault strikes."""

from pathlib import Path

import pytest

from labctl.errors import ConfigError
from labctl.virtual import fault_script as f
from labctl.virtual.fault_script import FAULTS, Injected, load_script


def test_a_script_says_what_goes_wrong(tmp_path: Path) -> None:
    script = tmp_path / "faults.yaml"
    script.write_text(
        "seed: 7\n"
        "faults:\n"
        "  - {fault: drop, on: send, after_bytes: 100kB}\n"
        "  - {fault: freeze, on: shell, matching: llama, nth: 2, times: null, lasting: 3s}\n"
    )
    read = load_script(script)
    assert read.seed == 7
    assert read.faults == (
        f.Drop(on="send", after_bytes=100_000),
        f.Freeze(on="shell", matching="llama", nth=2, times=None, lasting="3s"),
    )
    assert read.faults[1].lasting == 3.0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "{fault: dorp}",
            r"faults.yaml:2:13: faults\[0\].fault: must be drop.*did you mean 'drop'",
        ),
        ("{on: send}", "the key 'fault' is required"),
        ("{fault: drop, wihtin: 3s}", "unknown key"),
        ("{fault: corrupt, on: shell}", r"faults\[0\].on: must be send, receive or any"),
        ("{fault: freeze, lasting: 3}", "a duration needs a unit"),
        ("{fault: drop, matching: 'a('}", "not a regular expression"),
        ("{fault: drop, probability: 2}", "must be at most 1"),
        ("{fault: slow}", "rate: this key is required"),
        ("{fault: no-space, on: now}", "must be send or any"),
    ],
)
def test_a_wrong_script_is_told_by_line(tmp_path: Path, line: str, said: str) -> None:
    script = tmp_path / "faults.yaml"
    script.write_text(f"faults:\n  - {line}\n")
    with pytest.raises(ConfigError, match=said):
        load_script(script)


def test_every_fault_is_described_and_has_a_schema() -> None:
    for name, fault in FAULTS.items():
        assert fault.model_fields["fault"].default == name
        assert fault.__doc__
        described = fault.model_json_schema()["properties"]
        assert all(p.get("description") for key, p in described.items() if key != "fault"), name


def applied(fault: f.Fault, seed: int, *operations: tuple[f.Kind, str]) -> list[int]:
    injected = Injected(1, fault, seed)
    return [n for n, operation in enumerate(operations, 1) if injected.chooses(*operation)]


def test_a_fault_strikes_the_operations_that_it_is_meant_for() -> None:
    work: tuple[tuple[f.Kind, str], ...] = (
        ("handshake", ""),
        ("shell", "echo a"),
        ("send", "/data/a.gguf"),
        ("shell", "echo b"),
        ("receive", "/data/b"),
        ("shell", "echo b again"),
    )
    assert applied(f.Drop(), 0, *work) == [2]
    assert applied(f.Drop(times=None), 0, *work) == [2, 3, 4, 5, 6]
    assert applied(f.Drop(on="shell", nth=2, times=None), 0, *work) == [4, 6]
    assert applied(f.Drop(on="shell", matching="b$"), 0, *work) == [4]
    assert applied(f.Drop(on="handshake"), 0, *work) == [1]
    assert applied(f.Corrupt(times=None), 0, *work) == [3, 5]
    assert applied(f.Drop(on="now"), 0, *work) == []


def test_chance_is_decided_by_the_seed() -> None:
    fault = f.Drop(on="shell", probability=0.5, times=None)
    work: list[tuple[f.Kind, str]] = [("shell", "")] * 200
    first, same, other = (applied(fault, seed, *work) for seed in (1, 1, 2))
    assert first == same
    assert first != other
    assert 60 < len(first) < 140
