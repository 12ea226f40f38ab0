"""The kept artifacts: naming one, comparing several, removing old ones."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from labctl.build.artifact import Artifact, artifacts_dir, list_artifacts, read_artifact
from labctl.checked import listed, unknown
from labctl.errors import ConfigError, HostTimeout
from labctl.files import cache_dir, host_writes, locked, remove_tree

KEY_DIGITS = 12
_LEAST_DIGITS = 4
#: What differs between any two builds and says nothing about the tools.
_INCIDENTAL = ("key", "labctl_version", "why_builder", "materials")

Flat = dict[str, object]


def resolve_artifact(name: str) -> Artifact:
    """Return the artifact that a name means.

    A name is ``TARGET/PRODUCT-VERSION`` (the one built last), ``TARGET/FOLDER``, or the first
    digits of the key. Raises ConfigError for none and for several.
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
    """Return the folders of the artifacts built last, one for each version."""
    return {link.resolve() for link in artifacts_dir().glob("*/*") if link.is_symlink()}


def list_document(artifacts: Iterable[Artifact]) -> list[dict[str, object]]:
    """Return artifacts as JSON; ``current`` are those built last, one for each version."""
    current = current_paths()
    return [{"current": one.path.resolve() in current, **one.document()} for one in artifacts]


def size_bytes(artifact: Artifact) -> int:
    """All tools of an artifact."""
    return sum(tool.size_bytes for tool in artifact.manifest.tools.values())


@dataclass(frozen=True)
class Difference:
    """A field whose values differ; ``None`` stands for a field that is not there."""

    field: str
    values: tuple[object, ...]


def differences(artifacts: Sequence[Artifact]) -> list[Difference]:
    """Return the fields that differ between the manifests, sections left out."""
    flat = [_flat(artifact) for artifact in artifacts]
    fields = dict.fromkeys(field for one in flat for field in one)
    found = (Difference(field, tuple(one.get(field) for one in flat)) for field in fields)
    return [one for one in found if len({repr(value) for value in one.values}) > 1]


def section_sizes(artifacts: Sequence[Artifact]) -> dict[str, list[Difference]]:
    """For each tool that at least two have, the sizes in bytes of its sections and of its file."""
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
    """Return both differences as JSON."""
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


def prune(older_than: timedelta, *, dry_run: bool) -> list[Artifact]:
    """Remove artifacts that are older and not the last of their version, with their build trees.

    What somebody builds just now stays. Returns what was, or would be, removed. Raises HostError.
    """
    current = current_paths()
    limit = datetime.now(UTC) - older_than
    old = [a for a in list_artifacts() if a.built < limit and a.path.resolve() not in current]
    return [artifact for artifact in old if dry_run or _remove(artifact)]


def _remove(artifact: Artifact) -> bool:
    key = artifact.manifest.key[:KEY_DIGITS]
    tree = cache_dir() / "build" / artifact.manifest.target / artifact.path.name
    try:
        with locked(cache_dir() / "locks" / f"build-{key}.lock", timeout=0), host_writes(tree):
            # Without its manifest it does not exist: nobody sees it half removed.
            (artifact.path / "manifest.json").unlink()
            shutil.rmtree(artifact.path)
            remove_tree(tree)
    except HostTimeout:
        return False
    return True
