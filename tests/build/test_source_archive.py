import io
import socket
import stat
import struct
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from labctl.build.progress import ignore
from labctl.build.source_archive import Archive, download, unpack
from labctl.build.spec import ArchiveSource
from labctl.errors import ConfigError, HostError, HostTimeout, IntegrityError, LabctlError
from labctl.file_hashes import sha256_file

pytestmark = pytest.mark.usefixtures("own_cache")

FILES = {"sample-1.0/main.c": "int main;\n", "sample-1.0/lib/a.h": "#define A 1\n"}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def tar(path: Path, mode: str) -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, text in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def zipped(path: Path, *extra: tuple[str, int]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
        for name, mode in extra:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, "/etc/passwd")
    return path


def source(address: str, path: Path, **more: str) -> Archive:
    return Archive(ArchiveSource(archive=address, sha256=sha256_file(path), **more))


def refused(archive: Archive, kind: type[LabctlError]) -> LabctlError:
    with pytest.raises(kind) as caught:
        archive.fetch(ignore)
    assert not archive.home.exists()
    return caught.value


@pytest.mark.parametrize(("name", "mode"), [("s.tar.gz", "w:gz"), ("s.tar.xz", "w:xz"), ("s", "w")])
def test_a_tar_archive_is_fetched_once(served, name: str, mode: str) -> None:  # type: ignore[no-untyped-def]
    folder, address = served
    path = tar(folder / name, mode)
    archive = source(f"{address}/{name}", path)
    home = archive.fetch(ignore)
    assert (home / "lib" / "a.h").read_text() == "#define A 1\n"
    path.unlink()
    assert archive.fetch(ignore) == home


def test_a_zip_archive_from_this_host_keeps_what_is_executable(tmp_path: Path) -> None:
    path = zipped(tmp_path / "s.zip", ("sample-1.0/build.sh", stat.S_IFREG | 0o755))
    home = source(path.as_uri(), path).fetch(ignore)
    assert (home / "main.c").read_text() == "int main;\n"
    assert (home / "build.sh").stat().st_mode & 0o111
    part = source(path.as_uri(), path, subdirectory="lib").fetch(ignore)
    assert (part / "a.h").is_file()


def test_another_file_than_the_pinned_one(served) -> None:  # type: ignore[no-untyped-def]
    folder, address = served
    tar(folder / "s.tar.gz", "w:gz")
    archive = Archive(ArchiveSource(archive=f"{address}/s.tar.gz", sha256="0" * 64))
    error = refused(archive, IntegrityError)
    assert error.message.startswith(f"{address}/s.tar.gz is not the pinned archive, sha256 0000")
    assert sha256_file(folder / "s.tar.gz") in error.message
    (folder / "page.html").write_text("<html>Please log in</html>")
    page = Archive(ArchiveSource(archive=f"{address}/page.html", sha256="0" * 64))
    error = refused(page, IntegrityError)
    assert "(26 bytes, text/html)" in error.message
    assert "a page of a proxy or a login" in str(error.hint)


def test_nothing_at_the_address_and_no_server(served, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder, address = served
    path = tar(folder / "s.tar.gz", "w:gz")
    assert refused(source(f"{address}/t.tar.gz", path), ConfigError).message.startswith(
        "not found: "
    )
    gone = source((tmp_path / "gone.tar").as_uri(), path)
    assert refused(gone, ConfigError).message.startswith("not found: file:///")
    dead = source("http://127.0.0.1:1/s.tar.gz", path)
    assert refused(dead, HostError).message.startswith("cannot fetch http://127.0.0.1:1/")


@pytest.mark.parametrize(
    ("name", "mode"), [("../evil", 0o100644), ("/evil", 0o100644), ("sample-1.0/l", 0o120777)]
)
def test_zip_members_that_would_land_outside_or_are_links(
    tmp_path: Path, name: str, mode: int
) -> None:
    path = zipped(tmp_path / "s.zip", (name, mode))
    assert "is refused" in refused(source(path.as_uri(), path), IntegrityError).message
    assert not (tmp_path / "evil").exists()


def member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(f"sample-1.0/{name}")
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "refused_member",
    [
        member("../../evil", tarfile.REGTYPE),
        member("out", tarfile.SYMTYPE, "../../evil"),
        member("out", tarfile.SYMTYPE, "/etc/passwd"),
        member("out", tarfile.LNKTYPE, "../evil"),
        member("disk", tarfile.BLKTYPE),
        member("pipe", tarfile.FIFOTYPE),
    ],
)
def test_tar_members_that_would_land_outside_or_are_no_files(
    tmp_path: Path, refused_member: tarfile.TarInfo
) -> None:
    path = tmp_path / "s.tar"
    with tarfile.open(path, "w") as archive:
        archive.addfile(refused_member)
    message = refused(source(path.as_uri(), path), IntegrityError).message
    assert message.startswith("s.tar cannot be unpacked: ")
    assert not list(tmp_path.glob("**/evil"))


def test_an_encrypted_zip_archive(tmp_path: Path) -> None:
    path = zipped(tmp_path / "s.zip")
    raw = path.read_bytes()
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = raw.index(header) + flags
        raw = raw[:at] + b"\x01" + raw[at + 1 :]
    path.write_bytes(raw)
    message = refused(source(path.as_uri(), path), IntegrityError).message
    assert message == "s.zip cannot be unpacked: it is encrypted"


class Breaking(BaseHTTPRequestHandler):
    """Sends a little of a file, then nothing more or a reset connection."""

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self.wfile.write(b"x" * 100)
        self.wfile.flush()
        if self.path.endswith("silent"):
            self.connection.settimeout(10)
            self.connection.recv(1)  # until the client hangs up
        else:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("silent", HostTimeout, "the server is silent"),
        ("reset", HostError, "Connection reset by peer"),
    ],
)
def test_a_server_that_breaks_off(
    tmp_path: Path, how: str, kind: type[LabctlError], message: str
) -> None:
    silence = 0.3 if how == "silent" else 60
    with ThreadingHTTPServer(("127.0.0.1", 0), Breaking) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/{how}"
        with pytest.raises(kind) as caught:
            download(address, tmp_path / "file", ignore, silence_seconds=silence)
    assert caught.value.message == f"cannot fetch {address}: {message}"


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\x7fELF" * 100)
    with pytest.raises(ConfigError, match=r"a\.bin is neither a tar nor a zip archive"):
        unpack(tmp_path / "a.bin", tmp_path / "out")


def test_an_address_that_is_none() -> None:
    with pytest.raises(ValueError, match="must be the address of a file"):
        ArchiveSource(archive="ftp://x/y.tar", sha256="0" * 64)
    with pytest.raises(ValueError, match="must hold no user name or password"):
        ArchiveSource(archive="https://me:s3cret@x/y.tar", sha256="0" * 64)


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_an_archive_may_nest_its_folders_too_deep(tmp_path: Path, kind: str) -> None:
    archive, name = tmp_path / f"a.{kind}", f"{'d/' * 1500}file"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(name, "x")
    else:
        with tarfile.open(archive, "w") as deep:
            deep.addfile(tarfile.TarInfo(name))
    with pytest.raises(IntegrityError, match=r"cannot be unpacked"):
        unpack(archive, tmp_path / "tree")
