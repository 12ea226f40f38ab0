from pathlib import Path

import pytest

from labctl.config.schema import json_schema
from labctl.config.target import load_target, target_names, target_of
from labctl.errors import ConfigError

OWN = """\
name: rk3568
description: a board of our own
triple: aarch64-linux-gnu
elf_machine: EM_AARCH64
zig: {target: aarch64-linux-musl, cpu: cortex_a53}
"""


def write(lab: Path, text: str, name: str = "rk3568") -> Path:
    file = lab / "toolchains" / name / "target.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return file


def test_every_shipped_target_loads() -> None:
    names = target_names(None)
    assert {"rk3568", "host-x86_64", "host-aarch64"} <= set(names)
    for name in names:
        assert load_target(name).name == name


def test_the_rk3568_is_a_cortex_a55_behind_an_emulator_that_has_its_instructions() -> None:
    target = load_target("rk3568")
    assert (target.machine, target.zig.cpu) == ("aarch64", "cortex_a55")
    assert {"asimddp", "fphp"} <= set(target.features)
    assert target.emulator is not None
    assert target.emulator.argv == ("qemu-aarch64-static", "-cpu", "cortex-a76")
    assert target.expectations is not None
    assert target.expectations.storage_read_bytes_per_s == 162.5e6


def test_a_labs_own_target_wins(tmp_path: Path) -> None:
    write(tmp_path, OWN)
    assert load_target("rk3568", tmp_path).zig.cpu == "cortex_a53"
    assert load_target("rk3568").zig.cpu == "cortex_a55"
    assert load_target("host-x86_64", tmp_path) == load_target("host-x86_64")


def test_a_labs_own_target_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "toolchains" / "rk3568" / "target.yaml"
    file.parent.mkdir(parents=True)
    file.symlink_to(file)
    with pytest.raises(ConfigError, match=r"cannot read .*rk3568/target.yaml"):
        load_target("rk3568", tmp_path)


def test_an_unknown_target_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no target 'rk3569' \(did you mean 'rk3568'\?\)"):
        load_target("rk3569")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: rk3568", "name: rk3588", "name: must be 'rk3568', the folder's"),
        ("triple:", "tripel:", "target.yaml:3:1: tripel: unknown key"),
        ("EM_AARCH64", "EM_AARCH46", "did you mean 'EM_AARCH64'?"),
        ("cpu: cortex_a53", "cpu: 53", "zig.cpu: must be text"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    write(tmp_path, OWN.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_target("rk3568", tmp_path)
    assert message in caught.value.message


def test_every_key_is_described() -> None:
    schema = json_schema("target")
    for name, model in {"Target": schema, **schema["$defs"]}.items():
        for key, entry in model["properties"].items():
            assert entry.get("description"), f"{name}.{key}"


def test_whether_programs_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert load_target("rk3568").runs_here
    assert not load_target("host-x86_64").runs_here


@pytest.mark.parametrize(
    ("machine", "compatible", "target"),
    [
        ("aarch64", (), "rk3568"),
        ("aarch64", ("hihope,dayu210", "rockchip,rk3588"), "rk3588"),
        ("aarch64", ("rockchip,rk3568-evb1-ddr4-v10", "rockchip,rk3568"), "rk3568"),
        ("aarch64", ("raspberrypi,4-model-b", "brcm,bcm2711"), "generic-armv8-a"),
        ("x86_64", (), "host-x86_64"),
        ("x86_64", ("qemu,rk3568",), "host-x86_64"),
        ("riscv64", (), None),
        ("", (), None),
    ],
)
def test_a_board_tells_its_target(
    machine: str, compatible: tuple[str, ...], target: str | None
) -> None:
    assert target_of(machine, compatible, "rk3568", None) == target


def test_only_phones_get_the_target_of_phones() -> None:
    kalama = ("qcom,kalama",)
    assert target_of("aarch64", kalama, "rk3568", None, android=True) == "android-arm64"
    assert target_of("aarch64", (), "host-x86_64", None) == "generic-armv8-a"
    # A virtual phone on its host's own CPU.
    assert target_of("x86_64", (), "rk3568", None, android=True) == "host-x86_64"
