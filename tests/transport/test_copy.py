"""Destinations of files, on each transport there is; the command line's own tests say the rest."""

import stat
from pathlib import Path

import pytest

from labctl.errors import ConfigError, IntegrityError
from labctl.transport.base import TransferOptions, Transport
from labctl.transport.copy import Delivered, appearing_on_board, receive, send

OPTIONS = TransferOptions(timeout=30)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("content")
    path.chmod(0o751)
    return path


def sent(transport: Transport, local: Path, remote: str, **options: bool) -> Delivered:
    return send(transport, local, remote, OPTIONS, **options)


def test_a_file_goes_into_a_directory_or_gets_a_name(
    transport: Transport, folder: str, file: Path
) -> None:
    for destination, path in ((folder, "file"), (f"{folder}/", "file"), (f"{folder}/x", "x")):
        assert sent(transport, file, destination).path == f"{folder}/{path}"
        assert Path(f"{folder}/{path}").read_text() == "content"
    assert sorted(path.name for path in Path(folder).iterdir()) == ["file", "x"]


@pytest.mark.parametrize("name", ["x" * 255, "\u4e2d" * 85], ids=["ASCII", "Chinese"])
def test_the_longest_name_is_carried_both_ways(
    transport: Transport, folder: str, tmp_path: Path, name: str
) -> None:
    """A name has 255 bytes at most, on each file system of boards and of hosts."""
    for local, make in ((tmp_path / "one" / name, "file"), (tmp_path / "two" / name, "tree")):
        local.parent.mkdir()
        if make == "tree":
            local.mkdir()
        (local / "leaf" if make == "tree" else local).write_text("content")
        remote = f"{folder}/{make}"
        Path(remote).mkdir()
        back = tmp_path / f"{make} back"
        back.mkdir()
        assert sent(transport, local, remote).path == f"{remote}/{name}"
        receive(transport, f"{remote}/{name}", back, OPTIONS)
        copied = back / name / "leaf" if make == "tree" else back / name
        assert copied.read_text() == "content"
        assert [path.name for path in (*Path(remote).iterdir(), *back.iterdir())] == [name, name]


def test_modes_are_kept_where_wanted(
    transport: Transport, folder: str, file: Path, tmp_path: Path
) -> None:
    sent(transport, file, f"{folder}/plain")
    sent(transport, file, f"{folder}/kept", keep_mode=True)
    modes = [stat.S_IMODE(Path(f"{folder}/{name}").stat().st_mode) for name in ("plain", "kept")]
    assert modes == [0o644, 0o751]
    for keep_mode, mode in ((False, 0o644), (True, 0o751)):
        receive(transport, f"{folder}/kept", tmp_path / "back", OPTIONS, keep_mode=keep_mode)
        assert stat.S_IMODE((tmp_path / "back").stat().st_mode) == mode


def test_a_directory_and_a_file_do_not_replace_each_other(
    transport: Transport, folder: str, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "tree").mkdir()
    Path(f"{folder}/file").mkdir()
    Path(f"{folder}/tree").write_text("a file")
    for local in (file, tmp_path / "tree"):
        with pytest.raises(ConfigError, match="one is a directory"):
            sent(transport, local, folder)
    assert Path(f"{folder}/tree").read_text() == "a file"


def test_a_link_on_the_board_is_followed_when_read_and_replaced_when_written(
    transport: Transport, folder: str, file: Path, tmp_path: Path
) -> None:
    Path(f"{folder}/real").write_text("real")
    Path(f"{folder}/link").symlink_to("real")
    receive(transport, f"{folder}/link", tmp_path / "back", OPTIONS)
    assert (tmp_path / "back").read_text() == "real"
    sent(transport, file, f"{folder}/link")
    assert Path(f"{folder}/real").read_text() == "real"
    assert Path(f"{folder}/link").read_text() == "content"


def test_a_directory_is_received_into_one_that_exists(
    transport: Transport, folder: str, tmp_path: Path
) -> None:
    Path(f"{folder}/tree").mkdir()
    Path(f"{folder}/tree/leaf").write_text("leaf")
    (tmp_path / "there").mkdir()
    done = receive(transport, f"{folder}/tree", tmp_path / "there", OPTIONS)
    assert done.path == str(tmp_path / "there" / "tree")
    assert (tmp_path / "there" / "tree" / "leaf").read_text() == "leaf"
    with pytest.raises(ConfigError, match="it exists"):
        receive(transport, f"{folder}/tree", tmp_path / "there", OPTIONS)


def test_what_is_not_proven_does_not_appear(transport: Transport, folder: str) -> None:
    Path(f"{folder}/x").write_text("as it was")

    def fill_badly() -> None:
        with appearing_on_board(transport, f"{folder}/x") as temporary:
            Path(temporary).write_text("half")
            raise IntegrityError("the bytes differ")

    with pytest.raises(IntegrityError):
        fill_badly()
    assert [path.name for path in Path(folder).iterdir()] == ["x"]
    assert Path(f"{folder}/x").read_text() == "as it was"


def test_a_link_keeps_its_own_name(
    transport: Transport, folder: str, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "latest").symlink_to(file)
    (tmp_path / "tree").mkdir()
    (tmp_path / "trees").symlink_to("tree")
    assert sent(transport, tmp_path / "latest", folder).path == f"{folder}/latest"
    assert sent(transport, tmp_path / "trees", folder).path == f"{folder}/trees"
    assert sent(transport, tmp_path / "tree" / ".", folder).path == f"{folder}/tree"
