"""``build``: from a request to an artifact that is proven, and shared by all who ask for it."""

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from pathlib import Path

from labctl.build.artifact import (
    Artifact,
    Manifest,
    SmokeRun,
    ToolRecord,
    mark_current,
    publish,
    read_artifact,
)
from labctl.build.elf import prove, read_elf, read_sections
from labctl.build.functions import read_functions
from labctl.build.isa import prove_isa
from labctl.build.job import Job, Made, missing_sources
from labctl.build.materials import materials
from labctl.build.plan import KEY_DIGITS, BuildRequest, Plan, make_plan
from labctl.build.progress import OnProgress, Progress, Step, ignore
from labctl.build.smoke import infer, smoke_run
from labctl.errors import ConfigError, HostTimeout
from labctl.files import cache_dir, locked, sha256_file

#: A wait for another labctl that builds the same.
LOCK_SECONDS = 5 * 3600.0


def build(request: BuildRequest, *, on_progress: OnProgress = ignore) -> Artifact:
    """Build what is asked for, or find that it is built already.

    Raises ConfigError for names that are not known and for products that cannot be, CompileError
    when the source does not compile, ToolMissing, HostError (no network, disk full), HostTimeout,
    IntegrityError (a source that is not the pinned one), ProgramFailed (a tool does not start).
    """
    plan = make_plan(request, on_progress)
    artifact = read_artifact(plan.artifact)
    if artifact is None or plan.from_kit or not artifact.has(plan.tools):
        with ExitStack() as stack:
            lock = _lock(plan, stack, on_progress)
            artifact = _build_missing(plan, lock, on_progress)
    mark_current(artifact)
    return artifact


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
    missing = plan.tools
    if artifact is not None and not plan.from_kit:
        missing = tuple(name for name in plan.tools if not artifact.has([name]))
        if not missing:
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
        materials=materials(plan.order, plan.source.identity),
        why_builder=plan.choice.why,
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
    prove(name, facts, tool, plan.target)
    isa = None
    if facts.machine == "EM_AARCH64":
        functions = read_functions(made.symbols or (None if facts.stripped else path))
        isa = prove_isa(name, path, functions, plan.spec.dispatched, plan.target)
    return ToolRecord(
        sha256=sha256_file(path),
        size_bytes=path.stat().st_size,
        elf=facts,
        isa=isa,
        sections=read_sections(path),
        smoke=smoke_run(name, tool, path, plan.target),
        infer=_infer(plan, name, path),
        built=datetime.now(UTC),
    )


def _infer(plan: Plan, name: str, path: Path) -> SmokeRun | None:
    words = plan.infer.get(name, plan.spec.tools[name].infer)
    return None if words is None else infer(name, words, path, plan.target)
