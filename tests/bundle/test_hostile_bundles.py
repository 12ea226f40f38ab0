"""Opening a bundle that somebody made to do harm: refused with a reason, and nothing is written."""

import hashlib
import json
import os
import stat
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labctl.bundle.form import BundleManifest, Entry, NotABundle, name_problem
from labctl.bundle.make import write_zip
from labctl.bundle.reader import open_bundle
from labctl.errors import ConfigError

LOCAL = struct.Struct("<4s5H3L2H")
CENTRAL = struct.Struct("<4s6H3L5H2L")
END = struct.Struct("<4s4H2LH")
FILES = {"run/run.json": b'{"a": 1}\n' * 40, "run/trials/001-a/stdout": b"once upon"}


def manifest_of(files: dict[str, bytes], **changes: object) -> bytes:
    entries = {
        name: {"sha256": hashlib.sha256(raw).hexdigest(), "size_bytes": len(raw)}
        for name, raw in files.items()
    }
    document = {
        "labctl_bundle": 1, "run": "r", "recipe": "q", "target": "t", "labctl_version": "0",
        "with_identity": False, "entries": entries,
    }  # fmt: skip
    return json.dumps({**document, **changes}).encode()


@dataclass
class Part:
    """An entry of a zip, each field as the attacker likes."""

    name: bytes
    content: bytes
    method: int = 8
    mode: int = stat.S_IFREG | 0o644
    flags: int = 0
    extra: bytes = b""
    comment: bytes = b""
    central: dict[str, int] = field(default_factory=dict)
    offset: int | None = None

    @property
    def packed(self) -> bytes:
        if self.method != 8:
            return self.content
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(self.content) + packer.flush()

    def header(self, name: bytes | None = None) -> bytes:
        sizes = (zlib.crc32(self.content), len(self.packed), len(self.content))
        written = self.name if name is None else name
        head = LOCAL.pack(
            b"PK\3\4", 20, self.flags, self.method, 0, 33, *sizes, len(written), len(self.extra)
        )
        return head + written + self.extra

    def record(self, offset: int) -> bytes:
        values = {
            "crc": zlib.crc32(self.content), "packed": len(self.packed), "size": len(self.content)
        } | self.central  # fmt: skip
        return (
            CENTRAL.pack(
                b"PK\1\2", (3 << 8) | 20, 20, self.flags, self.method, 0, 33,
                values["crc"], values["packed"], values["size"],
                len(self.name), len(self.extra), len(self.comment), 0, 0, self.mode << 16,
                offset if self.offset is None else self.offset,
            )
            + self.name + self.extra + self.comment
        )  # fmt: skip


def zipped(
    parts: list[Part], *, before: bytes = b"", tail: bytes = b"", count: int | None = None
) -> bytes:
    body, directory = before, b""
    for part in parts:
        directory += part.record(len(body))
        body += part.header() + part.packed
    number = len(parts) if count is None else count
    end = END.pack(b"PK\5\6", 0, 0, number, number, len(directory), len(body), 0)
    return body + directory + end + tail


def parts(files: dict[str, bytes] | None = None, **changes: object) -> list[Part]:
    files = FILES if files is None else files
    made = [Part(name.encode(), raw) for name, raw in files.items()]
    return [*made, Part(b"bundle.json", manifest_of(files, **changes))]


def with_first(**changes: object) -> list[Part]:
    first, *rest = parts()
    return [replace(first, **changes), *rest]  # type: ignore[arg-type]


def refused(tmp_path: Path, raw: bytes, why: str) -> None:
    path = tmp_path / "x.labctl.zip"
    path.write_bytes(raw)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(NotABundle, match=why), open_bundle(path) as bundle:
        bundle.verify()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_plain_bundle_opens_and_has_its_files(tmp_path: Path) -> None:
    path = tmp_path / "x.labctl.zip"
    path.write_bytes(zipped(parts()))
    with open_bundle(path) as bundle:
        bundle.verify()
        assert {name: bundle.read(name) for name in bundle.names} == FILES
        bundle.extract(bundle.names, tmp_path / "out", below="run/")
    out = tmp_path / "out"
    assert (out / "trials/001-a/stdout").read_bytes() == b"once upon"
    assert [path.stat().st_mode & 0o111 for path in out.rglob("*") if path.is_file()] == [0, 0]


