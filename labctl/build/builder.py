"""``build``: from a request to a proven artifact, which all who request it share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from labctl.build.artifact import Artifact, mark_current, publish, read_artifact
from labctl.build.bill_of_materials import bill_of_materials
from labctl.build.job import Job, missing_sources
from labctl.build.manifest import Manifest, ToolRecord
from labctl.build.plan import KEY_DIGITS, BuildRequest, Plan, make_plan
from labctl.build.progress import BuildProgress, OnProgress, Step, ignore
from labctl.build.proof import examine, is_proven
from labctl.build.source import Source
from labctl.build.source_lacks import blamed
from labctl.build.workspace import Workspace
from labctl.distribution import labctl_version
from labctl.errors import CompileError, ConfigError, HostTimeout, JobError
from labctl.folders import cache_dir
from labctl.locks import locked

#: Time (s) to wait for another labctl that builds the same.
LOCK_SECONDS = 5 * 3600.0


def build(
    request: BuildRequest,
    *,
    on_progress: OnProgress = ignore,
    on_missing: Callable[[Plan], None] | None = None,
) -> Artifact:
    """Build what is requested, or return the artifact if it is already built.

    ``on_missing`` is called before anything is compiled; its errors are passed on. Raises
    ConfigError (unknown names, impossible products), CompileError (the source does not compile),
    ToolMissing, HostError (no network, disk full), HostTimeout, IntegrityError (the source is not
    the pinned one), ProgramFailed (a tool does not start). A JobError names the revision in its
    ``source``.
    """
    plan = make_plan(request, on_progress)
    artifact = read_artifact(plan.artifact)
    if artifact is None or plan.from_kit or not is_proven(plan, artifact, plan.tools):
        if on_missing:
            on_missing(plan)
        with ExitStack() as stack:
            lock = _lock(plan, stack, on_progress)
            stack.enter_context(_cleared(plan))
            try:
                artifact = _build_missing(plan, lock, on_progress)
            except JobError as error:
                error.source = plan.source.identity.full_revision
                raise
    mark_current(artifact)
    return artifact


def _lock(plan: Plan, stack: ExitStack, on_progress: OnProgress) -> int:
    path = cache_dir() / "locks" / f"build-{plan.key[:KEY_DIGITS]}.lock"
    holder = f"another build of {plan.spec.product}"
    try:
        return stack.enter_context(locked(path, timeout=0, holder=holder))
    except HostTimeout as busy:
        on_progress(BuildProgress(Step.WAIT, f"{busy.message.partition(' holds ')[0]} is at it"))
    return stack.enter_context(locked(path, timeout=LOCK_SECONDS, holder=holder))


def _build_missing(plan: Plan, lock: int, on_progress: OnProgress) -> Artifact:
    """Build the tools that are missing in the artifact; the caller holds the lock."""
    artifact = read_artifact(plan.artifact)
    missing = plan.tools
    if artifact is not None and not plan.from_kit:
        missing = tuple(name for name in plan.tools if not is_proven(plan, artifact, [name]))
        if not missing:
            return artifact  # another process built them while this one waited
    source = plan.source.fetch(on_progress)
    _check_sources(plan, source, missing)
    inputs = plan.inputs
    with (
        plan.choice.builder.open(inputs, lock=lock, on_progress=on_progress) as workspace,
        _unchanged(plan.source, workspace),
    ):
        job = Job(plan.order, workspace, inputs.home, on_progress, untrusted=plan.untrusted)
        try:
            made = job.run(missing)
        except CompileError as error:
            raise error if plan.untrusted else blamed(error, source, job.log) from None
    records: dict[str, ToolRecord] = {}
    for name, file in made.items():
        on_progress(BuildProgress(Step.CHECK, name))
        records[name] = examine(plan, name, file)
    known = {} if artifact is None else artifact.manifest.tools
    manifest = Manifest(
        product=plan.spec.product,
        version=plan.label,
        target=plan.target.name,
        key=plan.key,
        source=plan.source.identity.model_copy(update={"committed": plan.source.committed()}),
        toolchain=plan.order.toolchain.identity,
        definitions=dict(plan.order.definitions),
        flags=plan.order.flags,
        materials=bill_of_materials(plan.order, plan.source.identity),
        why_builder=plan.choice.why,
        labctl_version=labctl_version(),
        tools={**known, **records},
        untrusted=plan.untrusted,
    )
    return publish(plan.artifact, manifest, {name: file.file for name, file in made.items()})


@contextmanager
def _cleared(plan: Plan) -> Iterator[None]:
    """At the end, remove everything of an untrusted source except the log and published files.

    If labctl was killed before, the next untrusted build removes the rest first.
    """
    if not plan.untrusted:
        yield
        return
    from labctl.build.artifact_store import clear_home, clear_killed_builds

    clear_killed_builds()
    clear_home(plan.inputs.home)
    try:
        yield
    finally:
        clear_home(plan.inputs.home)


@contextmanager
def _unchanged(source: Source, workspace: Workspace) -> Iterator[None]:
    """If the source changes meanwhile, clear the tree and raise ConfigError.

    If the source were restored with its old times, it would not be compiled again.
    """
    try:
        yield
        source.verify_unchanged()
    except BaseException as error:  # on Ctrl-C too
        try:
            source.verify_unchanged()
        except ConfigError as changed:
            workspace.clear()
            if isinstance(error, Exception):
                raise changed from error
        raise


def _check_sources(plan: Plan, source: Path, tools: Sequence[str]) -> None:
    files = [file for name in tools for file in plan.spec.tools[name].sources]
    missing = missing_sources(source, files)
    if missing:
        raise ConfigError(f"{plan.order.what}: no source file {source / missing[0]}")
