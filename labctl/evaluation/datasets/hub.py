"""Data sets of Hugging Face: one file of a repository, fetched once and cached.

The list of files and the headers are the same as for models (:mod:`labctl.models.hub_files`), under
``/api/datasets/`` and ``/datasets/``. The hub has no SHA-256 of small files: it is computed from
the received bytes.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from labctl.config.printed import read_json
from labctl.errors import ConfigError, HostError, IntegrityError
from labctl.evaluation.datasets.source import HubDataset
from labctl.file_hashes import sha256_file
from labctl.files import write_atomic
from labctl.folders import cache_dir
from labctl.http import Unreachable, not_the_file, read_body, request
from labctl.locks import locked
from labctl.models.download import refuse
from labctl.models.hub import head
from labctl.models.hub_files import ListedFile, hub_site, list_dataset_files, refuse_offline
from labctl.progress import Progress
from labctl.retry import RETRY_SECONDS, retry_infra
from labctl.suggestions import did_you_mean
from labctl.units import size

MOST_BYTES = 500_000_000
_FETCH_SECONDS = 600.0
#: Largest possible error message of a server, in bytes.
_MOST_ERROR = 100_000
_MOST_NAMED = 12
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FROM_A_FILE = (
    "or give the questions as a file: dataset: {file: questions.jsonl}, a JSON object on each line"
)


@dataclass(frozen=True)
class FetchedFile:
    """A file of a data set on this host, and its address at its commit."""

    path: Path
    address: str


def fetch_dataset(source: HubDataset, progress: Progress) -> FetchedFile:
    """Return the file with the questions, from the cache or the hub.

    Raises ConfigError (no such repository, split or file, no access), IntegrityError (other bytes
    than ``sha256``), HostError (offline).
    """
    what = f"the data set {source.repository}"
    asked = source.model_dump_json(exclude={"sha256"})
    folder = cache_dir() / "datasets" / hashlib.sha256(asked.encode()).hexdigest()[:32]
    with locked(folder.with_name(f".{folder.name}.lock"), timeout=_FETCH_SECONDS):
        found = _kept(folder) or _fetched(source, folder, what, progress)
    if source.sha256 is not None and (digest := sha256_file(found.path)) != source.sha256:
        raise IntegrityError(
            f"{found.address} of {what} has SHA-256 {digest}, not {source.sha256}",
            hint="the file may have been replaced: give the commit as revision, or change sha256",
        )
    return found


def _kept(folder: Path) -> FetchedFile | None:
    """Return the file of an earlier, complete fetch, which has a note (written last)."""
    try:
        note = json.loads((folder / "origin.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    path = folder / str(note.get("file"))
    whole = path.is_file() and sha256_file(path) == note.get("sha256")
    return FetchedFile(path, str(note.get("address"))) if whole else None


def _fetched(source: HubDataset, folder: Path, what: str, progress: Progress) -> FetchedFile:
    try:
        refuse_offline(what)
        endpoint, headers = hub_site("huggingface")
        name = source.file or _choose(
            source, list_dataset_files(source.repository, source.revision)
        )
        site = f"{endpoint}/datasets/{quote(source.repository)}/resolve"
        commit = source.revision or "main"
        if not _COMMIT.fullmatch(commit):
            found = head(what, f"{site}/{quote(commit, safe='')}/{quote(name)}", headers)
            commit = found.get("X-Repo-Commit", "")
            if not _COMMIT.fullmatch(commit):
                raise HostError(f"{endpoint} does not report the commit of {what}")
        address = f"{site}/{commit}/{quote(name)}"
        body = retry_infra(
            lambda: _body(address, headers, what), on=(Unreachable,), timeout=RETRY_SECONDS
        )
    except Unreachable as error:
        hint = f"connect this host, {_FROM_A_FILE}"
        raise HostError(f"{what} is not on this host: {error.message}", hint=hint) from error
    progress(f"fetch {what}", len(body), len(body))
    path = folder / f"questions{PurePosixPath(name).suffix}"
    write_atomic(path, body)
    digest = hashlib.sha256(body).hexdigest()
    note = {"address": address, "file": path.name, "sha256": digest}
    write_atomic(folder / "origin.json", json.dumps(note) + "\n")
    return FetchedFile(path, address)


def _body(address: str, headers: dict[str, str], what: str) -> bytes:
    with request("GET", address, headers=headers) as answer:
        refuse(answer, what, address)
        length = answer.headers.get("Content-Length", "")
        if length.isdigit() and int(length) > MOST_BYTES:
            raise ConfigError(
                f"{address} has {size(int(length))}; labctl fetches data sets up to"
                f" {size(MOST_BYTES)}",
                hint=f"fetch it by hand, {_FROM_A_FILE}",
            )
        body = read_body(answer, within_s=_FETCH_SECONDS, most_bytes=MOST_BYTES)
        if length.isdigit() and len(body) != int(length):
            raise Unreachable(
                f"{answer.url.host} closed the connection after {len(body)} of {length} bytes"
            )
        if not _may_be_questions(body, address):
            raise not_the_file(answer, address, what, f"a whole answer of {len(body)} bytes")
        return body


def _may_be_questions(body: bytes, address: str) -> bool:
    """Return False for a web page, an error in JSON or XML, or an invalid .parquet file."""
    if address.endswith(".parquet"):
        return body.startswith(b"PAR1")
    if body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return False
    try:
        only = read_json(body, most_bytes=_MOST_ERROR)
    except ValueError:  # several lines
        return True
    return not (isinstance(only, dict) and "error" in only)


def _choose(source: HubDataset, files: Sequence[ListedFile]) -> str:
    """Return the path of the only file whose path contains the configuration and the split."""
    wanted = [word for word in (source.config, source.split) if word]
    fitting = [file.path for file in files if all(_has(file.path, word) for word in wanted)]
    if len(fitting) == 1:
        return fitting[0]
    named = fitting or [file.path for file in files]
    listed = ", ".join(named[:_MOST_NAMED]) + (" …" if len(named) > _MOST_NAMED else "")
    if fitting:
        raise ConfigError(
            f"{len(fitting)} files of {source.repository} fit {' and '.join(wanted)}",
            hint=f"name one as hub.file, or a hub.config: {listed}",
        )
    near = did_you_mean(source.split, {word for file in files for word in _words(file.path)})
    raise ConfigError(
        f"{source.repository} has no .jsonl or .parquet file for {' and '.join(wanted)}{near}",
        hint=f"it has {listed}" if named else _FROM_A_FILE,
    )


def _has(path: str, word: str) -> bool:
    return re.search(rf"(?:^|[-_./]){re.escape(word)}(?=[-_./])", path) is not None


def _words(path: str) -> list[str]:
    return re.split(r"[-_./]", path)
