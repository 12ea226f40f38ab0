"""Open a bundle from an unknown source: the only reader of bundles, which trusts nothing.

The zip format (PKWARE's APPNOTE 6.3.10) allows files that two programs read differently. Only the
form written by :mod:`labctl.bundle.make` is accepted, which is unambiguous: plain entries, one
directly after the other from the first byte on, then the directory that repeats their headers, then
its end record in the last 22 bytes. Entries cannot overlap, hide between other entries or have the
same name; sizes are known and bounded before anything is decompressed. Python's zipfile accepts
more, depending on its version, so it is not used here.
"""

import hashlib
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from labctl.bundle import form
from labctl.bundle.form import BundleManifest, NotABundle, name_problem
from labctl.errors import ConfigError
from labctl.files import host_writes
from labctl.units import size as size_text

if TYPE_CHECKING:
    from labctl.bundle.signature import Signer

_END = struct.Struct("<4s4H2LH")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_STORED, _DEFLATED = 0, 8
_PIECE_BYTES = 1 << 16
_DOS_FOLDER = 0x10


@dataclass(frozen=True)
class _Place:
    """Position of an entry's bytes in the file, and their declared form."""

    offset: int
    compressed: int
    size: int
    crc: int
    method: int


@dataclass(frozen=True)
class Bundle:
    """An open bundle with a valid directory and manifest.

    Its entries are checked when they are read; :meth:`verify` checks all.
    """

    path: Path
    manifest: BundleManifest
    manifest_bytes: bytes
    #: The signature of the manifest, not yet verified.
    signature: bytes | None
    #: Hash of the whole file, in hex.
    sha256: str
    _descriptor: int
    _places: Mapping[str, _Place]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its entries, except the manifest and its signature."""
        return tuple(sorted(self.manifest.entries))

    def has(self, name: str) -> bool:
        """Return True if the bundle has an entry of this name."""
        return name in self.manifest.entries

    def read(self, name: str, *, most: int = form.MOST_MANIFEST_BYTES) -> bytes:
        """Return an entry of at most ``most`` bytes. Raises NotABundle if it is not as declared."""
        if not self.has(name):
            raise self.refusal(f"it has no {name}")
        if self._places[name].size > most:
            raise self.refusal(f"{name} has {size_text(self._places[name].size)}")
        return b"".join(self._checked(name))

    def verify(self) -> None:
        """Read all entries. Raises NotABundle at the first one that is not as declared."""
        for name in self.names:
            for _ in self._checked(name):
                pass

    def extract(self, names: Iterable[str], folder: Path, *, below: str = "") -> None:
        """Write entries into a folder of the caller that nobody else writes to.

        ``below``: prefix to remove from their names. Never replaces a file; no file can be
        executed. Raises NotABundle, HostError.
        """
        for name in names:
            path = folder / name.removeprefix(below)
            with host_writes(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as file:
                    for piece in self._checked(name):
                        file.write(piece)

    def _checked(self, name: str) -> Iterator[bytes]:
        promised, digest = self.manifest.entries[name], hashlib.sha256()
        for piece in _pieces(self._descriptor, self.path, name, self._places[name]):
            digest.update(piece)
            yield piece
        if digest.hexdigest() != promised.sha256:
            raise self.refusal(f"{name} is not what the manifest says: its SHA-256 differs")

    def document(self, signer: "Signer | None") -> dict[str, object]:
        """Return file, hash, signer and the manifest as JSON."""
        return {
            "file": str(self.path),
            "sha256": self.sha256,
            "signed": None if signer is None else asdict(signer),
            **self.manifest.model_dump(mode="json"),
        }

    def refusal(self, why: str) -> NotABundle:
        """Return the error for an invalid bundle."""
        return _refused(self.path, why)


@contextmanager
def open_bundle(path: Path) -> Iterator[Bundle]:
    """Open a bundle and read its manifest; write nothing, start nothing, trust nothing.

    Raises NotABundle, and ConfigError if the file cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _refused(path, "it is not a regular file")
        yield _opened(path, descriptor)
    finally:
        os.close(descriptor)


