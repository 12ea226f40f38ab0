"""The kept artifacts: find one by name, compare several, remove old ones."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from labctl.build.artifact import (
    MANIFEST,
    Artifact,
    artifacts_dir,
    list_artifacts,
    read_artifact,
)
from labctl.build.manifest import LOG, UNTRUSTED
from labctl.errors import ConfigError, HostTimeout
from labctl.files import host_writes
from labctl.folders import cache_dir
from labctl.locks import is_locked, locked
from labctl.removal import remove_tree, status_if_there
from labctl.suggestions import listed, unknown

KEY_DIGITS = 12
_LEAST_DIGITS = 4
#: Fields that differ between any two builds and say nothing about the tools.
_INCIDENTAL = ("key", "labctl_version", "why_builder", "materials")

Flat = dict[str, object]


def resolve_artifact(name: str) -> Artifact:
    """Return the artifact with this name.

    A name is ``TARGET/PRODUCT-VERSION`` (the newest), ``TARGET/FOLDER``, or the first digits of the
    key. Raises ConfigError unless exactly one artifact matches.
    """
    known = list_artifacts()
    if "/" in name:
        found = read_artifact((artifacts_dir() / name).resolve())
        if found is not None and found.path.parent.parent == artifacts_dir().resolve():
            return found
        labels = [_label(artifact) for artifact in known]
        raise ConfigError(unknown("artifact", name, labels), hint="labctl artifacts list")
    matching = [a for a in known if len(name) >= _LEAST_DIGITS and a.manifest.key.startswith(name)]
    if len(matching) > 1:
        raise ConfigError(f"'{name}' begins the keys of {listed([_label(a) for a in matching])}")
    if not matching:
        raise ConfigError(
            f"no artifact has a key that begins with '{name}'", hint="labctl artifacts list"
        )
    return matching[0]


def _label(artifact: Artifact) -> str:
    return f"{artifact.manifest.target}/{artifact.path.name}"


def current_paths() -> set[Path]:
    """Return the folders of the newest artifacts, one for each version."""
    return {link.resolve() for link in artifacts_dir().glob("*/*") if link.is_symlink()}


def list_document(artifacts: Iterable[Artifact]) -> list[dict[str, object]]:
    """Return artifacts as JSON; ``current``: the newest of each version."""
    current = current_paths()
    return [{"current": one.path.resolve() in current, **one.document()} for one in artifacts]


def size_bytes(artifact: Artifact) -> int:
    """Size of all tools of an artifact."""
    return sum(tool.size_bytes for tool in artifact.manifest.tools.values())


@dataclass(frozen=True)
class Difference:
    """A field whose values differ; ``None`` for a missing field."""

    field: str
    values: tuple[object, ...]


def differences(artifacts: Sequence[Artifact]) -> list[Difference]:
    """Return the fields that differ between the manifests, without the sections."""
    flat = [_flat(artifact) for artifact in artifacts]
    fields = dict.fromkeys(field for one in flat for field in one)
    found = (Difference(field, tuple(one.get(field) for one in flat)) for field in fields)
    return [one for one in found if len({repr(value) for value in one.values}) > 1]


def section_sizes(artifacts: Sequence[Artifact]) -> dict[str, list[Difference]]:
    """For each tool that at least two artifacts have: sizes in bytes of its sections and file."""
    tables: dict[str, list[Difference]] = {}
    for tool in dict.fromkeys(name for a in artifacts for name in a.manifest.tools):
        records = [artifact.manifest.tools.get(tool) for artifact in artifacts]
        if sum(record is not None for record in records) < 2:
            continue
        sections = dict.fromkeys(s for record in records if record for s in record.sections)
        rows = [
            Difference(
                section, tuple(record and record.sections.get(section) for record in records)
            )
            for section in sections
        ]
        total = tuple(record and record.size_bytes for record in records)
        tables[tool] = [*rows, Difference("whole file", total)]
    return tables


def difference_document(artifacts: Sequence[Artifact]) -> dict[str, object]:
    """Return the differing fields and the section sizes as JSON."""
    tables = section_sizes(artifacts)
    return {
        "artifacts": [str(artifact.path) for artifact in artifacts],
        "fields": {one.field: one.values for one in differences(artifacts)},
        "sections": {
            tool: {row.field: row.values for row in rows} for tool, rows in tables.items()
        },
    }


def _flat(artifact: Artifact) -> Flat:
    manifest = artifact.manifest.model_dump(mode="json", exclude=set(_INCIDENTAL))
    for tool in manifest["tools"].values():
        del tool["sections"], tool["built"], tool["rules"]
        for use in (tool["isa"] or {}).pop("dispatched", ()):
            guarded = tool["isa"].setdefault("guarded", {})
            for extension in use["extensions"]:
                guarded[extension] = guarded.get(extension, 0) + len(use["functions"])
    return dict(_leaves(manifest, ""))


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield from _leaves(member, f"{path}.{name}" if path else str(name))
    else:
        yield path, value


@dataclass(frozen=True)
class Pruned:
    """Removed artifacts and folders; with a dry run, those that would be removed."""

    artifacts: list[Artifact]
    others: list[str]
    """Folders of builds without an artifact, sources without an artifact, and containers."""


def prune(older_than: timedelta, *, dry_run: bool) -> Pruned:
    """Remove old artifacts, except the newest of each version, with their build trees.

    Also removes the newest artifact of an untrusted source (each has its own version), and what
    killed or failed builds left behind. Keeps builds that are running now. Raises HostError.
    """
    current = current_paths()
    limit = datetime.now(UTC) - older_than
    old = [
        a
        for a in list_artifacts()
        if a.built < limit and (a.manifest.untrusted or a.path.resolve() not in current)
    ]
    removed = [artifact for artifact in old if dry_run or _remove(artifact)]
    others = [str(home) for home in _left_by_builds(limit) if dry_run or _remove_home(home)]
    kept = {a.manifest.source.digest for a in list_artifacts() if a not in removed}
    others += [str(source) for source in _sources(limit, kept) if dry_run or _remove_source(source)]
    if (cache_dir() / "containers").is_dir():
        from labctl.build.container.abandoned import remove_abandoned

        others += remove_abandoned(lambda home: is_locked(_lock(home.name)), dry_run=dry_run)
    return Pruned(removed, others)


def _remove(artifact: Artifact) -> bool:
    path, manifest = artifact.path, artifact.manifest
    tree = cache_dir() / "build" / manifest.target / path.name
    link = path.with_name(f"{manifest.product}-{manifest.version}")
    try:
        with locked(_lock(path.name), timeout=0), host_writes(tree):
            if not (path / MANIFEST).exists():  # another labctl was faster
                return False
            # Removing the manifest first makes it disappear at once: nobody sees half of it.
            (path / MANIFEST).unlink()
            if link.is_symlink() and not (link / MANIFEST).exists():
                link.unlink()
            remove_tree(path)
            remove_tree(tree)
    except HostTimeout:
        return False
    return True


def clear_home(home: Path) -> None:
    """Remove everything that an untrusted build left, except the log. The caller holds its lock."""
    for entry in _entries(home):
        if entry.name != LOG:
            remove_tree(entry)


def clear_killed_builds() -> None:
    """Remove the trees of killed untrusted builds. Builds that are running now stay."""
    for home in _homes():
        if _is_untrusted(home) and _is_filled(home):
            with suppress(HostTimeout), locked(_lock(home.name), timeout=0):
                clear_home(home)


def _homes() -> list[Path]:
    """Return the folders of all builds, also of builds without an artifact."""
    found = sorted((cache_dir() / "build").glob("*/*"))
    return [home for home in found if home.is_dir() and not home.is_symlink()]


def _is_untrusted(home: Path) -> bool:
    return re.search(rf"-{UNTRUSTED}[0-9a-f]+-[0-9a-f]+$", home.name) is not None


def _is_filled(home: Path) -> bool:
    return any(entry.name != LOG for entry in _entries(home))


def _entries(home: Path) -> list[Path]:
    with suppress(FileNotFoundError):  # removed meanwhile
        return list(home.iterdir())
    return []


def _left_by_builds(limit: datetime) -> Iterator[Path]:
    for home in _homes():
        if is_locked(_lock(home.name)):
            continue
        found = map(status_if_there, (home, *_entries(home)))
        changed = max((one.st_mtime for one in found if one is not None), default=None)
        if changed is None:
            continue
        made = (artifacts_dir() / home.parent.name / home.name / MANIFEST).exists()
        if (not made and changed < limit.timestamp()) or (_is_untrusted(home) and _is_filled(home)):
            yield home


def _remove_home(home: Path) -> bool:
    try:
        with locked(_lock(home.name), timeout=0):
            remove_tree(home)
    except HostTimeout:
        return False
    return True


def _sources(limit: datetime, kept: Container[str]) -> list[Path]:
    """Return old cached sources that no artifact uses; none during any build."""
    if _is_anything_built():
        return []
    return [
        source
        for source in sorted((cache_dir() / "sources").glob("*"))
        # The change time is set by the final rename; an unpacked folder's other times are older.
        if source.is_dir() and (status := status_if_there(source)) is not None
        if status.st_ctime < limit.timestamp()
        if source.name.removeprefix(".fetch-") not in kept or source.name.startswith(".fetch-")
    ]


def _is_anything_built() -> bool:
    return any(is_locked(lock) for lock in (cache_dir() / "locks").glob("build-*.lock"))


def _remove_source(source: Path) -> bool:
    digest = source.name.removeprefix(".fetch-")
    aside = source.with_name(f".fetch-{digest}")
    try:
        with locked(source.with_name(f"{digest}.lock"), timeout=0), host_writes(source):
            # Removing the others may have taken minutes. A build that starts now waits for this
            # lock.
            if _is_anything_built() or not source.is_dir():
                return False
            if source != aside:
                remove_tree(aside)
                source.rename(aside)
            remove_tree(aside)
    except HostTimeout:
        return False
    return True


def _lock(name: str) -> Path:
    """Return the lock of a build from its folder name, which ends with the digits of the key."""
    return cache_dir() / "locks" / f"build-{name[-KEY_DIGITS:]}.lock"
