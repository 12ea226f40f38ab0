"""Collect the names of people, machines and places that a run's files can contain."""

import os
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from labctl.bundle.redact import Secret
from labctl.config.lab import FILE_NAME
from labctl.config.yaml.document import Document
from labctl.folders import cache_dir, state_dir, user_home
from labctl.records.run import RunRecord
from labctl.runs.record.journal import Journal
from labctl.user import user_name

#: Names of users that many hosts have: they identify nobody.
_COMMON_USERS = frozenset(
    {"root", "user", "ubuntu", "debian", "runner", "admin", "nobody", "labctl"}
)
#: Folders of homes. Homes elsewhere, for example in a container, are not named after a person.
_HOMES = frozenset({"home", "homes", "Users"})
#: Keys of devices.yaml whose values name a machine; below: keys whose values name a person.
_ADDRESSES = frozenset({"address", "server", "key", "host", "proxy_jump", "device"})
_USERS = frozenset({"user"})
#: Keys of a recipe whose values are paths on this host.
_HOST_FILES = frozenset({"file", "files", "imatrix", "prompt_file"})
#: Folders that every host has.
_COMMON_FOLDERS = frozenset({"/", "/tmp", "/usr", "/var", "/opt", "/home", "/data", "/mnt", "/srv"})  # noqa: S108
_LOOPBACK = ("127.", "localhost", "[::1]")


def secrets_of(run: RunRecord, directory: Path, lab_root: Path | None) -> list[Secret]:
    """Return the texts to leave out of a run's files, from the run, its lab and this host.

    Raises ConfigError for a devices.yaml that cannot be read.
    """
    leases = Journal(directory, run.id).leases
    hosts = [str(entry.lease["host"]) for entry in leases if entry.lease and "host" in entry.lease]
    found = [Secret("host", name) for name in _names_of_host(run.host, platform.node(), *hosts)]
    found += _person(user_name(), user_home())
    for entry in leases:  # the lab may have moved since, and another user may have measured
        if entry.user is not None:
            found += _person(entry.user, Path(entry.home) if entry.home else None)
        if entry.lab is not None:
            found += _folder("lab", Path(entry.lab))
    if run.facts.serial:
        found.append(Secret("serial", run.facts.serial))
    for folder in (directory.parent.parent, lab_root):
        found += _folder("lab", folder) if folder is not None else ()
    for folder in (cache_dir(), state_dir(), Path(os.environ.get("TMPDIR") or "/tmp")):  # noqa: S108
        found += _folder("path", folder)
    found += _absolute_paths(run.recipe_resolved)
    if lab_root is not None:
        found += _lab_secrets(lab_root)
    return found


def vocabulary_of(run: RunRecord) -> frozenset[str]:
    """Return the experiment's own words, which stay even if a host or user has the same name."""
    texts = [run.recipe, run.board, run.target, *run.variants]
    texts += [artifact.product for artifact in run.artifacts]
    texts += [text for text in _own_texts(run.recipe_resolved) if not text.startswith("/")]
    texts += list(_keys(run.recipe_resolved))
    return frozenset(word for text in texts for word in re.split(r"[^A-Za-z0-9_.-]+", text) if word)


def _own_texts(value: Any, key: str = "") -> Iterator[str]:
    """Yield the texts of a recipe that belong to the experiment; for files only their names."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name in _HOST_FILES and key != "hub":
                names = [PurePosixPath(path).name for _, path in _texts(inner)]
                yield from (name for name in names if "." in name)
            elif name != "description":
                yield from _own_texts(inner, str(name))
    else:
        yield from (text for _, text in _texts(value))


def _names_of_host(*names: str) -> Iterator[str]:
    for name in names:
        if name and name != "localhost":
            yield name
            yield name.partition(".")[0]


def _person(user: str, home: Path | None) -> Iterator[Secret]:
    if home is not None:
        yield from _folder("home", home)
    names = {user}
    if home is not None and not _HOMES.isdisjoint(home.parts[:-1]):
        names.add(home.name)
    for name in names - _COMMON_USERS:
        if name and not name.isdigit():
            yield Secret("user", name)


def _folder(kind: str, folder: Path) -> Iterator[Secret]:
    """Yield a folder as given, and its real path."""
    for path in dict.fromkeys((str(folder.absolute()), os.path.realpath(folder))):
        if path not in _COMMON_FOLDERS:
            yield Secret(kind, path)


def _absolute_paths(recipe: Mapping[str, Any]) -> Iterator[Secret]:
    """Yield the folders of the files that a recipe names by absolute paths."""
    for key, text in _texts(recipe):
        if key not in ("prompt", "board") and text.startswith("/") and "\n" not in text:
            yield from _folder("path", Path(text).parent)


def _lab_secrets(lab_root: Path) -> Iterator[Secret]:
    """Yield addresses, users, serial numbers and paths of a devices.yaml, even an invalid one.

    Raises ConfigError if it is not YAML: the texts to leave out would be unknown.
    """
    path = lab_root / FILE_NAME
    if not path.exists():
        return
    for key, text in _texts(Document.read(path).value):
        if text.startswith("/") and key not in ("workdir", "device"):
            yield from _folder("path", Path(text).parent)
        elif key in _USERS and text not in _COMMON_USERS:
            yield Secret("user", text)
        elif key == "lab":
            yield Secret("lab", text)
        elif key in _ADDRESSES and not text.rpartition("://")[2].startswith(_LOOPBACK):
            yield Secret("address", text)
            yield from (Secret("address", host) for host in _hosts(text))


def _hosts(address: str) -> Iterator[str]:
    """Yield the host of ``user@host:port`` or of a web address."""
    host = address.rpartition("@")[2]
    host = host.partition("://")[2].partition("/")[0] if "://" in host else host
    host = re.sub(r":\d{1,5}$", "", host).strip("[]")
    if host and host != address:
        yield host


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text of a document with its key."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, key)
    elif isinstance(value, str):
        yield key, value


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name)
            yield from _keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _keys(inner)
