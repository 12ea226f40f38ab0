"""Files of Hugging Face and ModelScope: their metadata and their download.

Hugging Face answers a HEAD of ``/REPO/resolve/REVISION/FILE`` with the headers ``X-Repo-Commit``,
``X-Linked-Etag`` (the SHA-256 of a large file) and ``X-Linked-Size``. ModelScope lists files with
``Sha256`` and ``Size`` under ``/api/v1/models/REPO/repo/files``. ``HF_ENDPOINT``, ``HF_TOKEN``,
``HF_HUB_OFFLINE``, ``MODELSCOPE_DOMAIN`` and ``MODELSCOPE_API_TOKEN`` have the same meaning as
there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

from labctl.config.models import HubModel
from labctl.errors import ConfigError, HostError
from labctl.http import Unreachable, request
from labctl.models.download import fetch_file, refuse
from labctl.models.hub_files import LOOK_UP_SECONDS, hub_site, modelscope_files, refuse_offline
from labctl.progress import Progress
from labctl.retry import retry_infra
from labctl.suggestions import did_you_mean

_MOST_RENAMES = 5
_SIZE = re.compile(r"[0-9]{1,18}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class HubFile:
    """Metadata of a file on a hub."""

    address: str
    sha256: str
    size_bytes: int
    commit: str | None
    headers: dict[str, str]


def look_up(key: str, source: HubModel, commit: str | None = None) -> HubFile:
    """Ask the hub for a file's hash and size, at ``commit`` if known.

    Raises ConfigError (no such file, no access), HostError (offline).
    """
    refuse_offline(f"the model {key!r}")
    ask = _hugging_face if source.site == "huggingface" else _modelscope
    return retry_infra(lambda: ask(key, source, commit), on=(Unreachable,), timeout=LOOK_UP_SECONDS)


def fetch(key: str, source: HubModel, found: HubFile, progress: Progress) -> Path:
    """Return the file, from the cache or the hub. Raises ConfigError, HostError."""
    if source.sha256 is not None and source.sha256 != found.sha256:
        raise ConfigError(
            f"{found.address} of the model {key!r} has SHA-256 {found.sha256} on the hub, not"
            f" {source.sha256}",
            hint="was the file replaced there? Name the commit as revision, or change sha256",
        )
    return fetch_file(
        key,
        found.address,
        sha256=found.sha256,
        size_bytes=found.size_bytes,
        headers=found.headers,
        progress=progress,
    )


def _hugging_face(key: str, source: HubModel, commit: str | None) -> HubFile:
    endpoint, headers = hub_site("huggingface")
    address = _file_address(endpoint, source, commit or source.revision or "main")
    answer_headers = head(f"the model {key!r}", address, headers)
    digest = answer_headers.get("X-Linked-Etag", "").removeprefix("W/").strip('"')
    size = answer_headers.get("X-Linked-Size", "")
    if not _SHA256.fullmatch(digest) or not _SIZE.fullmatch(size):
        raise HostError(
            f"{address} comes without the SHA-256 of the file, so it cannot be verified"
            f" (type of the answer: {answer_headers.get('Content-Type', 'none')})",
            hint="is HF_ENDPOINT a whole mirror? Otherwise name the file by url and sha256",
        )
    pinned = answer_headers.get("X-Repo-Commit")
    if pinned and re.fullmatch(r"[0-9a-f]{40}", pinned):
        address = _file_address(endpoint, source, pinned)
    else:
        pinned = None
    return HubFile(address, digest, int(size), pinned, headers)


def head(what: str, address: str, headers: dict[str, str]) -> Mapping[str, str]:
    """Return the hub's own headers of a file; ``what`` needs it, for messages.

    Follows redirects within the hub, as for a renamed repository. Other redirects lead to the
    file's storage, which does not know its hash.
    """
    for _ in range(_MOST_RENAMES):
        with request("HEAD", address, headers=headers, follow=False) as answer:
            refuse(answer, what, address)
            location = answer.headers.get("Location", "")
            if "X-Linked-Etag" in answer.headers or not location or urlsplit(location).netloc:
                return answer.headers
            address = urljoin(address, location)
    raise HostError(f"{address} redirects in a loop")


def _modelscope(key: str, source: HubModel, commit: str | None) -> HubFile:
    endpoint, headers = hub_site("modelscope")
    revision = commit or source.revision
    files = modelscope_files(source.repository, revision, key)
    found = next((file for file in files if file.path == source.file), None)
    if found is None:
        names = [file.path for file in files]
        raise ConfigError(
            f"{source.repository} on ModelScope has no file {source.file}, needed by the model"
            f" {key!r}{did_you_mean(source.file, names)}",
            hint=f"it has {', '.join(names[:8])}" if names else "it has no .gguf file at all",
        )
    if found.sha256 is None:
        raise HostError(f"ModelScope has no SHA-256 of {source.repository}/{source.file}")
    address = _file_address(f"{endpoint}/models", source, revision or "master")
    return HubFile(address, found.sha256, found.size_bytes, None, headers)


def _file_address(endpoint: str, source: HubModel, revision: str) -> str:
    return (
        f"{endpoint}/{quote(source.repository)}/resolve/{quote(revision, safe='')}"
        f"/{quote(source.file)}"
    )