def _opened(path: Path, descriptor: int) -> Bundle:
    places = _places(path, descriptor)
    if form.MANIFEST not in places:
        raise _refused(path, f"it has no {form.MANIFEST}")
    raw = _small(path, descriptor, form.MANIFEST, places, form.MOST_MANIFEST_BYTES)
    manifest = _manifest(path, raw)
    signature = None
    if form.SIGNATURE in places:
        most = form.MOST_SIGNATURE_BYTES
        signature = _small(path, descriptor, form.SIGNATURE, places, most)
    listed, there = set(manifest.entries), set(places) - {form.MANIFEST, form.SIGNATURE}
    if listed != there:
        odd = sorted(listed ^ there)[0]
        where = "file" if odd in listed else "manifest"
        raise _refused(path, f"{odd} is not in its {where}")
    for name, entry in manifest.entries.items():
        if entry.size_bytes != places[name].size:
            raise _refused(path, f"{name} has {places[name].size} bytes, not {entry.size_bytes}")
    return Bundle(path, manifest, raw, signature, _sha256(descriptor), descriptor, places)


def _places(path: Path, descriptor: int) -> dict[str, _Place]:
    """Check all bounds; return the position of every entry by its name."""
    whole = os.fstat(descriptor).st_size
    if not _END.size <= whole <= form.MOST_FILE_BYTES:
        raise _refused(path, f"it has {size_text(whole)}")
    end = whole - _END.size
    mark, disk, first_disk, here, count, length, start, comment = _END.unpack(
        _exactly(path, descriptor, end, _END.size)
    )
    if mark != b"PK\x05\x06":
        raise _refused(path, "it does not end like a zip written by labctl")
    if disk or first_disk or comment or here != count or start + length != end:
        raise _refused(path, "the end of its directory is wrong")
    if count > form.MOST_ENTRIES:
        raise _refused(path, f"it has {count} entries; the most is {form.MOST_ENTRIES}")
    if length > count * (_CENTRAL.size + form.LONGEST_NAME):
        raise _refused(path, "its directory is too long")
    directory = _exactly(path, descriptor, start, length)
    places: dict[str, _Place] = {}
    at = reached = total = 0
    for _ in range(count):
        name, place, at = _entry(path, directory, at, reached)
        _check_header(path, descriptor, name, place, directory[at - len(name) - _CENTRAL.size :])
        reached = place.offset + place.compressed
        total += place.size
        if name in places:
            raise _refused(path, f"{name} is there twice")
        places[name] = place
    if at != length or reached != start:
        raise _refused(path, "there are bytes between its entries and the end")
    if total > form.MOST_BYTES:
        raise _refused(path, f"it has {size_text(total)} unpacked")
    _check_names(path, places)
    return places


def _entry(path: Path, directory: bytes, at: int, reached: int) -> tuple[str, _Place, int]:
    """Read one record of the directory: name and position of its entry, and its own end."""
    try:
        fields = _CENTRAL.unpack_from(directory, at)
    except struct.error:
        raise _refused(path, "its directory is cut off") from None
    mark, _made_by, needed, flags, method, _time, _date, crc, compressed, size = fields[:10]
    name_bytes, extra, comment, disk, _internal, external, offset = fields[10:]
    after = at + _CENTRAL.size + name_bytes
    raw = directory[at + _CENTRAL.size : after]
    if mark != b"PK\x01\x02" or len(raw) != name_bytes:
        raise _refused(path, "its directory is damaged")
    name = raw.decode("ascii", errors="backslashreplace")
    if problem := name_problem(name):
        raise _refused(path, f"an entry has {problem}")
    kind = stat.S_IFMT(external >> 16)
    if kind not in (0, stat.S_IFREG) or external & _DOS_FOLDER:
        raise _refused(path, f"{name} is not a plain file")
    if needed > 20 or flags or extra or comment or disk or method not in (_STORED, _DEFLATED):
        raise _refused(path, f"{name} is stored in a way that labctl never uses")
    if offset != reached:
        raise _refused(path, f"{name} does not lie where the entry before it ends")
    if size > form.MOST_ENTRY_BYTES:
        raise _refused(path, f"{name} has {size_text(size)}")
    if (method == _STORED and size != compressed) or size > form.MOST_RATIO * compressed:
        raise _refused(path, f"{name} would unpack to {size} bytes out of {compressed}")
    return name, _Place(offset + _LOCAL.size + name_bytes, compressed, size, crc, method), after


