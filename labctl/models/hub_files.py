"""Files of a hub's repository: list them, and choose one by its quantization.

Hugging Face lists files under ``/api/models/REPO/tree/REVISION?recursive=true``: ``path``,
``size``, and ``lfs.oid``, the SHA-256 of a large file; the header ``Link`` names further pages.
ModelScope lists ``Path``, ``Size`` and ``Sha256`` under ``/api/v1/models/REPO/repo/files``.
"""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from labctl.config.printed import read_json
from labctl.errors import ConfigError, HostError
from labctl.http import Unreachable, media_type, read_body, request, without_login
from labctl.models.download import refuse
from labctl.retry import retry_infra
from labctl.suggestions import listed

if TYPE_CHECKING:
    import httpx

#: Time (s) to retry a hub that does not answer.
LOOK_UP_SECONDS = 10.0
#: Quantizations that ``llama-cli -hf OWNER/NAME`` looks for (llama.cpp, ``common/download.cpp``).
DEFAULT_QUANTIZATIONS = ("Q4_K_M", "Q8_0")
#: Parts of names of GGUF files that are not language models (from the same file).
_NO_MODEL = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
_MODELS = (".gguf",)
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
#: Limits of a whole list, all pages together.
_MOST_PAGES = 50
_MOST_BYTES = 20_000_000
_LIST_SECONDS = 60.0
_MOST_NAMED = 40


@dataclass(frozen=True)
class ListedFile:
    """A file in a hub's list; ``sha256`` is None if the hub does not hash it."""

    path: str
    size_bytes: int
    sha256: str | None

    @property
    def is_model(self) -> bool:
        """True if it may be a GGUF language model, or the first part of one."""
        name = PurePosixPath(self.path).name
        part = _PART.search(name)
        first = part is None or int(part[1]) == 1
        return first and not any(word in name for word in _NO_MODEL)

    @property
    def parts(self) -> int:
        """Number of files into which the model is split."""
        part = _PART.search(self.path)
        return 1 if part is None else int(part[2])


