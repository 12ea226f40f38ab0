import hashlib
import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from wrapped_transport import WrappedTransport

from labctl.board.store import STAT
from labctl.config.lab import LabFile, lab_model
from labctl.config.target import load_target
from labctl.deploy.plan import Object, check_features, check_machine
from labctl.errors import BoardError, ConfigError
from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.runs.board.claim import BoardClaim
from labctl.runs.board.session import BoardSession
from labctl.transport.base import CommandResult, Transport
from labctl.transport.built_in import TRANSPORTS
from labctl.transport.local import LocalTransport

RK3568 = load_target("rk3568")


class Commands(WrappedTransport):
    """Another transport; its commands are kept."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.commands: list[str] = []

    def run(self, command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        self.commands.append(command)
        return super().run(command, timeout=timeout, separate_stderr=separate_stderr)


def ignored(_item: Object, _done: int) -> None:
    """Progress that nobody looks at."""


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
    virtual = facts("x86_64").model_copy(update={"execution": Execution.NATIVE_HOST})
    with pytest.raises(ConfigError) as refused:
        check_machine(RK3568, virtual)
    assert refused.value.hint == (
        "set the board's real target in devices.yaml: host-x86_64; or restart it:"
        " labctl virtual-board --target rk3568"
    )


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
    transport, board = LocalTransport(), lab.board("b")
    with BoardClaim(board, lab, transport, tmp_path) as ours:
        ours.lock_boot("the first boot")
        ours.lock_boot("the second")
        for boot in ("the first boot", "the second"):
            with (
                BoardClaim(board, lab, transport, tmp_path) as others,
                pytest.raises(BoardError, match="board b is in use"),
            ):
                others.lock_boot(boot)
    with BoardClaim(board, lab, transport, tmp_path) as others:
        others.lock_boot("the second")


TOLD = {
    "machine": "aarch64",
    "kernel": "5.10",
    "boot_id": "b",
    "cpus": [{"count": 6, "part": "0xd05", "features": []}],
    "cpus_allowed": "0-2,5",
    "memory_total_bytes": 10,
    "memory_available_bytes": 5,
    "devfreq": [],
}
OTHER_MACHINE = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00" + bytes(200)


def with_agent(tmp_path: Path, ending: ExitStack, program: bytes) -> tuple[BoardSession, Commands]:
    """A board on which a program is stamped as the agent."""
    workdir, sha256 = tmp_path / "work dir", hashlib.sha256(program).hexdigest()
    local = tmp_path / "agent"
    local.write_bytes(program)
    stored = workdir / "store" / sha256
    stored.parent.mkdir(parents=True)
    stored.write_bytes(program)
    stored.chmod(0o755)
    transport = Commands(LocalTransport())
    transport.run(f"cd '{stored.parent}'; {STAT} {sha256} >{sha256}.stamp", timeout=10)
    transport.commands.clear()
    board = {"target": "rk3568", "transport": {"kind": "local"}, "workdir": str(workdir)}
    lab = LabFile(tmp_path, lab_model(TRANSPORTS).model_validate({"boards": {"b": board}}))
    claim = ending.enter_context(BoardClaim(lab.board("b"), lab, transport, tmp_path))
    held = BoardSession(claim, lab, RK3568, facts(features=()), tmp_path / "rate")
    held.agent_object = Object(sha256, len(program), local, "agent", executable=True)
    return held, transport


def test_the_agent_tells_the_facts_with_the_look_at_its_store(tmp_path: Path) -> None:
    program = f"#!/bin/sh\necho complaint >&2\necho '{json.dumps(TOLD)}'\n".encode()
    with ExitStack() as ending:
        held, link = with_agent(tmp_path, ending, program)
        assert held.plan([]).missing == ()
        assert len(link.commands) == 1
        held.bring_agent(ignored)
        assert (held.facts.memory_available_bytes, held.facts.cores) == (5, 4)
        assert not any(command.endswith(" facts") for command in link.commands[1:])


def test_an_agent_that_is_there_refuses_other_cpus_before_anything_is_sent(tmp_path: Path) -> None:
    """To a 32-bit shell the kernel tells other features than to the agent."""
    told = TOLD | {"cpus": [{"count": 4, "part": "0xd05", "features": ["fp"]}]}
    program = f"#!/bin/sh\necho '{json.dumps(told)}'\n".encode()
    with ExitStack() as ending:
        held, _ = with_agent(tmp_path, ending, program)
        with pytest.raises(ConfigError, match="the board's CPU does not have: asimd"):
            held.plan([])


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        (OTHER_MACHINE, ConfigError, "the board cannot execute the agent"),
        (b"#!/bin/sh\nexit 1\n", BoardError, "cannot ask the agent for facts"),
        (b"#!/bin/sh\nkill -9 $$\n", BoardError, "cannot ask the agent for facts"),
        (
            b'#!/bin/sh\necho \'{"error": "no-space", "message": "full"}\'; exit 71\n',
            BoardError,
            "cannot ask the agent for facts: full",
        ),
    ],
)
def test_an_agent_that_fails_is_no_fault_of_the_store(
    program: bytes, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with ExitStack() as ending:
        held, _ = with_agent(tmp_path, ending, program)
        assert held.plan([]).missing == ()
        with pytest.raises(error, match=message):
            held.bring_agent(ignored)


def test_an_agent_that_changed_is_not_executed_before_it_is_proven(tmp_path: Path) -> None:
    with ExitStack() as ending:
        held, _ = with_agent(tmp_path, ending, b"#!/bin/sh\necho first\n")
        seen = tmp_path / "seen"
        stored = Path(held.store.path(held.agent_object.sha256))
        stored.write_bytes(f"#!/bin/sh\ntouch '{seen}'\n".encode())
        held.plan([])
        assert not seen.exists()