NAMES = [
    b"/etc/passwd", b"../x", b"a/../../x", b"a//b", b"./a", b"a/.", b"a\\..\\b", b"C:/x", b"a\0b",
    b"a\nb", b"a\x1b[2Jb", b"\xff", "ü".encode(), b"", b"a/", b"-rf", b".bashrc", b"con",
    b"a/NUL.txt", b"a.", b"a b", b"x" * 201, b"/".join([b"d"] * 7), b"~root",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_that_lead_elsewhere_or_hide_are_refused(tmp_path: Path, name: bytes) -> None:
    refused(tmp_path, zipped([Part(name, b"x"), *parts()]), "an entry has (the|a) name")


CRAFTED: dict[str, tuple[Callable[[], bytes], str]] = {
    "symlink": (lambda: zipped(with_first(mode=stat.S_IFLNK | 0o777)), "not a plain file"),
    "device": (lambda: zipped(with_first(mode=stat.S_IFCHR | 0o644)), "not a plain file"),
    "fifo": (lambda: zipped(with_first(mode=stat.S_IFIFO | 0o644)), "not a plain file"),
    "folder": (lambda: zipped(with_first(mode=stat.S_IFDIR | 0o755)), "not a plain file"),
    "twice": (lambda: zipped([*parts(), parts()[0]]), "is there twice"),
    "twice but for case": (
        lambda: zipped(parts({**FILES, "run/RUN.json": b"x"})),
        "twice, with different case",
    ),
    "folders but for case": (
        lambda: zipped(parts({**FILES, "Run/x": b"x"})), "twice, with different case"
    ),
    "file and folder": (lambda: zipped(parts({**FILES, "run": b"x"})), "a file and a folder"),
    "encrypted": (lambda: zipped(with_first(flags=1)), "labctl never uses"),
    "sizes behind the data": (lambda: zipped(with_first(flags=8)), "labctl never uses"),
    "extra field": (lambda: zipped(with_first(extra=b"\1\0\4\0abcd")), "labctl never uses"),
    "entry comment": (lambda: zipped(with_first(comment=b"x")), "labctl never uses"),
    "other method": (lambda: zipped(with_first(method=12)), "labctl never uses"),
    "in front": (lambda: zipped(parts(), before=b"#!/bin/sh\n"), "does not lie where"),
    "behind": (lambda: zipped(parts(), tail=b"x"), "does not end like"),
    "comment": (
        lambda: zipped(parts())[:-2] + b"\4\0abcd", "does not end like"
    ),
    "count too high": (lambda: zipped(parts(), count=3 + 60000), "entries; the most is"),
    "count too low": (lambda: zipped(parts(), count=2), "between its entries and the end"),
    "overlap": (
        lambda: zipped([parts()[0], replace(parts()[1], offset=0), parts()[2]]),
        "does not lie where",
    ),
    "size in the directory too small": (
        lambda: zipped(with_first(central={"size": 3})), "its header differs"
    ),
    "size in the directory too large": (
        lambda: zipped(with_first(central={"size": 400})), "its header differs"
    ),
    "packed size beyond the file": (
        lambda: zipped(with_first(central={"packed": 0x7FFFFFFF})), "its header differs"
    ),
    "ratio": (
        lambda: zipped(parts({"a": bytes(1 << 20)})), "would unpack to 1048576 bytes"
    ),
    "absurd size": (
        lambda: zipped(with_first(central={"size": 0xFFFFFFFF})), "has 4.29 GB"
    ),
    "crc": (
        lambda: zipped([parts()[0], replace(parts()[1], method=0), parts()[2]]).replace(
            b"once upon", b"once upom"
        ),
        "its CRC differs",
    ),
    "no manifest": (lambda: zipped(parts()[:-1]), "it has no bundle.json"),
    "file not in the manifest": (
        lambda: zipped([Part(b"extra", b"x"), *parts()]), "extra is not in its manifest"
    ),
    "manifest without file": (
        lambda: zipped([parts()[0], parts()[2]]), "stdout is not in its file"
    ),
    "another hash": (
        lambda: zipped([replace(parts()[0], content=b'{"a": 2}\n' * 40), *parts()[1:]]),
        "its SHA-256 differs",
    ),
    "another size": (
        lambda: zipped([replace(parts()[0], content=b"{}"), *parts()[1:]]), "has 2 bytes, not 360"
    ),
    "manifest no JSON": (lambda: zipped([Part(b"bundle.json", b"{")]), "bundle.json is wrong"),
    "manifest nested": (
        lambda: zipped([Part(b"bundle.json", b'{"labctl_bundle":' + b"[" * 9000, method=0)]),
        "bundle.json is wrong",
    ),
    "empty": (lambda: b"", "it has 0 B"),
    "no zip": (lambda: b"x" * 4000, "does not end like"),
}  # fmt: skip


@pytest.mark.parametrize("what", CRAFTED)
def test_crafted_files_are_refused(tmp_path: Path, what: str) -> None:
    make, why = CRAFTED[what]
    refused(tmp_path, make(), why)


def test_an_entry_that_goes_on_behind_its_promise_stops_there(tmp_path: Path) -> None:
    """Header and directory agree on a size that the stream exceeds: it is cut at the promise."""
    long = Part(b"a", b"y" * 5000, method=8)
    packed = long.packed

    class Lying(Part):
        @property
        def packed(self) -> bytes:
            return packed

    short = Lying(b"a", b"y" * 50)
    files = {"a": b"y" * 50}
    raw = zipped([short, Part(b"bundle.json", manifest_of(files))])
    refused(tmp_path, raw, "has more than its 50 bytes")


def test_no_fifo_keeps_the_reader_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.labctl.zip")
    path = tmp_path / "x.labctl.zip"
    with pytest.raises(NotABundle, match="not a regular file"), open_bundle(path):
        pass
    with pytest.raises(ConfigError, match="cannot read"), open_bundle(tmp_path / "y"):
        pass


def test_a_newer_form_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "x.labctl.zip"
    path.write_bytes(zipped(parts(labctl_bundle=2)))
    with pytest.raises(ConfigError, match="by another labctl"), open_bundle(path):
        pass


def _manifest(entries: dict[str, Entry]) -> BundleManifest:
    return BundleManifest(
        run="r", recipe="q", target="t", labctl_version="0", with_identity=False, entries=entries
    )


def test_what_compresses_too_well_is_stored_so_that_every_bundle_opens(tmp_path: Path) -> None:
    path = tmp_path / "x.labctl.zip"
    files = {"a": bytes(1 << 20), "b": b"", "c": bytes(range(256)) * 40}
    write_zip(path, files.items(), _manifest)
    with open_bundle(path) as bundle:
        assert {name: bundle.read(name) for name in bundle.names} == files
    first = path.read_bytes()
    write_zip(path, files.items(), _manifest)
    assert path.read_bytes() == first


def test_a_bundle_that_no_reader_would_take_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="larger than a reader accepts"):
        write_zip(tmp_path / "x", [("a", b"x" * 1001)], _manifest, most_bytes=1000)
    assert list(tmp_path.iterdir()) == []


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_flipped_byte_is_refused_or_changes_nothing(data: st.DataObject, tmp_path: Path) -> None:
    raw = bytearray(zipped(parts()))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "x.labctl.zip"
    path.write_bytes(raw)
    try:
        with open_bundle(path) as bundle:
            assert {name: bundle.read(name) for name in bundle.names} == FILES
    except ConfigError:
        pass


@given(st.binary(max_size=300), st.binary(max_size=100))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_noise_is_refused(tmp_path: Path, head: bytes, directory: bytes) -> None:
    end = END.pack(b"PK\5\6", 0, 0, 1, 1, len(directory), len(head), 0)
    refused(tmp_path, head + directory + end, "is not a valid bundle")


@given(st.text(max_size=30))
def test_allowed_names_stay_inside_every_folder(name: str) -> None:
    if name_problem(name) is None:
        assert os.path.normpath(f"/base/{name}") == f"/base/{name}"
        assert name.isascii()
        assert name.isprintable()