def _check_header(path: Path, descriptor: int, name: str, place: _Place, record: bytes) -> None:
    """Raise NotABundle if the entry's own header differs from the directory."""
    fields = _CENTRAL.unpack_from(record)
    length = _LOCAL.size + len(name)
    header = _exactly(path, descriptor, place.offset - length, length)
    wanted = _LOCAL.pack(b"PK\x03\x04", *fields[2:11], 0) + name.encode()
    if header != wanted:
        raise _refused(path, f"{name}: its header differs from the directory")


def _check_names(path: Path, places: Iterable[str]) -> None:
    """Raise NotABundle if names differ only in case, or a name is both file and folder."""
    files: set[str] = set()
    folders: set[str] = set()
    spelled: dict[str, str] = {}
    for name in places:
        small = name.lower()
        parts = name.split("/")
        if small in files:
            raise _refused(path, f"{name} is there twice, with different case")
        files.add(small)
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            folders.add(folder.lower())
            if spelled.setdefault(folder.lower(), folder) != folder:
                raise _refused(path, f"the folder {folder} is there twice, with different case")
    if both := files & folders:
        raise _refused(path, f"{min(both)} is a file and a folder")


def _pieces(descriptor: int, path: Path, name: str, place: _Place) -> Iterator[bytes]:
    """Yield the unpacked bytes of an entry, never more than declared. Raises NotABundle."""
    crc = done = 0
    inflater = zlib.decompressobj(-zlib.MAX_WBITS) if place.method == _DEFLATED else None
    try:
        for start in range(0, place.compressed, _PIECE_BYTES):
            length = min(_PIECE_BYTES, place.compressed - start)
            packed = _exactly(path, descriptor, place.offset + start, length)
            while packed:
                if inflater is None:
                    piece, packed = packed, b""
                else:
                    piece = inflater.decompress(packed, _PIECE_BYTES)
                    packed = inflater.unconsumed_tail
                    if inflater.unused_data:
                        raise _refused(path, f"{name} continues after its end")
                done += len(piece)
                if done > place.size:
                    raise _refused(path, f"{name} has more than its {place.size} bytes")
                crc = zlib.crc32(piece, crc)
                yield piece
    except zlib.error as error:
        raise _refused(path, f"{name} cannot be unpacked: {error}") from None
    if done != place.size or (inflater is not None and not inflater.eof):
        raise _refused(path, f"{name} ends after {done} of {place.size} bytes")
    if crc != place.crc:
        raise _refused(path, f"{name} is damaged: its CRC differs")


def _small(
    path: Path, descriptor: int, name: str, places: Mapping[str, _Place], most: int
) -> bytes:
    place = places[name]
    if place.size > most:
        raise _refused(path, f"{name} has {size_text(place.size)}")
    return b"".join(_pieces(descriptor, path, name, place))


def _manifest(path: Path, raw: bytes) -> BundleManifest:
    try:
        return BundleManifest.model_validate_json(raw, strict=False, extra="ignore")
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        if found["loc"] == ("labctl_bundle",):
            raise ConfigError(
                f"{path} was made by another labctl, in a format that this one cannot read",
                hint="update labctl on this host",
            ) from None
        where = ".".join(map(str, found["loc"]))
        raise _refused(path, f"its {form.MANIFEST} is wrong: {where}: {found['msg']}") from None


def _exactly(path: Path, descriptor: int, offset: int, length: int) -> bytes:
    raw = os.pread(descriptor, length, offset) if offset >= 0 else b""
    if len(raw) != length:
        raise _refused(path, "it is cut off")
    return raw


def _sha256(descriptor: int) -> str:
    digest, offset = hashlib.sha256(), 0
    while piece := os.pread(descriptor, 1 << 20, offset):
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()


def _refused(path: Path, why: str) -> NotABundle:
    return NotABundle(
        f"{path} is not a valid bundle: {why}",
        hint="get it again from its author; nothing of it was used",
    )
