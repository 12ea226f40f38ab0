import pytest

from labctl.config.target import load_target
from labctl.errors import ConfigError
from labctl.records import BoardFacts, CpuFacts, Execution
from labctl.runs.session import _check_features, _check_machine

RK3568 = load_target("rk3568")


def facts(machine: str = "aarch64", features: tuple[str, ...] = RK3568.features) -> BoardFacts:
    return BoardFacts(
        execution=Execution.BOARD,
        machine=machine,
        kernel="5.10",
        boot_id="b",
        cpus=(CpuFacts(count=4, features=features),),
    )


def test_a_32_bit_userland_on_a_64_bit_kernel_is_left_to_the_agent_to_prove() -> None:
    _check_machine(RK3568, facts())
    _check_machine(RK3568, facts("armv8l"))


def test_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match="rk3568 is aarch64, the board is armv7l"):
        _check_machine(RK3568, facts("armv7l"))


def test_a_cpu_without_the_targets_instructions_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"the board's CPU lacks: asimddp"):
        _check_features(RK3568, facts(features=tuple(set(RK3568.features) - {"asimddp"})))
    _check_features(RK3568, facts())
    _check_features(RK3568, facts(features=()))  # a board that does not tell is not accused
