"""Describe the programs that ran: manifests, bills of materials, specs, patches."""

import json
from collections.abc import Iterator
from pathlib import Path

from labctl.build import Artifact, other_source
from labctl.build.artifact import list_artifacts
from labctl.build.source import find_patches
from labctl.build.spec import find_spec
from labctl.errors import ConfigError
from labctl.records import ArtifactIdentity


def build_entries(
    identity: ArtifactIdentity, lab_root: Path, missing: list[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield the files of one build, below ``build/``; add unavailable ones to ``missing``.

    The spec and the patches are the present ones: they are included only if a build would still use
    the same source.
    """
    artifact = next((a for a in list_artifacts() if a.manifest.key == identity.key), None)
    what = f"{identity.product} {identity.version} for {identity.target}"
    if artifact is None:
        missing.append(f"the manifest of {what} is no longer on the host that made the bundle")
        return
    below = f"build/{identity.product}"
    manifest = artifact.manifest
    yield f"{below}/manifest.json", manifest.model_dump_json(indent=2).encode()
    materials = [one.model_dump(mode="json") for one in manifest.materials]
    yield f"{below}/bill-of-materials.json", json.dumps({"materials": materials}).encode()
    try:
        if changed := other_source(artifact, lab_root):
            missing.append(f"{what} was built {changed}: its build spec is left out")
            return
        yield from _spec(below, artifact, lab_root)
    except ConfigError as error:
        missing.append(f"the build spec of {what} is left out: {error.message}")


def _spec(below: str, artifact: Artifact, lab_root: Path) -> Iterator[tuple[str, bytes]]:
    manifest = artifact.manifest
    _, path = find_spec(manifest.target, manifest.product, lab_root)
    yield f"{below}/spec.yaml", path.read_bytes()
    known = {patch.sha256 for patch in manifest.source.patches}
    for patch in find_patches(manifest.target, manifest.product, manifest.version, lab_root):
        if patch.sha256 in known:
            yield f"{below}/patches/{patch.sha256[:12]}-{patch.path.name}", patch.path.read_bytes()
