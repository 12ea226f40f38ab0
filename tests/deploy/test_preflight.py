from pathlib import Path

import pytest

from labctl.board.workdir_check import Survey
from labctl.deploy.plan import DeployPlan, Object, problems, refuse
from labctl.errors import BoardNoSpace, BoardPermission, ConfigError, LabctlError
from labctl.records.board import BoardFacts, Execution

MB = 1_000_000


def item(name: str, size_bytes: int) -> Object:
    return Object(name[0] * 64, size_bytes, Path(name), name)


def facts(free_bytes: int | None = 1 << 40, kind: str = "ext4") -> BoardFacts:
    return BoardFacts(
        execution=Execution.BOARD,
        machine="aarch64",
        kernel="5.10",
        boot_id="boot",
        storage_free_bytes=free_bytes,
        storage_kind=kind,
    )


NOTHING_ODD = Survey("/data")


def found(
    *items: Object,
    survey: Survey = NOTHING_ODD,
    board: BoardFacts | None = None,
    limit_bytes: int | None = None,
) -> list[LabctlError]:
    return problems(DeployPlan(items, items), survey, board or facts(), limit_bytes=limit_bytes)


MODEL = item("model", 5_000 * MB)


def test_a_board_with_room_is_no_problem() -> None:
    assert found(MODEL) == []


def test_a_board_that_does_not_tell_its_space_is_tried() -> None:
    assert found(MODEL, board=facts(None)) == []


def test_a_full_board_that_has_everything_is_no_problem() -> None:
    full = problems(DeployPlan((MODEL,), ()), Survey("/data"), facts(0), limit_bytes=1)
    assert full == []


def test_how_much_is_lacking_is_said() -> None:
    (problem,) = found(item("tool", 2 * MB), item("model", 3 * MB), board=facts(34 * MB))
    assert isinstance(problem, BoardNoSpace)
    assert problem.message.startswith(
        "not enough space on the board: 38.6 MB needed (5.00 MB + 33.6 MB reserve)"
    )
    assert problem.details == "tool: 2.00 MB\nmodel: 3.00 MB"
    assert "labctl store prune --free 39MB" in (problem.hint or "")


def test_what_is_reserved_already_is_not_counted_twice() -> None:
    survey = Survey("/data", used_bytes=4_990 * MB, reserved_bytes={MODEL.sha256: 4_990 * MB})
    assert found(MODEL, survey=survey, board=facts(50 * MB), limit_bytes=5_010 * MB) == []
    (problem,) = found(MODEL, survey=survey, board=facts(40 * MB))
    assert "(10.0 MB + 33.6 MB reserve)" in problem.message


def test_a_limit_of_the_lab_counts_what_is_there() -> None:
    survey = Survey("/data", used_bytes=600 * MB)
    (problem,) = found(item("tool", 500 * MB), survey=survey, limit_bytes=1_000 * MB)
    assert isinstance(problem, ConfigError)
    assert "limits.storage is 1.00 GB: 600 MB are used and 500 MB" in problem.message


def test_fat_holds_no_5_gb() -> None:
    (problem,) = found(MODEL, item("tool", MB), board=facts(kind="vfat"))
    assert problem.message == "model has 5.00 GB, a file on vfat at most 4.29 GB"


def test_a_limit_of_the_shell_is_known() -> None:
    (problem,) = found(MODEL, survey=Survey("/data", largest_file_bytes=MB))
    assert "(ulimit -f)" in problem.message


def test_everything_is_told_at_once() -> None:
    survey = Survey("/data", why_not_executed="Permission denied", used_bytes=MB)
    all_of_them = found(MODEL, survey=survey, board=facts(MB, "vfat"), limit_bytes=MB)
    assert [type(problem) for problem in all_of_them] == [
        BoardPermission,
        ConfigError,
        BoardNoSpace,
        ConfigError,
    ]
    with pytest.raises(BoardPermission, match=r"rk1 cannot take .* 4 reasons") as caught:
        refuse(all_of_them, "rk1")
    details = caught.value.details or ""
    assert [line[:2] for line in details.splitlines() if line[0].isdigit()] == [
        "1.", "2.", "3.", "4.",
    ]  # fmt: skip
    assert "noexec" in details
    assert "SELinux" in details


def test_one_problem_is_itself_and_none_is_nothing() -> None:
    refuse([], "rk1")
    with pytest.raises(BoardPermission, match="cannot write to /data: Read-only file system"):
        refuse(found(MODEL, survey=Survey("/data", why_not_written="Read-only file system")), "rk1")
