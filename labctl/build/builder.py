"""``build``: from a request to an artifact that is proven, and shared by all who ask for it."""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from pathlib import Path

from labctl.build.artifact import (
    Artifact,
    Manifest,
    ToolRecord,
    artifacts_dir,
    mark_current,
    publish,
    read_artifact,
)
from labctl.build.builders import Choice, choose
from labctl.build.elf import prove, read_elf
from labctl.build.job import Job, Made, missing_sources
from labctl.build.place import Site
from labctl.build.progress import OnProgress, Progress, Step, ignore
from labctl.build.script import Order
from labctl.build.smoke import smoke_run
from labctl.build.source import Folder, Source
from labctl.build.source_git import Repository
from labctl.build.source_package import Package
from labctl.build.spec import BuildSpec, FolderSource, GitSource, Version, find_spec
from labctl.build.toolchain import BuilderKind, CompilerKind, Needs
from labctl.config.names import unknown
from labctl.config.target import Target, load_target
from labctl.errors import ConfigError, HostTimeout
from labctl.files import cache_dir, locked, sha256_file

#: Part of every key: raised when the same inputs are built into something else.
SCHEMA = 2
KEY_DIGITS = 12
#: A wait for another labctl that builds the same.
LOCK_SECONDS = 5 * 3600.0


@dataclass(frozen=True)
class BuildRequest:
    """What somebody wants built.

    Args:
        tools: names of tools; all that the version has when ``None``.
        version: label of a version in the build spec; its default when ``None``.
        source: another source for that version: a folder, or a git repository and ref.
        builder: where compilers run; the first machine that can when ``None``.
        host: the build host's name in devices.yaml, for the builder ssh.
        compiler: which compilers are called; the builder's first choice when ``None``.
        jobs: compilers at once; from cores and memory when ``None``.
        lab_root: the lab whose own toolchains come first.
    """

    target: str
    product: str = "llama.cpp"
    tools: tuple[str, ...] | None = None
    version: str | None = None
    source: Path | GitSource | None = None
    builder: BuilderKind | None = None
    host: str | None = None
    compiler: CompilerKind | None = None
    jobs: int | None = None
    lab_root: Path | None = None


@dataclass(frozen=True)
class Plan:
    """All inputs of a build."""

    order: Order
    label: str
    tools: tuple[str, ...]
    source: Source
    choice: Choice
    key: str

    @property
    def target(self) -> Target:
        """What it is built for."""
        return self.order.target

    @property
    def spec(self) -> BuildSpec:
        """What is built."""
        return self.order.spec

    @property
    def name(self) -> str:
        """The build's name as a folder."""
        return f"{self.spec.product}-{self.label}-{self.key[:KEY_DIGITS]}"

    @property
    def artifact(self) -> Path:
        """Where its artifact goes."""
        return artifacts_dir() / self.target.name / self.name

    @property
    def site(self) -> Site:
        """Its folders; they stay, so that a further tool costs little."""
        return Site(
            name=f"{self.target.name}/{self.name}",
            source=self.source.home,
            source_digest=self.source.identity.digest,
            home=cache_dir() / "build" / self.target.name / self.name,
        )


def build(request: BuildRequest, *, on_progress: OnProgress = ignore) -> Artifact:
    """Build what is asked for, or find that it is built already.

    Raises ConfigError for names that are not known and for products that cannot be, CompileError
    when the source does not compile, ToolMissing, HostError (no network, disk full), HostTimeout,
    IntegrityError (a source that is not the pinned one), ProgramFailed (a tool does not start).
    """
    plan = make_plan(request)
    artifact = read_artifact(plan.artifact)
    if artifact is None or not artifact.has(plan.tools):
        with ExitStack() as stack:
            lock = _lock(plan, stack, on_progress)
            artifact = _build_missing(plan, lock, on_progress)
    mark_current(artifact)
    return artifact


