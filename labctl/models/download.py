"""Download of large files over https: resumed after interruptions, published after verification."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from labctl.errors import ConfigError, HostError, IntegrityError
from labctl.files import host_writes, publish
from labctl.folders import cache_dir
from labctl.http import Unreachable, media_type, not_the_file, pieces, request, without_login
from labctl.locks import locked
from labctl.models.cache import cached
from labctl.progress import Progress
from labctl.retry import RETRY_SECONDS, retry_infra
from labctl.units import size

if TYPE_CHECKING:
    import httpx

#: Maximum length of a file's name; the end is kept, including the suffix.
_LONGEST_NAME = 120
_WHOLE_SECONDS = 12 * 3600.0
#: Number of bytes of an answer shown in a message.
_SHOWN_BYTES = 16
#: Content types of pages and errors, which no model has.
_OF_PAGES = (
    "text/html",
    "application/xhtml+xml",
    "application/json",
    "application/xml",
    "text/xml",
)


def fetch_file(
    key: str,
    address: str,
    *,
    sha256: str,
    size_bytes: int | None = None,
    headers: Mapping[str, str] | None = None,
    progress: Progress,
) -> Path:
    """Return the file with this SHA-256, from the cache or from ``address``.

    An interrupted download continues where it stopped, also after a kill of labctl. Raises
    ConfigError (no such file, no access), IntegrityError (other bytes), HostError.
    """
    name = file_name(address)
    folder = cache_dir() / "models" / sha256
    with locked(folder.with_name(f".{sha256}.lock"), timeout=_WHOLE_SECONDS):
        if present := cached(sha256):
            return present
        part = folder / f".{name}.part"
        with host_writes(part):
            folder.mkdir(parents=True, exist_ok=True)
        download = _Download(key, address, part, size_bytes, dict(headers or {}), progress)
        _refuse_full_disk(key, part, download.done, size_bytes)
        resumed = part.exists()
        try:
            download.run(sha256)
        except IntegrityError:
            if not resumed:
                raise
            # The bytes of an earlier attempt did not belong to this file.
            download.run(sha256)
        publish(part, folder / name)
    return folder / name


def beginning(
    key: str, address: str, headers: Mapping[str, str], count: int
) -> tuple[bytes, int | None]:
    """Return the first ``count`` bytes at an address, and the total size; None if it is not sent.

    Raises ConfigError (no such file, no access), HostError.
    """
    asking = {**headers, "Range": f"bytes=0-{count - 1}"}
    with request("GET", address, headers=asking) as answer:
        refuse(answer, f"the model {key!r}", address)
        found = b""
        # A server without range requests sends the whole file; then close the connection.
        for block in pieces(answer):
            found += block
            if len(found) >= count:
                break
        whole = answer.headers.get("Content-Range", "").rpartition("/")[2]
        if answer.status_code != HTTPStatus.PARTIAL_CONTENT:
            whole = answer.headers.get("Content-Length", "")
    return found[:count], int(whole) if whole.isdigit() else None


def file_name(address: str) -> str:
    """Return the name of the file at an address, safe for a folder and a terminal."""
    name = PurePosixPath(unquote(urlsplit(address).path)).name
    name = re.sub(r"[^\w.+=@,()-]+", "_", name).lstrip(".")[-_LONGEST_NAME:]
    return name or "model.gguf"


def _refuse_full_disk(key: str, part: Path, done: int, size_bytes: int | None) -> None:
    """Check the free space before the first byte. Raises HostError."""
    if size_bytes is None:
        return
    with host_writes(part):
        free = shutil.disk_usage(part.parent).free
    if free < size_bytes - done:
        raise HostError(
            f"no space for the model {key!r}: {size(size_bytes - done)} must be fetched,"
            f" {part.parents[1]} has {size(free)}",
            hint="free some space, or set LABCTL_CACHE to a folder on another disk",
        )


@dataclass(frozen=True)
class _Download:
    key: str
    address: str
    part: Path
    size_bytes: int | None
    headers: dict[str, str]
    progress: Progress
    #: Type of each answer.
    types: list[str] = field(default_factory=list)

    @property
    def done(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def run(self, sha256: str) -> None:
        """Complete ``part`` and verify it; wrong bytes are removed."""
        while True:
            before = self.done
            try:
                retry_infra(self._receive, on=(Unreachable,), timeout=RETRY_SECONDS)
                break
            except Unreachable:
                # While each round makes progress, even a slow and unreliable connection succeeds.
                if self.done <= before:
                    raise
        with self.part.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != sha256:
            found = self.done
            with host_writes(self.part):
                self.part.unlink()
            raise IntegrityError(
                f"{self.address} of the model {self.key!r} is not the requested file:"
                f" {found} bytes{self._of_type} with SHA-256 {digest}, not {sha256}",
                hint="check the address and the hash; was the file replaced there?",
            )

    @property
    def _of_type(self) -> str:
        return f" ({self.types[-1]})" if self.types and self.types[-1] in _OF_PAGES else ""

    def _receive(self) -> None:
        had = self.done
        if had == self.size_bytes:
            return
        asking = self.headers | ({"Range": f"bytes={had}-"} if had else {})
        with request("GET", self.address, headers=asking) as answer:
            if answer.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return  # no bytes follow: the hash shows if the file is complete
            refuse(answer, f"the model {self.key!r}", self.address)
            self.types.append(media_type(answer))
            # A server without range requests sends the whole file again; another one may send less
            # than the rest (RFC 9110, 15.3.7).
            is_rest = answer.status_code == HTTPStatus.PARTIAL_CONTENT
            total = self._rest(answer, had) if is_rest else self._whole(answer)
            arriving = pieces(answer)
            first = next(arriving, b"")
            is_page = not is_rest and first.lstrip()[:1] in (b"<", b"{")  # no model begins so
            if had and not is_rest:
                self._refuse_beginning(answer, first, is_page=is_page)
            done = self._keep(chain((first,), arriving), had if is_rest else 0, total)
        if total is None or done >= total:
            return
        # A missing chunk is an http error, so an answer in chunks is complete.
        is_whole = "chunked" in answer.headers.get("Transfer-Encoding", "")
        if not is_rest and (is_whole or is_page or self.types[-1] in _OF_PAGES):
            with host_writes(self.part):
                self.part.unlink()
            raise self._other(answer, f"a whole answer of {done} bytes")
        raise Unreachable(f"{self.address} was interrupted after {done} of {total} bytes")

    def _rest(self, answer: "httpx.Response", had: int) -> int | None:
        """Return the size of the file if the answer continues it; None: unknown."""
        begins = answer.headers.get("Content-Range", f"bytes {had}-")
        if had and not begins.startswith(f"bytes {had}-"):
            raise HostError(
                f"{self.address} sends {begins!r} for a request of the bytes after {had}"
            )
        if self.size_bytes is not None:
            return self.size_bytes
        whole = begins.rpartition("/")[2]
        return int(whole) if whole.isdigit() else None

    def _whole(self, answer: "httpx.Response") -> int | None:
        """Return the size of the file if the answer is all of it; None: unknown."""
        length = answer.headers.get("Content-Length", "")
        found = int(length) if length.isdigit() else None
        if self.size_bytes is not None and found is not None and found < self.size_bytes:
            raise self._other(answer, f"a whole answer of {length} bytes")
        return found if self.size_bytes is None else self.size_bytes

    def _keep(self, blocks: Iterable[bytes], done: int, total: int | None) -> int:
        """Write the blocks after the first ``done`` bytes; return the size of the part then."""
        with host_writes(self.part), self.part.open("ab") as file:
            os.ftruncate(file.fileno(), done)
            for block in blocks:
                file.write(block)
                done += len(block)
                if self.size_bytes is not None and done > self.size_bytes:
                    break  # it could be endless; the hash shows that it is another file
                self.progress(f"fetch {self.part.name[1:-5]}", done, total)
        return done

    def _refuse_beginning(self, answer: "httpx.Response", first: bytes, *, is_page: bool) -> None:
        """Refuse the beginning of another file; the bytes received before stay."""
        if not first:
            raise Unreachable(f"{self.address} was interrupted before the first byte")
        if is_page:
            raise self._other(answer, f"an answer that begins with {first[:_SHOWN_BYTES]!r}")

    def _other(self, answer: "httpx.Response", sent: str) -> HostError:
        what = f"the model {self.key!r}"
        what += f" of {self.size_bytes} bytes" if self.size_bytes is not None else ""
        return not_the_file(answer, self.address, what, sent)


def refuse(answer: "httpx.Response", what: str, address: str) -> None:
    """Raise the error for a bad status: ConfigError, Unreachable; ``what`` needs the file."""
    status, address = answer.status_code, without_login(address)
    if status in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT) or 300 <= status < 400:
        return
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise ConfigError(
            f"no access to {address} for {what} (status {status})",
            hint="accept the licence on its page and set HF_TOKEN (or"
            " MODELSCOPE_API_TOKEN); hubs also report this for files that do not exist",
        )
    if status == HTTPStatus.NOT_FOUND:
        raise ConfigError(
            f"there is no {address}, needed by {what}",
            hint="check the repository, the file's name and the revision",
        )
    if status == HTTPStatus.NETWORK_AUTHENTICATION_REQUIRED:
        raise not_the_file(answer, address, f"{what}: the network wants a login", "status 511")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
        raise Unreachable(f"{address} answers with status {status}", hint="try again later")
    raise HostError(f"{address} answers with status {status}")
