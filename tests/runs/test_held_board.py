from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from labctl.config.lab import LabFile, lab_model
from labctl.config.target import load_target
from labctl.deploy.plan import check_features, check_machine
from labctl.errors import BoardError, ConfigError
from labctl.records import BoardFacts, CpuFacts, Execution
from labctl.runs.board.held_board import HeldBoard
from labctl.transport import LocalTransport
from labctl.transport.registry import TRANSPORTS

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
    refused = set()
    for machine in ("aarch64", "armv8l", "armv7l", "x86_64", "riscv64"):
        try:
            check_machine(RK3568, facts(machine))
        except ConfigError:
            refused.add(machine)
    assert refused == {"armv7l", "x86_64", "riscv64"}


def test_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match="rk3568 is aarch64, the board is armv7l"):
        check_machine(RK3568, facts("armv7l"))


def test_a_cpu_without_the_targets_instructions_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"the board's CPU does not have: asimddp"):
        check_features(RK3568, facts(features=tuple(set(RK3568.features) - {"asimddp"})))
    check_features(RK3568, facts())
    check_features(RK3568, facts(features=()))  # a board that does not tell is not accused


def test_a_board_that_restarted_is_kept_from_others_of_this_host_as_well(
    tmp_path: Path, private_state: Path
) -> None:
    board = {"target": "rk3568", "transport": {"kind": "local"}, "workdir": "/w"}
    lab = LabFile(tmp_path, lab_model(TRANSPORTS).model_validate({"boards": {"b": board}}))
    transport = LocalTransport()
    with ExitStack() as ours:
        met = HeldBoard(lab.board("b"), lab, RK3568, facts(), transport, tmp_path, ours)
        met.lock_boot("the first boot")
        met.lock_boot("the second")
        for boot in ("the first boot", "the second"):
            with ExitStack() as others, pytest.raises(BoardError, match="board b is in use"):
                replace(met, ending=others).lock_boot(boot)
    with ExitStack() as others:
        replace(met, ending=others).lock_boot("the second")
