"""Artifacts that nobody compiled, in the cache of a test: what a build leaves, in a moment."""

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

from labctl.build.artifact import Artifact, artifacts_dir, mark_current, publish
from labctl.build.manifest import (
    BuilderKind,
    CompilerKind,
    ElfFacts,
    Machine,
    Manifest,
    SmokeRun,
    SourceIdentity,
    ToolchainIdentity,
    ToolRecord,
)
from labctl.build.plan import source_now

_FIRST = datetime(2026, 11, 1, 12, tzinfo=UTC)


def make_artifact(
    folder: Path,
    *tools: str,
    target: str = "rk3568",
    product: str = "llama.cpp",
    version: str = "new",
    zig: str = "0.17.0",
    day: int = 0,
    source: SourceIdentity | None = None,
    options: tuple[str, ...] | None = None,
) -> Artifact:
    """Publish an artifact with ``tools`` and make it the current one; a later ``day`` is newer.

    Its source is what the build spec has now, unless another is given.
    """
    if source is None:
        now = source_now(target, product, version, None)
        assert now is not None
        source = now.identity
    records, files = {}, {}
    for name in tools:
        content = f"{name} {zig} {day}".encode()
        files[name] = folder / f"{name}-{day}"
        files[name].write_bytes(content)
        records[name] = ToolRecord(
            sha256=hashlib.sha256(content).hexdigest(),
            size_bytes=len(content),
            elf=ElfFacts(
                machine="EM_AARCH64",
                bits=64,
                type="ET_EXEC",
                interpreter=None,
                dynamic=False,
                needed=(),
                stripped=True,
            ),
            isa=None,
            sections={},
            smoke=SmokeRun(done=False, reason="made by a test"),
            infer=None,
            options=options,
            built=_FIRST + timedelta(days=day),
        )
    key = hashlib.sha256(f"{target} {product} {version} {zig} {day}".encode()).hexdigest()
    manifest = Manifest(
        product=product,
        version=version,
        target=target,
        key=key,
        source=source,
        toolchain=ToolchainIdentity(
            compiler=CompilerKind.ZIG,
            version=zig,
            on=Machine(builder=BuilderKind.LOCAL, machine="x86_64"),
        ),
        definitions={},
        flags=(),
        materials=(),
        why_builder="made by a test",
        labctl_version="0",
        tools=records,
    )
    path = artifacts_dir() / target / f"{product}-{version}-{key[:12]}"
    artifact = publish(path, manifest, files)
    mark_current(artifact)
    return artifact
