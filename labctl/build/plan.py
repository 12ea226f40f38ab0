"""From a request to all inputs of a build, and from them its key."""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labctl.build.artifact import Artifact, artifacts_dir
from labctl.build.builders import Choice, choose
from labctl.build.manifest import UNTRUSTED, BuilderKind, CompilerKind, SourceIdentity
from labctl.build.parameters import resolve
from labctl.build.progress import OnProgress, ignore
from labctl.build.script import Order
from labctl.build.source import Folder, Patched, Sdk, Source, find_patches
from labctl.build.source_archive import Archive
from labctl.build.source_git import Repository
from labctl.build.source_package import Package
from labctl.build.spec import (
    ArchiveSource,
    BuildSpec,
    Definition,
    FolderSource,
    GitSource,
    SdkSource,
    Version,
    find_spec,
)
from labctl.build.toolchain import Needs
from labctl.build.untrusted import check_untrusted, untrusted_source
from labctl.build.workspace import WorkspaceInputs
from labctl.config.target import Target, load_target
from labctl.errors import ConfigError
from labctl.folders import cache_dir
from labctl.suggestions import listed, unknown

#: Part of every key: increase it when the same inputs give a different build.
SCHEMA = 2
KEY_DIGITS = 12
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class BuildRequest:
    """A request for a build.

    Args:
        tools: names of tools; ``None``: all tools of the version.
        version: label of a version in the build spec; ``None``: its default.
        source: another source for that version: a folder, or a git repository and ref.
        builder: machine for the compilers; ``None``: the first that meets all needs.
        host: name of the build host in devices.yaml, for the builder ssh.
        compiler: compiler to use; ``None``: the builder's first choice.
        parameters: values of the build spec's parameters, by name.
        jobs: number of parallel compilers; ``None``: from cores and memory.
        lab_root: the lab whose own toolchains come first.
        untrusted: True for an untrusted ``source``: it is built in a container without network, and
            its programs are never started on this host.
    """

    target: str
    product: str = "llama.cpp"
    tools: tuple[str, ...] | None = None
    version: str | None = None
    source: Path | GitSource | None = None
    builder: BuilderKind | None = None
    host: str | None = None
    compiler: CompilerKind | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    jobs: int | None = None
    lab_root: Path | None = None
    untrusted: bool = False


@dataclass(frozen=True)
class Plan:
    """All inputs of a build."""

    order: Order
    label: str
    tools: tuple[str, ...]
    source: Source
    choice: Choice
    key: str
    infer: Mapping[str, tuple[str, ...]]
    """Commands that run a tiny model, if the version has its own."""
    untrusted: bool = False
    """True if its source is untrusted."""

    @property
    def target(self) -> Target:
        """The target of the build."""
        return self.order.target

    @property
    def spec(self) -> BuildSpec:
        """The spec of the product."""
        return self.order.spec

    @property
    def from_kit(self) -> bool:
        """True if it uses an SDK, which labctl cannot identify: it is rebuilt every time."""
        return bool(self.spec.paths)

    def infer_words(self, tool: str) -> tuple[str, ...] | None:
        """Return the arguments with which a tool runs a tiny model; ``None`` if it runs none."""
        return self.infer.get(tool, self.spec.tools[tool].infer)

    @property
    def name(self) -> str:
        """Folder name of the build."""
        return f"{self.spec.product}-{self.label}-{self.key[:KEY_DIGITS]}"

    @property
    def artifact(self) -> Path:
        """Folder of the artifact."""
        return artifacts_dir() / self.target.name / self.name

    @property
    def inputs(self) -> WorkspaceInputs:
        """Inputs for the workspace. Its folders are kept, so that another tool builds quickly."""
        return WorkspaceInputs(
            name=f"{self.target.name}/{self.name}",
            source=self.source.home,
            source_digest=self.source.identity.digest,
            home=cache_dir() / "build" / self.target.name / self.name,
            verify_source=self.source.verify_unchanged,
            sdks=tuple(self.order.values[name] for name in self.spec.paths),
        )


def make_plan(request: BuildRequest, on_progress: OnProgress = ignore) -> Plan:
    """Determine all inputs of a build, and the key from them. Raises ConfigError, ToolMissing."""
    target = load_target(request.target, request.lab_root)
    spec, path = find_spec(target.name, request.product, request.lab_root)
    label, version = spec.version(request.version)
    if version.elf_machine is not None:
        target = target.for_machine(version.elf_machine)
    tools = _wanted_tools(spec, version, request.tools)
    needs = Needs(
        cmake=spec.builder == "cmake",
        compiler=spec.builder != "steps",
        zig=spec.zig_target is not None,
        asked=request.compiler,
    )
    if request.untrusted:
        check_untrusted(request, spec)
    choice = choose(
        request.builder,
        target,
        needs,
        request.host,
        request.lab_root,
        on_progress=on_progress,
        untrusted=request.untrusted,
    )
    values = resolve(spec, request.parameters, choice.builder.kind)
    if request.source is None:
        source = _source(version, path, values)
        source = _patched(source, target.name, spec.product, label, request.lab_root)
    else:
        source, label = _own_source(request.source, spec, untrusted=request.untrusted)
    order = Order(
        target=target,
        spec=spec,
        definitions=_definitions(target, spec, version, source.identity.revision),
        toolchain=choice.toolchain,
        jobs=request.jobs or choice.toolchain.jobs or default_jobs(),
        values={**values, "version": label, "revision": source.identity.revision},
        kit=version.source.kit if isinstance(version.source, SdkSource) else None,
    )
    key = _key(order, source, untrusted=request.untrusted)
    return Plan(order, label, tools, source, choice, key, version.infer, request.untrusted)


