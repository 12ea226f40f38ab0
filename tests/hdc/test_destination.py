from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labctl.errors import ProtocolError
from labctl.hdc.remote_paths import Placing, make_parents


@pytest.mark.parametrize(
    ("destination", "lands"),
    [
        ("new", "new"),
        ("folder", "folder/source"),
        ("folder/", "folder/source"),
        ("file", "file"),
        ("file/", "file/source"),  # the system refuses to open that
        ("missing/", "missing/source"),  # and that
        ("", "source"),
    ],
)
def test_where_a_single_file_goes(tmp_path: Path, destination: str, lands: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    assert Placing(f"{tmp_path}/{destination}").place("source") == f"{tmp_path}/{lands}"


def test_a_directory_goes_below_one_that_exists(tmp_path: Path) -> None:
    placing = Placing(f"{tmp_path}/")
    assert placing.place("top/sub/a") == f"{tmp_path}/top/sub/a"
    assert placing.place("top/b") == f"{tmp_path}/top/b"
    assert placing.keeps_top
    assert placing.directory("top/sub") == f"{tmp_path}/top/sub"


def test_a_directory_takes_a_new_name_once_and_for_all_its_files(tmp_path: Path) -> None:
    placing = Placing(f"{tmp_path}/x/new")
    first = placing.place("top/sub/a")
    make_parents(first)
    Path(first).touch()
    assert first == f"{tmp_path}/x/new/sub/a"
    assert placing.place("top/b") == f"{tmp_path}/x/new/b"  # although new exists by now
    assert not placing.keeps_top
    assert (tmp_path / "x/new").stat().st_mode & 0o777 == 0o750


def test_a_directory_cannot_replace_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        Placing(f"{tmp_path}/file").place("top/a")


@pytest.mark.parametrize(
    "name", ["", "..", "../a", "top/../../a", "/etc/passwd", "top//a", "top/", "a\0b"]
)
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProtocolError):
        Placing(str(tmp_path)).place(name)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(st.text("ab./\0", max_size=8), max_size=4), new=st.booleans())
def test_nothing_leaves_the_destination(tmp_path: Path, names: list[str], new: bool) -> None:
    destination = tmp_path / "new" if new else tmp_path
    placing = Placing(str(destination))
    for name in names:
        with suppress(ProtocolError):
            assert Path(placing.place(name)).resolve().is_relative_to(destination)


def test_parents_that_exist_stay_as_they_are(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    make_parents(f"{tmp_path}/a/b/c")
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a/b").is_dir()
    assert not (tmp_path / "a/b/c").exists()