def make_plan(request: BuildRequest) -> Plan:
    """Work out all inputs of a build, and from them its key. Raises ConfigError, ToolMissing."""
    target = load_target(request.target, request.lab_root)
    spec, path = find_spec(target.name, request.product, request.lab_root)
    label, version = spec.version(request.version)
    tools = _wanted_tools(spec, version, request.tools)
    if request.source is None:
        source = _source(version, path)
    else:
        source, label = _own_source(request.source, spec)
    given = {**target.cmake, **spec.definitions, **version.definitions}
    definitions = {
        name: value.replace("{revision}", source.identity.revision)
        if isinstance(value, str)
        else value
        for name, value in (given if spec.builder == "cmake" else {}).items()
    }
    needs = Needs(
        cmake=spec.builder == "cmake", zig=spec.zig_target is not None, asked=request.compiler
    )
    choice = choose(request.builder, target, needs, request.host, request.lab_root)
    jobs = request.jobs or choice.toolchain.jobs or default_jobs()
    order = Order(target, spec, definitions, choice.toolchain, jobs)
    inputs = {
        "schema": SCHEMA,
        "product": spec.product,
        "builder": spec.builder,
        "target": [target.name, target.elf_machine, target.elf_bits],
        "source": source.identity.digest,
        "definitions": definitions,
        "flags": order.flags,
        "toolchain": choice.toolchain.identity.digested,
        "compile": {name: [t.sources, t.flags] for name, t in spec.tools.items() if t.sources},
    }
    text = json.dumps(inputs, sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()
    return Plan(order, label, tools, source, choice, key)


def default_jobs() -> int:
    """Compilers to run at once: one a core, but no more than one for each GB of free memory."""
    cores = len(os.sched_getaffinity(0))
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    available_kib = int(fields["MemAvailable"].split()[0])
    return max(1, min(cores, available_kib >> 20))


def _wanted_tools(
    spec: BuildSpec, version: Version, asked: Sequence[str] | None
) -> tuple[str, ...]:
    known = spec.tools_of(version)
    for name in asked or ():
        if name not in known:
            raise ConfigError(unknown(f"tool of {spec.product}", name, known))
    return tuple(dict.fromkeys(asked)) if asked else known


def _source(version: Version, spec_path: Path) -> Source:
    match version.source:
        case FolderSource(folder=folder):
            return Folder(spec_path.parent / folder)
        case GitSource(git=git, ref=ref):
            return Repository(git, ref)
        case pinned:
            return Package(pinned)


def _own_source(given: Path | GitSource, spec: BuildSpec) -> tuple[Source, str]:
    """The user's own source, and the label of the artifact that is made from it."""
    if isinstance(given, Path):
        return Folder(given), _label("folder", spec)
    is_commit = re.fullmatch(r"[0-9a-f]{40}", given.ref)
    return Repository(given.git, given.ref), _label(given.ref[: 10 if is_commit else None], spec)


def _label(text: str, spec: BuildSpec) -> str:
    """A name made of ``text`` that is not one of the spec's own versions."""
    label = re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_")[:40] or "git"
    return f"own-{label}" if label in spec.versions else label


def _lock(plan: Plan, stack: ExitStack, on_progress: OnProgress) -> int:
    path = cache_dir() / "locks" / f"build-{plan.key[:KEY_DIGITS]}.lock"
    holder = f"another build of {plan.spec.product}"
    try:
        return stack.enter_context(locked(path, timeout=0, holder=holder))
    except HostTimeout as busy:
        on_progress(Progress(Step.WAIT, f"{busy.message.partition(' holds ')[0]} is at it"))
    return stack.enter_context(locked(path, timeout=LOCK_SECONDS, holder=holder))


def _build_missing(plan: Plan, lock: int, on_progress: OnProgress) -> Artifact:
    """Build the tools that the artifact does not have; the lock is held."""
    artifact = read_artifact(plan.artifact)
    missing = [name for name in plan.tools if artifact is None or not artifact.has([name])]
    if artifact is not None and not missing:
        return artifact  # somebody else has built them while we waited
    source = plan.source.fetch(on_progress)
    _check_sources(plan, source, missing)
    site = plan.site
    with plan.choice.builder.open(site, lock=lock, on_progress=on_progress) as place:
        made = Job(plan.order, place, site.home, on_progress).run(missing)
    plan.source.verify_unchanged()
    records = {name: _examine(plan, name, file, on_progress) for name, file in made.items()}
    known = {} if artifact is None else artifact.manifest.tools
    manifest = Manifest(
        product=plan.spec.product,
        version=plan.label,
        target=plan.target.name,
        key=plan.key,
        source=plan.source.identity,
        toolchain=plan.order.toolchain.identity,
        definitions=dict(plan.order.definitions),
        flags=plan.order.flags,
        labctl_version=installed_version("labctl"),
        tools={**known, **records},
    )
    return publish(plan.artifact, manifest, {name: file.file for name, file in made.items()})


def _check_sources(plan: Plan, source: Path, tools: Sequence[str]) -> None:
    files = [file for name in tools for file in plan.spec.tools[name].sources]
    missing = missing_sources(source, files)
    if missing:
        raise ConfigError(f"{plan.order.what}: no source file {source / missing[0]}")


def _examine(plan: Plan, name: str, made: Made, on_progress: OnProgress) -> ToolRecord:
    """Prove a built file to be what the spec says, and start it once."""
    on_progress(Progress(Step.CHECK, name))
    tool, path = plan.spec.tools[name], made.file
    facts = read_elf(path)
    prove(name, facts, tool.elf, plan.target)
    return ToolRecord(
        sha256=sha256_file(path),
        size_bytes=path.stat().st_size,
        elf=facts,
        smoke=smoke_run(name, tool, path, plan.target),
        built=datetime.now(UTC),
    )