def source_now(target: str, product: str, label: str, lab_root: Path | None) -> Source | None:
    """Return the present source of a build spec's version, with its patches.

    None for another label (e.g. of a user's own source), and if only a build can identify the
    source: the tree of an SDK, the head of a branch. Raises ConfigError.
    """
    spec, path = find_spec(target, product, lab_root)
    version = spec.versions.get(label)
    if version is None or isinstance(version.source, SdkSource):
        return None
    if isinstance(version.source, GitSource) and not _COMMIT.fullmatch(version.source.ref):
        return None
    return _patched(_source(version, path, {}), target, product, label, lab_root)


def _patched(
    source: Source, target: str, product: str, label: str, lab_root: Path | None
) -> Source:
    patches = find_patches(target, product, label, lab_root)
    return Patched(source, patches) if patches else source


def other_source(artifact: Artifact, lab_root: Path | None) -> str | None:
    """Describe the difference if an artifact's source is not :func:`source_now`; else None."""
    built = artifact.manifest
    now = source_now(built.target, built.product, built.version, lab_root)
    if now is None or built.source.digest == now.identity.digest:
        return None
    before, after = _described(built.source), _described(now.identity)
    return f"from {before}, and the build spec has {after if after != before else 'changed'} now"


def _described(source: SourceIdentity) -> str:
    names = [Path(patch.name).name for patch in source.patches]
    return f"{source.revision}{f' with {listed(names)}' if names else ''}"


def _definitions(
    target: Target, spec: BuildSpec, version: Version, revision: str
) -> dict[str, Definition]:
    if spec.builder != "cmake":
        return {}
    given = {**target.cmake, **spec.definitions, **version.definitions}
    return {
        name: value.replace("{revision}", revision) if isinstance(value, str) else value
        for name, value in given.items()
    }


def _key(order: Order, source: Source, *, untrusted: bool) -> str:
    """SHA-256 of everything that determines the bytes and their location."""
    spec, target = order.spec, order.target
    inputs: dict[str, object] = {
        "schema": SCHEMA,
        "product": spec.product,
        "builder": spec.builder,
        "target": [target.name, target.elf_machine, target.elf_bits],
        "source": source.identity.digest,
        "definitions": order.definitions,
        "flags": order.flags,
        "toolchain": order.toolchain.identity.digested,
        "compile": {name: [t.sources, t.flags] for name, t in spec.tools.items() if t.sources},
    }
    if spec.builder == "steps":
        steps = [step.model_dump(mode="json") for step in spec.steps]
        outputs = {name: tool.output for name, tool in spec.tools.items()}
        inputs["steps"] = [steps, outputs, order.values]
    if untrusted:
        inputs["untrusted"] = True
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def default_jobs() -> int:
    """Return the number of parallel compilers: one per core, at most one per GB of free memory."""
    cores = len(os.sched_getaffinity(0))
    fields = dict(
        line.split(":", 1)
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    )
    available_kib = int(fields["MemAvailable"].split()[0])
    return max(1, min(cores, available_kib >> 20))


def _wanted_tools(
    spec: BuildSpec, version: Version, asked: Sequence[str] | None
) -> tuple[str, ...]:
    known = spec.tools_of(version)
    for name in asked or ():
        if name not in known:
            raise ConfigError(unknown("tool", name, known, where=f" of {spec.product}"))
    if asked:
        return tuple(dict.fromkeys(asked))
    return tuple(name for name in known if spec.tools[name].by_default)


def _source(version: Version, spec_path: Path, values: Mapping[str, str]) -> Source:
    match version.source:
        case SdkSource(kit=name):
            return Sdk(values[name])
        case ArchiveSource() as pinned:
            return Archive(pinned)
        case FolderSource(folder=folder):
            return Folder(spec_path.parent / folder)
        case GitSource(git=git, ref=ref):
            return Repository(git, ref)
        case pinned:
            return Package(pinned)


def _own_source(given: Path | GitSource, spec: BuildSpec, *, untrusted: bool) -> tuple[Source, str]:
    """Return the user's own source, and the label of the artifact made from it."""
    if untrusted:
        one = untrusted_source(given)
        return one, f"{UNTRUSTED}{one.identity.digest[:KEY_DIGITS]}"
    if isinstance(given, Path):
        return Folder(given), _label("folder", spec)
    is_commit = _COMMIT.fullmatch(given.ref)
    return Repository(given.git, given.ref), _label(given.ref[: 10 if is_commit else None], spec)


def _label(text: str, spec: BuildSpec) -> str:
    """Make a name from ``text`` that differs from the spec's own versions."""
    label = re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_")[:40] or "git"
    taken = label in spec.versions or label.startswith(UNTRUSTED)
    return f"own-{label}" if taken else label
