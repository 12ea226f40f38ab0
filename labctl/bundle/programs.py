"""The program of a reproduction: the measured program, or a build from the same source."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from labctl.build.manifest import BuilderKind, Manifest
from labctl.build.plan import BuildRequest, Plan, make_plan, source_now
from labctl.bundle.reader import Bundle
from labctl.bundle.records import BundledRun
from labctl.bundle.trusted_recipe import Missing
from labctl.config.recipe import Recipe
from labctl.engines.registry import make_engine
from labctl.errors import ConfigError, HostError, IntegrityError
from labctl.runs.inputs.programs import find_program, missing_builds


@dataclass(frozen=True)
class ProgramPlan:
    """Source of the program here.

    ``lines``: description. ``builds``: must be made first. ``missing``: it is not available.
    """

    lines: tuple[str, ...]
    builds: tuple[BuildRequest, ...] = ()
    missing: Missing | None = None


def plan_program(bundle: Bundle, known: BundledRun, recipe: Recipe, lab_root: Path) -> ProgramPlan:
    """Find the program of a bundle's run on this host; build and fetch nothing.

    Nothing from a bundle is compiled: only sources of this labctl's own build specs are built, and
    only if sources and patches equal the measured ones. Raises NotABundle for a damaged manifest,
    ConfigError.
    """
    engine = make_engine(recipe.engine)
    if engine.program is not None and engine.program.file is not None:
        return ProgramPlan((f"program: your own file {engine.program.file}, the same bytes",))
    identity = next((one for one in known.run.artifacts if one.product != "agent"), None)
    if identity is None:
        raise bundle.refusal("its run names no build of its program")
    what = f"{identity.product} {identity.version}"
    try:
        found = find_program(engine, recipe, lab_root)
    except (ConfigError, IntegrityError):
        found = None
    manifest = _manifest(bundle, identity.product)
    sources = () if manifest is None else _source_lines(manifest)
    if found and found.file and found.file.sha256 == known.plan.program_sha256:
        line = f"  here: {found.tool.name}, built before: byte for byte the measured program"
        return ProgramPlan((*sources, line))
    if manifest is None:
        cure = "ask for a bundle from the host that built it"
        return ProgramPlan(
            (),
            missing=Missing(f"the bundle does not record the source of {what}", cure),
        )
    own = found.artifact.manifest if found and found.artifact else None
    if own is not None and own.source.digest == manifest.source.digest:
        return ProgramPlan(
            (*sources, f"  here: built before from the same source, by {own.toolchain}")
        )
    return _from_source(bundle, manifest, recipe, lab_root, sources)


def _from_source(
    bundle: Bundle, manifest: Manifest, recipe: Recipe, lab_root: Path, sources: tuple[str, ...]
) -> ProgramPlan:
    """Plan the builds, if this labctl's own build spec has the measured source."""
    what = f"{manifest.product} {manifest.version}"
    now = source_now(recipe.target, manifest.product, manifest.version, lab_root)
    if now is None or now.identity.digest != manifest.source.digest:
        has = f"has {now.identity.revision}" if now else "has no such version"
        spec = f"{bundle.path}/build/{manifest.product}/spec.yaml"
        return ProgramPlan(
            sources,
            missing=Missing(
                f"{what} was built from {manifest.source.revision}, but the build spec here {has}",
                f"read the one of the bundle: labctl show {spec}; if you trust it and its patches,"
                " put them into toolchains/ of your lab",
            ),
        )
    chosen = [
        _in_a_container(request) for request in missing_builds(recipe, lab_root, with_stale=True)
    ]
    lines = [line for request, why in chosen for line in _build_lines(make_plan(request), why)]
    return ProgramPlan((*sources, *lines), tuple(request for request, _ in chosen))


def _manifest(bundle: Bundle, product: str) -> Manifest | None:
    name = f"build/{product}/manifest.json"
    if not bundle.has(name):
        return None
    try:
        return Manifest.model_validate_json(bundle.read(name))
    except (ValidationError, json.JSONDecodeError) as error:
        raise bundle.refusal(f"{name} is not a build manifest") from error


def _source_lines(manifest: Manifest) -> tuple[str, ...]:
    source = manifest.source
    commit = f", commit {source.commit}" if source.commit else ""
    digest = f", SHA-256 {source.sha256}" if source.sha256 else ""
    place = f"{source.kind} {source.location}{commit}{digest}"
    lines = [f"source: {manifest.product} {manifest.version}: {place}"]
    lines += [f"  with the patch {patch.name}, SHA-256 {patch.sha256}" for patch in source.patches]
    return (*lines, f"  there: built by {manifest.toolchain}; flags {' '.join(manifest.flags)}")


def _in_a_container(request: BuildRequest) -> tuple[BuildRequest, str | None]:
    """Return the request for a container; if impossible, the request as it is, and the reason."""
    contained = replace(request, builder=BuilderKind.CONTAINER)
    try:
        make_plan(contained)
    except (ConfigError, HostError) as error:
        return request, error.message
    return contained, None


def _build_lines(plan: Plan, why: str | None) -> list[str]:
    """Name the machine where compilers run, and their isolation."""
    identity = plan.order.toolchain.identity
    lines = [f"  here: builds {', '.join(plan.tools)} of {plan.spec.product}, by {identity}"]
    if identity.on.builder is not BuilderKind.CONTAINER:
        lines.append(
            "  NOT in a container: compilers and the source's own build files run as you, with"
            f" your network, on {identity.on.host or 'this host'} ({why})"
        )
    elif identity.on.network is not False:
        lines.append("  in a container, but WITH network: this container engine cannot disable it")
    else:
        lines.append("  in a container without network")
    return lines
