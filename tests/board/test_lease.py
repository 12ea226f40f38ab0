import json
from pathlib import Path

import pytest
from agent_fences import native_leases

from labctl.board.lease import LeaseStatus
from labctl.errors import BoardError, BoardPermission, LeaseLost
from labctl.transport.base import CommandResult, Transport, remote_words


def test_a_board_without_a_lease_is_taken(transport: Transport, workdir: str) -> None:
    lease = native_leases(transport, workdir)
    assert lease.read() is None
    taken = lease.acquire("my lab's")
    assert (taken.lab, taken.epoch) == ("my lab's", 1)
    lease.check(taken)
    assert lease.read() == taken
    assert sorted(path.name for path in Path(workdir).iterdir()) == ["jobs", "lease", "lease.alive"]
    assert json.loads(Path(lease.path).read_text())["epoch"] == 1


def test_each_taking_raises_the_epoch_and_ends_the_one_before(
    transport: Transport, workdir: str
) -> None:
    lease = native_leases(transport, workdir)
    first = lease.acquire("one")
    second = lease.acquire("two")
    assert second.epoch == first.epoch + 1
    with pytest.raises(LeaseLost, match="two"):
        lease.check(first)
    lease.check(second)


def test_the_epoch_is_above_what_is_known_elsewhere(transport: Transport, workdir: str) -> None:
    lease = native_leases(transport, workdir)
    assert lease.acquire("lab", minimum_epoch=41).epoch == 42
    assert lease.acquire("lab", minimum_epoch=7).epoch == 43


def test_two_that_got_the_same_epoch_are_told_apart(transport: Transport, workdir: str) -> None:
    lease = native_leases(transport, workdir)
    mine = lease.acquire("lab")
    fields = json.loads(Path(lease.path).read_text())
    Path(lease.path).write_text(json.dumps({**fields, "token": "other"}))
    with pytest.raises(LeaseLost):
        lease.check(mine)


def test_a_lease_that_is_gone_is_lost(transport: Transport, workdir: str) -> None:
    lease = native_leases(transport, workdir)
    mine = lease.acquire("lab")
    Path(lease.path).unlink()
    with pytest.raises(LeaseLost, match="gone"):
        lease.check(mine)


def test_a_holder_gives_signs_of_life_until_it_releases_the_board(
    transport: Transport, workdir: str
) -> None:
    lease = native_leases(transport, workdir)
    assert lease.status() is None
    mine = lease.acquire("lab")
    status = lease.status()
    assert status is not None
    assert status.lease == mine
    assert status.alive
    alive = Path(f"{lease.path}.alive")
    seconds, _, boot = alive.read_text().strip().partition(" ")
    alive.write_text(f"{int(seconds) + 3} {boot}\n")  # after the board told the time
    assert (heard := lease.status()) is not None
    assert heard.silent_seconds == 0
    alive.unlink()
    lease.check(mine)
    assert alive.is_file()
    lease.release(mine)
    status = lease.status()
    assert status is not None
    assert (status.lease, status.silent_seconds) == (mine, None)
    lease.check(mine)  # it is his still: nobody else has come


def test_only_the_holder_gives_signs_and_takes_them_away(
    transport: Transport, workdir: str
) -> None:
    lease = native_leases(transport, workdir)
    first = lease.acquire("one")
    second = lease.acquire("two")
    kept = Path(f"{workdir}/kept")
    kept.touch()
    with pytest.raises(LeaseLost):
        lease.release(first, also=remote_words("rm", str(kept)))
    status = lease.status()
    assert status is not None
    assert status.alive
    assert kept.exists()
    lease.release(second, also=remote_words("rm", str(kept)))
    assert not kept.exists()
    with pytest.raises(LeaseLost):
        lease.check(first)
    status = lease.status()
    assert status is not None
    assert not status.alive


@pytest.mark.parametrize(
    ("text", "is_alive"),
    [
        ("{now} {boot}", True),
        ("{long_ago} {boot}", False),
        ("{now} another-boot", False),
        ("{later} {boot}", False),
        ("", False),
        ("x y", False),
        ("²3 {boot}", False),
        ("{now} {boot}\nof a longer boot", True),
        ("{now} {boot}\r", True),
    ],
)
def test_what_was_heard_long_ago_or_in_another_boot_is_no_life(
    transport: Transport, workdir: str, text: str, is_alive: bool
) -> None:
    lease = native_leases(transport, workdir, alive_seconds=5.0)  # this computer may be just on
    lease.acquire("lab")
    alive = Path(f"{lease.path}.alive")
    seconds, _, boot = alive.read_text().strip().partition(" ")
    now = int(seconds)
    alive.write_text(text.format(now=now, later=now + 9999, long_ago=now - 10, boot=boot) + "\n")
    status = lease.status()
    assert status is not None
    assert status.alive is is_alive


def test_a_sign_of_life_is_written_over_a_longer_one(transport: Transport, workdir: str) -> None:
    lease = native_leases(transport, workdir)
    mine = lease.acquire("lab")
    Path(f"{lease.path}.alive").write_text("9" * 30 + " another-boot" * 9 + "\n")
    lease.check(mine)
    status = lease.status()
    assert status is not None
    assert status.alive