def refuse_offline(what: str) -> None:
    """Raise Unreachable if the user forbids requests to hubs."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise Unreachable(
            f"{what} is not on this host, and HF_HUB_OFFLINE forbids requests to hubs",
            hint="unset it, or copy the file here and name it by its path",
        )


def hub_site(site: str) -> tuple[str, dict[str, str]]:
    """Return the address of a hub without a final slash, and the headers of a login."""
    if site == "huggingface":
        endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
        token = os.environ.get("HF_TOKEN", "").strip()
    else:
        endpoint = os.environ.get("MODELSCOPE_DOMAIN", "www.modelscope.cn")
        endpoint = endpoint if "://" in endpoint else f"https://{endpoint}"
        token = os.environ.get("MODELSCOPE_API_TOKEN", "").strip()
    return endpoint.rstrip("/"), {"Authorization": f"Bearer {token}"} if token else {}


def list_files(site: str, repository: str, revision: str | None = None) -> list[ListedFile]:
    """Ask a hub for all GGUF files of a repository, sorted by path.

    Raises ConfigError (no such repository or revision, no access), Unreachable (offline), HostError
    (an impossible list).
    """
    refuse_offline(f"the list of {repository}")
    ask = _hugging_face if site == "huggingface" else modelscope_files
    found = retry_infra(
        lambda: ask(repository, revision, repository),
        on=(Unreachable,),
        timeout=LOOK_UP_SECONDS,
    )
    return sorted(found, key=lambda file: file.path)


def choose_file(
    files: Sequence[ListedFile], repository: str, quantization: str | None = None
) -> ListedFile:
    """Choose a model among the files of a repository, like llama.cpp's ``-hf``.

    A quantization is a part of the file's name, in upper or lower case. Without a quantization, the
    choice is Q4_K_M, then Q8_0, then the only model. If several files match, llama.cpp takes the
    first; this raises ConfigError with their list, also if no file matches or it is split.
    """
    models = [file for file in files if file.is_model]
    for wanted in (quantization,) if quantization else DEFAULT_QUANTIZATIONS:
        named = re.compile(rf"(?:^|[-._/]){re.escape(wanted)}[.-]", re.IGNORECASE)
        matching = [file for file in models if named.search(file.path)]
        if len(matching) > 1:
            raise _several(repository, matching, f"have {wanted} in their names")
        if matching:
            return _whole(matching[0], repository)
    if not models:
        raise ConfigError(f"{repository} has no model in GGUF", hint="choose another repository")
    if quantization:
        raise ConfigError(
            f"no GGUF file of {repository} has {quantization} in its name",
            hint=f"it has {_named(models)}",
        )
    if len(models) > 1:
        raise _several(repository, models, f"are none in {listed(DEFAULT_QUANTIZATIONS)}")
    return _whole(models[0], repository)


def _several(repository: str, files: Sequence[ListedFile], why: str) -> ConfigError:
    return ConfigError(
        f"{len(files)} models of {repository} {why}", hint=f"name the file: {_named(files)}"
    )


def _whole(file: ListedFile, repository: str) -> ListedFile:
    if file.parts > 1:
        raise ConfigError(
            f"{file.path} of {repository} is the first of {file.parts} parts; labctl fetches models"
            " of one file",
            hint="fetch all parts by hand, and join them with llama-gguf-split --merge",
        )
    return file


def _named(files: Sequence[ListedFile]) -> str:
    names = [file.path for file in files[:_MOST_NAMED]]
    more = len(files) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def list_dataset_files(repository: str, revision: str | None = None) -> list[ListedFile]:
    """Ask Hugging Face for all JSON Lines and Parquet files of a data set, sorted by path.

    Raises as :func:`list_files` does.
    """
    refuse_offline(f"the data set {repository}")
    found = retry_infra(
        lambda: _hugging_face(repository, revision, repository, "datasets", (".jsonl", ".parquet")),
        on=(Unreachable,),
        timeout=LOOK_UP_SECONDS,
    )
    return sorted(found, key=lambda file: file.path)


def _hugging_face(
    repository: str,
    revision: str | None,
    key: str,
    kind: str = "models",
    suffixes: tuple[str, ...] = _MODELS,
) -> list[ListedFile]:
    endpoint, headers = hub_site("huggingface")
    at = quote(revision or "main", safe="")
    address: str | None = f"{endpoint}/api/{kind}/{quote(repository)}/tree/{at}?recursive=true"
    until, left = time.monotonic() + _LIST_SECONDS, _MOST_BYTES
    found: list[ListedFile] = []
    for _ in range(_MOST_PAGES):
        assert address is not None
        with request("GET", address, headers=headers) as answer:
            _refuse(answer, key, repository, address)
            body = read_body(
                answer, within_s=round(max(0.0, until - time.monotonic())), most_bytes=left
            )
            left -= len(body)
            for entry in _entries(answer, body, address):
                if entry.get("type") == "file":
                    lfs = entry.get("lfs")
                    digest = lfs.get("oid") if isinstance(lfs, dict) else None
                    found += _file(entry.get("path"), entry.get("size"), digest, address, suffixes)
            address = _next_page(answer, endpoint, address)
        if address is None:
            return found
    raise HostError(f"{without_login(endpoint)} lists {repository} on over {_MOST_PAGES} pages")


def _next_page(answer: "httpx.Response", endpoint: str, address: str) -> str | None:
    """Return the address of a list's next page, which must be on the hub itself.

    Raises HostError for any other address, since the login's token would be sent there.
    """
    import httpx

    following = answer.links.get("next", {}).get("url")
    if following is None:
        return None
    try:
        found, hub = answer.url.join(following), httpx.URL(endpoint)
    except (httpx.InvalidURL, ValueError):
        pass
    else:
        if (found.scheme, found.raw_host, found.port) == (hub.scheme, hub.raw_host, hub.port):
            return str(found)
    raise HostError(
        f"{without_login(address)} lists its next page at another address: {following!r}",
        hint="if this is a mirror, set HF_ENDPOINT to the hub that it names",
    )


def modelscope_files(repository: str, revision: str | None, key: str) -> list[ListedFile]:
    """Ask ModelScope once for the GGUF files of a repository. Raises Unreachable as well."""
    endpoint, headers = hub_site("modelscope")
    address = (
        f"{endpoint}/api/v1/models/{quote(repository)}/repo/files"
        f"?Revision={quote(revision or 'master', safe='')}&Recursive=true"
    )
    with request("GET", address, headers=headers) as answer:
        _refuse(answer, key, repository, address)
        body = read_body(answer, within_s=_LIST_SECONDS, most_bytes=_MOST_BYTES)
        entries = _entries(answer, body, address, "Data", "Files")
    return [
        file
        for entry in entries
        if entry.get("Type") != "tree"
        for file in _file(
            entry.get("Path"), entry.get("Size"), entry.get("Sha256"), address, _MODELS
        )
    ]


def _refuse(answer: "httpx.Response", key: str, repository: str, address: str) -> None:
    if answer.status_code == HTTPStatus.NOT_FOUND and key == repository:
        raise ConfigError(
            f"there is no repository {repository} with this revision",
            hint="check the repository's name, OWNER/NAME, and the revision",
        )
    refuse(answer, f"the model {key!r}", address)


def _entries(
    answer: "httpx.Response", body: bytes, address: str, *way: str
) -> list[dict[str, Any]]:
    what = f"{without_login(address)} does not list files ({media_type(answer)})"
    try:
        found: object = read_json(body, most_bytes=_MOST_BYTES)
        for step in way:
            found = found[step]  # type: ignore[index] # what is no mapping raises
    except (ValueError, KeyError, TypeError) as error:
        raise HostError(what) from error
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise HostError(what)
    return found


def _file(
    path: object, size: object, digest: object, address: str, suffixes: tuple[str, ...]
) -> list[ListedFile]:
    """Return an entry of a list if it has one of the suffixes; other entries are not checked.

    Raises HostError for an impossible entry, so that the recipe is not blamed for it.
    """
    where = without_login(address)
    if not isinstance(path, str):
        raise HostError(f"{where} lists a file without a path")
    if not path.endswith(suffixes):
        return []
    if not path.isprintable() or any(part in ("", ".", "..") for part in path.split("/")):
        raise HostError(f"{where} lists a file whose path is unsafe: {path[:200]!a}")
    if type(size) is not int or size < 0:  # bool is a subclass of int
        raise HostError(f"{where} lists {path} without a size")
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
        digest = None
    return [ListedFile(path, size, digest)]
