"""The shared store: a folder, S3, plain http."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from labctl.errors import ConfigError, HostError, IntegrityError
from labctl.farm.store import SharedStore
from tests.support.file_stores import http_files, s3_server
from tests.support.small_disk import fill, small_disk

_PIECE_BYTES = 6 << 20  # S3 takes parts of 5 MiB at least


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as url:
        yield url


@pytest.fixture(params=["folder", "s3", "http"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedStore]:
    if request.param == "folder":
        yield SharedStore(str(tmp_path / "store"), piece_bytes=_PIECE_BYTES)
    elif request.param == "s3":
        yield SharedStore(request.getfixturevalue("s3"), piece_bytes=_PIECE_BYTES)
    else:
        with http_files() as server:
            yield SharedStore(server.url, piece_bytes=_PIECE_BYTES)


def _file(folder: Path, content: bytes) -> tuple[Path, str]:
    path = folder / "sent"
    path.write_bytes(content)
    return path, hashlib.sha256(content).hexdigest()


def test_a_file_comes_back_whole(store: SharedStore, tmp_path: Path) -> None:
    path, digest = _file(tmp_path, os.urandom(100) + bytes(13 << 20))
    assert store.size_of(digest) is None
    assert store.put(path) == digest
    assert store.put(path, digest) == digest  # again: nothing to do
    assert store.size_of(digest) == path.stat().st_size
    store.get(digest, tmp_path / "cache" / "got")
    assert (tmp_path / "cache" / "got").read_bytes() == path.read_bytes()
    store.remove(digest)
    store.remove(digest)
    with pytest.raises(ConfigError, match="has no file"):
        store.get(digest, tmp_path / "cache" / "other")
    assert [one.name for one in (tmp_path / "cache").iterdir()] == ["got"]


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_what_is_there_is_listed(kind: str, s3: str, tmp_path: Path) -> None:
    store = SharedStore(str(tmp_path / "store") if kind == "folder" else f"{s3}/listed")
    path, digest = _file(tmp_path, b"listed")
    store.put(path)
    store.write("runs/one.json", b"{}")
    assert [(one.sha256, one.size_bytes) for one in store.contents()] == [(digest, 6)]
    assert store.read("runs/one.json", most_bytes=10) == b"{}"
    assert store.read("runs/two.json", most_bytes=10) is None


def test_an_empty_file_is_a_file(store: SharedStore, tmp_path: Path) -> None:
    path, digest = _file(tmp_path, b"")
    store.put(path)
    store.get(digest, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b""


def test_wrong_bytes_are_not_taken(tmp_path: Path) -> None:
    store = SharedStore(str(tmp_path / "store"))
    path, digest = _file(tmp_path, b"right")
    store.put(path)
    (tmp_path / "store" / "objects" / digest[:2] / digest).write_bytes(b"wrong")
    with pytest.raises(IntegrityError, match="returned wrong bytes"):
        store.get(digest, tmp_path / "got")
    assert not (tmp_path / "got").exists()


def test_a_file_that_went_bad_in_the_store_is_put_there_anew(tmp_path: Path) -> None:
    store = SharedStore(str(tmp_path / "store"))
    path, digest = _file(tmp_path, b"right")
    store.put(path)
    (tmp_path / "store" / "objects" / digest[:2] / digest).write_bytes(b"wrong")
    assert store.put(path) == digest
    store.get(digest, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"right"


def test_a_store_that_garbles_what_it_is_sent(tmp_path: Path) -> None:
    path, digest = _file(tmp_path, b"right")
    with http_files() as server:

        class Garbled(dict[str, bytes]):
            def __setitem__(self, key: str, value: bytes) -> None:
                super().__setitem__(key, b"x" * len(value))

        server.files = Garbled()
        store = SharedStore(server.url)
        with pytest.raises(IntegrityError, match="returned wrong bytes"):
            store.put(path)
        assert store.size_of(digest) is None


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    path, _ = _file(tmp_path, b"now")
    with pytest.raises(IntegrityError, match="has changed"):
        SharedStore(str(tmp_path / "store")).put(path, hashlib.sha256(b"then").hexdigest())


def test_a_server_in_trouble_is_asked_again(tmp_path: Path) -> None:
    path, digest = _file(tmp_path, b"patience")
    with http_files() as server:
        store = SharedStore(server.url)
        store.put(path)
        server.failures = 2
        store.get(digest, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"patience"


def test_the_token_is_of_the_environment_and_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, digest = _file(tmp_path, b"kept")
    with http_files(token="much-too-secret") as server:
        with pytest.raises(HostError) as refused:
            SharedStore(server.url).put(path)
        monkeypatch.setenv("LABCTL_STORE_TOKEN", "much-too-secret")
        SharedStore(server.url).put(path)
        monkeypatch.setenv("LABCTL_STORE_TOKEN", "much-too-wrong")
        with pytest.raises(HostError) as wrong:
            SharedStore(server.url).get(digest, tmp_path / "got")
    for error in (refused.value, wrong.value):
        assert "much-too" not in f"{error} {error.message} {error.hint}"
        assert "\n" not in error.message


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    path, digest = _file(tmp_path, bytes(300_000))
    with small_disk(tmp_path / "disk", 64) as disk:
        with pytest.raises(HostError, match=r"cannot use the shared store .*[Nn]o space left"):
            SharedStore(str(disk / "store")).put(path)
        full = SharedStore(str(tmp_path / "store"))
        full.put(path)
        fill(disk)
        with pytest.raises(HostError):
            full.get(digest, disk / "got")
        assert not (disk / "got").exists()


def test_no_secret_in_devices_yaml() -> None:
    from pydantic import TypeAdapter, ValidationError

    from labctl.config.types import StoreUrl

    adapter: TypeAdapter[str] = TypeAdapter(StoreUrl)
    for good in ("s3://bucket/prefix", "https://host:8443/path", "/srv/labctl", "../store"):
        assert adapter.validate_python(good) == good
    for bad in ("s3://key:secret@bucket", "https://u:p@host/", "ftp://host/x", ""):
        with pytest.raises(ValidationError):
            adapter.validate_python(bad)
