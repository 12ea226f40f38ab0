import hashlib
import os
import time
from pathlib import Path

import pytest
from tiny_gguf import write_tiny_gguf

from labctl.errors import ConfigError
from labctl.file_hashes import cached_sha256
from labctl.gguf.inspect import identify


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Reads:
    """Counts how often a file was really read."""

    def __init__(self) -> None:
        self.last = 0

    def __call__(self, done: int) -> None:
        self.last = done


@pytest.fixture
def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is a minute later than the files."""
    now = time.time_ns
    monkeypatch.setattr("labctl.file_hashes.time.time_ns", lambda: now() + 60_000_000_000)


@pytest.mark.usefixtures("at_rest")
def test_hash_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"one")
    assert cached_sha256(path) == hashlib.sha256(b"one").hexdigest()

    second = Reads()
    assert cached_sha256(path, second) == hashlib.sha256(b"one").hexdigest()
    assert second.last == 0

    status = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # even with an unchanged time stamp
    third = Reads()
    assert cached_sha256(path, third) == hashlib.sha256(b"two").hexdigest()
    assert third.last == 3


def test_a_file_just_written_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"one")
    cached_sha256(path)
    again = Reads()
    cached_sha256(path, again)
    assert again.last == 3


@pytest.mark.usefixtures("at_rest")
def test_a_torn_note_is_no_answer(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"one")
    cached_sha256(path)
    (note,) = (cache / "hashes").iterdir()
    for torn in (b"", b"{", b"[]", note.read_bytes()[:-40]):
        note.write_bytes(torn)
        assert cached_sha256(path) == hashlib.sha256(b"one").hexdigest()


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent"):
        cached_sha256(tmp_path / "absent")


def test_identity_of_a_model(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    identity = identify("small", path, requantized_from="Q4_1")
    assert identity.key == "small"
    assert identity.file == "tiny.gguf"
    assert identity.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert identity.bits_per_weight == 32
    assert identity.requantized_from == "Q4_1"