def test_who_takes_a_board_while_another_looks_at_it_keeps_it(
    transport: Transport, workdir: str
) -> None:
    lease = native_leases(transport, workdir)
    lease.acquire("dead")

    def hesitate(before: LeaseStatus) -> None:
        assert before.lease.lab == "dead"
        lease.acquire("faster")

    with pytest.raises(LeaseLost, match="faster"):
        lease.acquire("slower", on_conflict=hesitate)
    now = lease.read()
    assert now is not None
    assert now.lab == "faster"
    lease.check(now)
    assert sorted(path.name for path in Path(workdir).iterdir()) == ["jobs", "lease", "lease.alive"]


def test_a_lease_that_was_seen_is_read_again_only_if_it_is_another_now(
    transport: Transport, workdir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = native_leases(transport, workdir)
    lease.acquire("dead")
    seen, commands, run = lease.status(), [], transport.run

    def counted(command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        commands.append(command)
        return run(command, timeout=timeout, separate_stderr=separate_stderr)

    with monkeypatch.context() as patch:
        patch.setattr(transport, "run", counted)
        mine = lease.acquire("faster", seen=seen)
    assert (mine.epoch, len(commands)) == (2, 1)

    def refuse(before: LeaseStatus) -> None:
        if before.lease == mine:
            raise BoardError("in use")

    with pytest.raises(BoardError, match="in use"):
        lease.acquire("slower", seen=seen, on_conflict=refuse)
    lease.check(mine)
    assert lease.acquire("next", seen=seen).epoch == 3


def test_a_script_runs_in_the_command_that_checks_the_lease(
    transport: Transport, workdir: str
) -> None:
    lease = native_leases(transport, workdir)
    first = lease.acquire("one")
    alive = Path(f"{lease.path}.alive")
    alive.unlink()
    made = Path(workdir) / "made"
    script = f"touch {remote_words(str(made))}; printf '\\n@labctl checked\\n\\377\\n'; exit 3"
    done = lease.check_and_run(first, script, timeout=20)
    assert (done.exit_status, done.output) == (3, b"\n@labctl checked\n\xff\n")
    assert alive.is_file()
    made.unlink()
    refused = 'echo \'{"error": "stale-epoch", "message": "of its own"}\'; exit 75'
    assert lease.check_and_run(first, refused, timeout=20).exit_status == 75
    lease.acquire("two")
    with pytest.raises(LeaseLost, match="two"):
        lease.check_and_run(first, script, timeout=20)
    assert not made.exists()
    Path(lease.path).unlink()
    with pytest.raises(LeaseLost, match="gone"):
        lease.check_and_run(first, ":", timeout=20)


def test_a_script_runs_in_the_command_that_takes_the_lease(
    transport: Transport, workdir: str
) -> None:
    lease = native_leases(transport, workdir)
    also = f"section now; cat {remote_words(lease.path)}\nsection next; exit 0"
    mine = lease.acquire("lab", also=also)
    assert json.loads(lease.answers["now"])["token"] == mine.token
    assert lease.answers["next"] == ""
    lease.answers = {}

    def refuse(_before: LeaseStatus) -> None:
        raise BoardError("in use")

    with pytest.raises(BoardError, match="in use"):
        lease.acquire("other", also=also, on_conflict=refuse)
    assert lease.answers == {}


def test_what_a_lease_names_is_short_and_safe_for_terminals(
    transport: Transport, workdir: str
) -> None:
    lease = native_leases(transport, workdir)
    told = {"lab": "\x1b[2J", "epoch": 3, "host": "h" * 9000, "utc": "now\nthen", "token": "t"}
    Path(lease.path).parent.mkdir(exist_ok=True)
    Path(lease.path).write_text(json.dumps(told))
    found = lease.read() or pytest.fail("there is no lease")
    assert (found.lab, found.utc, len(found.host)) == ("\\x1b[2J", "now\\x0athen", 500)


def test_who_respects_the_holder_takes_nothing(transport: Transport, workdir: str) -> None:
    lease = native_leases(transport, workdir)
    mine = lease.acquire("lab")

    def refuse(before: LeaseStatus) -> None:
        assert before.lease == mine
        raise BoardError("in use")

    with pytest.raises(BoardError, match="in use"):
        lease.acquire("other", on_conflict=refuse)
    lease.check(mine)


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "[]",
        '{"epoch": 1}',
        '{"lab":1,"epoch":"x"}',
        '{"lab":"a","host":"b","utc":"c","epoch":Infinity}',
        '{"lab":"a","host":"b","utc":"c","epoch":-1}',
        '{"lab":"a","host":"b","utc":"c","epoch":9223372036854775807}',
    ],
)
def test_what_is_no_lease_is_not_believed(transport: Transport, workdir: str, text: str) -> None:
    lease = native_leases(transport, workdir)
    Path(lease.path).write_text(text + "\n")
    with pytest.raises(BoardError, match="not one that labctl wrote"):
        lease.acquire("lab")


def test_a_workdir_that_cannot_be_made_is_an_error(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BoardError, match="cannot"):
        native_leases(transport, f"{tmp_path}/file/below").acquire("lab")
    with pytest.raises((BoardPermission, BoardError)):
        native_leases(transport, "/proc/labctl").acquire("lab")
