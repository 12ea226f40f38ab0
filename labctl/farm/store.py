"""The shared store of a lab's hosts: files by their SHA-256, in a folder, S3 or an http server.

A file has the key ``objects/<first two digits>/<sha256>``. The store's answers are not trusted: an
upload is read back and hashed, and a download is hashed before it gets its name. obstore handles
all kinds of stores, and takes the keys of S3 from the environment (``AWS_*``);
``LABCTL_STORE_TOKEN`` is the bearer token for an http server.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from labctl.config.lab import LabFile
from labctl.distribution import install_extra
from labctl.errors import ConfigError, HostError, IntegrityError, ToolMissing
from labctl.file_hashes import sha256_file
from labctl.files import appearing, host_reads
from labctl.units import size as size_text

TOKEN_VARIABLE = "LABCTL_STORE_TOKEN"  # noqa: S105 - the name of a variable
#: Bytes of one request: a failed request loses no more.
_PIECE_BYTES = 32 << 20
#: Plain http cannot upload in parts: a file up to this size is held in memory.
_MOST_HTTP_BYTES = 1 << 30
#: An existing file up to this size is read and hashed again; larger files take too long.
_MOST_REREAD_BYTES = 256 << 20
_CONNECT_SECONDS = 10
_REQUEST_SECONDS = 120
_RETRY_SECONDS = 60
_OBJECT = re.compile(r"objects/[0-9a-f]{2}/([0-9a-f]{64})")


@dataclass(frozen=True)
class StoredFile:
    """A file of the shared store."""

    sha256: str
    size_bytes: int
    #: Time of its upload, in s since 1970 by the store's clock.
    stored_at: float


class SharedStore:
    """Files by their digest.

    Args:
        url: a folder, ``s3://bucket[/prefix]`` or ``http[s]://host[/path]``.

    Methods raise HostError if the store cannot be reached, is full or refuses, and ToolMissing if
    the Python package is missing.
    """

    def __init__(self, url: str, *, piece_bytes: int = _PIECE_BYTES):
        self.url = url
        self._piece_bytes = piece_bytes

    def __str__(self) -> str:
        return f"the shared store {self.url}"

    def put(self, path: Path, sha256: str | None = None) -> str:
        """Store a file unless it is there; return its SHA-256.

        The file appears complete or not at all. An existing file with other bytes is replaced;
        above 256 MiB only the size is compared. Raises IntegrityError if the file does not have
        ``sha256``, or if the store returns other bytes.
        """
        with host_reads(path):
            digest = sha256_file(path)
            size = path.stat().st_size
        if sha256 is not None and digest != sha256:
            raise IntegrityError(f"{path} has changed: its SHA-256 differs")
        is_there = self.size_of(digest) == size
        if is_there and (size > _MOST_REREAD_BYTES or self._gives_back(digest, size)):
            return digest
        self._upload(_key(digest), path, size)
        if not self._gives_back(digest, size):
            with suppress(HostError):
                self.remove(digest)
            raise self._liar(digest)
        return digest

    def get(self, sha256: str, path: Path) -> None:
        """Fetch a file; it gets its name only after its bytes are verified.

        Raises ConfigError if the store has no such file, HostError if the store is away; both blame
        the host, which may mount it later. Raises IntegrityError if the bytes differ.
        """
        size = self.size_of(sha256)
        if size is None:
            raise ConfigError(
                f"{self} has no file {sha256[:12]}…",
                hint="the host that made it uploads it: is its `labctl worker` running?",
            ).of_host()
        digest = hashlib.sha256()
        with appearing(path) as file:
            for piece in self._pieces(_key(sha256), size):
                digest.update(piece)
                file.write(piece)
            if digest.hexdigest() != sha256:
                raise self._liar(sha256)

    def size_of(self, sha256: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        obstore = _obstore()
        with self._typed_errors():
            try:
                return int(obstore.head(self._store, _key(sha256))["size"])
            except FileNotFoundError:
                return None

    def contents(self) -> Iterator[StoredFile]:
        """Return all files of the store, to find unneeded files."""
        for entry in self.keys("objects"):
            if found := _OBJECT.fullmatch(entry["path"]):
                stored_at = entry["last_modified"].timestamp()
                yield StoredFile(found[1], entry["size"], stored_at)

    def remove(self, sha256: str) -> None:
        """Remove a file; do nothing if it does not exist."""
        obstore = _obstore()
        with self._typed_errors(), suppress(FileNotFoundError):
            obstore.delete(self._store, _key(sha256))

    def keys(self, prefix: str) -> Iterator[Any]:
        """Return the files under a prefix."""
        obstore = _obstore()
        with self._typed_errors():
            for batch in obstore.list(self._store, prefix=prefix):
                yield from batch

    def write(self, key: str, content: bytes) -> None:
        """Write a small file under a name; replaces an earlier file."""
        obstore = _obstore()
        with self._typed_errors():
            obstore.put(self._store, key, content, use_multipart=False)

    def read(self, key: str, *, most_bytes: int) -> bytes | None:
        """Return a small file by its name; None if it does not exist. Raises IntegrityError."""
        obstore = _obstore()
        with self._typed_errors():
            try:
                size = obstore.head(self._store, key)["size"]
                if size > most_bytes:
                    raise IntegrityError(f"{self}: {key} has {size_text(size)}")
                content = bytes(obstore.get_range(self._store, key, start=0, length=size))
            except FileNotFoundError:
                return None
        return content

    def _upload(self, key: str, path: Path, size: int) -> None:
        obstore = _obstore()
        is_http = urlsplit(self.url).scheme in ("http", "https")
        if is_http and size > _MOST_HTTP_BYTES:
            raise ConfigError(
                f"{path} has {size_text(size)}: {self} takes {size_text(_MOST_HTTP_BYTES)} at most",
                hint="for large files, use S3 or a folder as the shared store",
            )
        with self._typed_errors(), path.open("rb") as file:
            multipart = size > self._piece_bytes and not is_http
            obstore.put(
                self._store, key, file, use_multipart=multipart, chunk_size=self._piece_bytes
            )

    def _gives_back(self, sha256: str, size: int) -> bool:
        """Read a file of the store; return True if its bytes match its name."""
        digest = hashlib.sha256()
        for piece in self._pieces(_key(sha256), size):
            digest.update(piece)
        return digest.hexdigest() == sha256

    def _pieces(self, key: str, size: int) -> Iterator[bytes]:
        """Yield a file from several requests; each is retried separately."""
        obstore = _obstore()
        for start in range(0, size, self._piece_bytes):
            length = min(self._piece_bytes, size - start)
            with self._typed_errors():
                piece = bytes(obstore.get_range(self._store, key, start=start, length=length))
            yield piece

    def _liar(self, sha256: str) -> IntegrityError:
        return IntegrityError(
            f"{self} returned wrong bytes for {sha256[:12]}…",
            hint="the file was not used; check the store's disk, then remove the object there",
        )

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        base_error = _obstore().exceptions.BaseError
        try:
            yield
        except FileNotFoundError as error:
            raise HostError(f"{self} has lost a file: {_first_line(error)}").of_host() from None
        except (base_error, OSError) as error:
            raise HostError(
                f"cannot use {self}: {_first_line(error)}",
                hint="`store` in devices.yaml says where it is; keys come from the environment",
            ).of_host() from None

    @cached_property
    def _store(self) -> Any:
        kinds = _obstore().store
        parts = urlsplit(self.url)
        client: Any = {
            "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
            "timeout": timedelta(seconds=_REQUEST_SECONDS),
        }
        retry: Any = {"max_retries": 8, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
        with self._typed_errors():
            if parts.scheme == "s3":
                # The lab's own endpoint, such as MinIO: an http address is intended.
                endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
                client["allow_http"] = endpoint.startswith("http://")
                prefix = parts.path.strip("/") or None
                return kinds.S3Store(
                    parts.netloc, prefix=prefix, client_options=client, retry_config=retry
                )
            if parts.scheme in ("http", "https"):
                client["allow_http"] = parts.scheme == "http"
                if token := os.environ.get(TOKEN_VARIABLE):
                    client["default_headers"] = {"Authorization": f"Bearer {token}"}
                return kinds.HTTPStore(self.url, client_options=client, retry_config=retry)
            return kinds.LocalStore(self.url, mkdir=True)


def lab_store(lab: LabFile) -> SharedStore | None:
    """Return the shared store of a lab; None if it has none."""
    url = lab.lab.store
    if url is None:
        return None
    is_folder = "://" not in url
    return SharedStore(str(lab.root / Path(url).expanduser()) if is_folder else url)


def _obstore() -> Any:
    """Return the library. Raises ToolMissing."""
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ModuleNotFoundError as error:
        raise ToolMissing(
            "a shared store needs the Python package 'obstore'",
            hint=install_extra("farm"),
        ) from error
    return obstore


def _key(sha256: str) -> str:
    return f"objects/{sha256[:2]}/{sha256}"


def _first_line(error: BaseException) -> str:
    """Return the first line: the debug text after it may contain the request."""
    return str(error).split("\n", 1)[0].strip()
