"""One board that has two names: in one lab, in the devices.yaml of two hosts, or in two labs."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import agent_builds
import pytest

from labctl.board.lease import BoardLease
from labctl.board.power import BoardPower
from labctl.config.lab import LabFile, find_lab
from labctl.errors import BoardBusy
from labctl.records.board import BoardFacts, Execution
from labctl.runs.board.lab_lease import BoardUse, hardware_of
from labctl.runs.board.session import BoardSession, hold_board
from labctl.state.state import LabState, lab_state
from labctl.transport.built_in import TRANSPORTS
from labctl.transport.hdc import HdcTcpConfig
from labctl.virtual.board import Served, VirtualBoard, serving

IN_USE = r"board b, which is also named a, is in use by .*@.* since .*: run q2"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(VirtualBoard("v", tmp_path / "virtual")) as (board,):
        yield board


class Lab:
    """One lab as two hosts have it: each with its own devices.yaml, name of the board and memory.

    Two users of one host share a SQLite file by a link, two hosts a PostgreSQL.
    """

    def __init__(self, root: Path, head: str, served: Served, patch: pytest.MonkeyPatch):
        self.root, self._head, self._served, self._patch = root, head, served, patch
        self.ending = ExitStack()

    def host(self, name: str, head: str | None = None) -> LabFile:
        root = self.root / name
        if not root.exists():
            root.mkdir()
            board = f"""{{target: host-x86_64, workdir: {self._served.workdir},
              transport: {{kind: hdc, link: tcp, address: '{self._served.address}'}}}}"""
            (root / "devices.yaml").write_text(f"{head or self._head}boards:\n  {name}: {board}\n")
            if head is None:
                (root / "labctl.sqlite").symlink_to(self.root / "shared.sqlite")
        return find_lab(root, TRANSPORTS)

    def meet(self, name: str, head: str | None = None) -> BoardSession:
        """Meet the board from the host that calls it so."""
        lab = self.host(name, head)
        self._patch.setenv("LABCTL_STATE", str(lab.root / "state"))
        link = self.ending.enter_context(HdcTcpConfig(address=self._served.address).open())
        met = self.ending.enter_context(hold_board(lab.board(name), link, lab, BoardUse("run q2")))
        met.fence.agent = str(agent_builds.native_agent())
        return met

    @property
    def state(self) -> LabState:
        return lab_state(self.host("a"))


@pytest.fixture(params=["sqlite", "postgresql"])
def lab(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lab]:
    head = "lab: lab\n"
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres")
        head = f"lab: {server.new_lab()}\ndatabase: {server.url}\n"
    found = Lab(tmp_path, head, served, monkeypatch)
    with found.ending:
        yield found


def test_a_live_holder_keeps_the_board_under_each_of_its_names(lab: Lab) -> None:
    first = lab.meet("a")
    first.take_lease()
    first.take_lease()  # as after a restart of the board
    second = lab.meet("b")
    for take in (second.claim.refuse_if_taken, second.take_lease, second.claim.take_in_lab):
        with pytest.raises(BoardBusy, match=IN_USE):
            take()
    first.claim.check()
    first.claim.require()


def test_a_holder_whose_board_restarted_is_known_by_the_lease_on_the_board(lab: Lab) -> None:
    """A board has another identity in each boot."""
    first = lab.meet("a")
    first.take_lease()
    first.take_lease()
    second = lab.meet("b")
    assert second.claim.in_lab is not None
    second.claim.in_lab._hardware = "another boot"
    for take in (second.claim.refuse_if_taken, second.take_lease):
        with pytest.raises(BoardBusy, match=IN_USE):
            take()
    state = lab_state(second.lab)
    lease = state.leases.get("b") or pytest.fail("the lab's lease is another board's")
    on_board = BoardLease(second.transport, second.board.workdir)
    switched: list[str] = []
    with pytest.raises(BoardBusy, match=IN_USE):
        BoardPower(state.leases, replace(lease, token="t"), on_board, state.identity).act(
            99, lambda: switched.append("off"), seconds=1
        )
    assert switched == []
    first.claim.check()


def test_the_board_is_free_when_its_holder_under_the_other_name_is_done(lab: Lab) -> None:
    first = lab.meet("a")
    epoch = first.take_lease().epoch
    first.claim.give_up()
    assert lab.meet("b").take_lease().epoch == epoch + 1


def test_a_hold_keeps_the_board_under_each_of_its_names(lab: Lab) -> None:
    for name in ("a", "b"):
        met = lab.meet(name)
        met.take_lease()
        met.claim.give_up()
    state = lab.state
    state.holds.hold("a", by="ann@desk")
    with pytest.raises(BoardBusy, match="board a is held by ann@desk until"):
        lab.meet("b").claim.refuse_if_taken()
    with pytest.raises(BoardBusy, match="board a is held by ann@desk until"):
        state.holds.hold("b", by="bob@desk")
    assert state.holds.release("b", by="ann@desk") == ["the hold of ann@desk"]


def test_force_ends_the_lease_under_the_other_name(lab: Lab) -> None:
    for name in ("b", "a"):
        met = lab.meet(name)
        met.take_lease()
        if name == "b":
            met.claim.give_up()
    (ended,) = lab.state.holds.release("b", by="ann@desk", force=True, reason="on holiday")
    assert "the lease of" in ended
    assert lab.state.leases.list() == []
    lab.meet("b").take_lease()


def test_a_live_holder_of_another_lab_is_named(lab: Lab) -> None:
    lab.meet("a").take_lease()
    other = lab.meet("b", head="lab: other\n")
    for take in (other.claim.refuse_if_taken, other.take_lease):
        with pytest.raises(
            BoardBusy, match=r"board b is in use by .* s ago; that is another lab's lease"
        ):
            take()


def test_boards_whose_vendor_gave_them_one_serial_number_are_used_side_by_side(lab: Lab) -> None:
    state, board = lab.state, lab.host("a").board("a")
    for boot in ("1", "2"):
        facts = BoardFacts(
            execution=Execution.BOARD,
            machine="m",
            kernel="k",
            boot_id=boot,
            serial="c3d9b8674f4b94f6",
        )
        state.leases.acquire(f"rk{boot}", purpose="run", hardware=hardware_of(board, facts))
    assert [lease.board for lease in state.leases.list()] == ["rk1", "rk2"]


def test_a_board_is_one_whatever_its_workdir_and_a_virtual_one_is_not(lab: Lab) -> None:
    board = lab.host("a").board("a")
    other = board.model_copy(update={"workdir": "/data/other"})
    facts = BoardFacts(execution=Execution.BOARD, machine="m", kernel="k", boot_id="1")
    assert hardware_of(board, facts) == hardware_of(other, facts)
    emulated = facts.model_copy(update={"execution": Execution.EMULATED})
    assert hardware_of(board, emulated) != hardware_of(other, emulated)
