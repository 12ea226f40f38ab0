"""Sources of the sides of a build, and the artifacts built from them."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labctl import process
from labctl.build.artifact import Artifact, list_artifacts
from labctl.build.builder import build
from labctl.build.dry_run import explain_build
from labctl.build.plan import KEY_DIGITS, BuildRequest
from labctl.build.source import run_git
from labctl.build.source_git import fetching_git, is_shallow, local_repository, shallow_error
from labctl.build.spec import GitSource
from labctl.config.lab import LabFile
from labctl.config.recipe import Recipe
from labctl.errors import ConfigError, HostError, LabctlError
from labctl.evaluation.any_recipe import AnyRecipe
from labctl.evaluation.needs import PROGRAM as SERVER
from labctl.farm.nightly.executor import GOOD, HEAD, Built
from labctl.farm.nightly.last_good import baseline_name
from labctl.farm.nightly.plan_file import NightBuild, NightPlan, NightSource
from labctl.farm.nightly.planning import Planned
from labctl.folders import cache_dir
from labctl.locks import locked
from labctl.runs.inputs.programs import needed_program
from labctl.runs.record.lookup import find_run
from labctl.state.state import lab_state
from labctl.suggestions import listed

_GIT_SECONDS = 600.0
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Sources:
    """Builds the sides of a plan's builds. ``recipes``: the rows' recipes, by the rows' names."""

    lab: LabFile
    plan: NightPlan
    recipes: Mapping[str, Sequence[AnyRecipe]]

    def build(self, name: str, side: str) -> Built:
        """Build a side of BUILD/TARGET. Raises as :func:`labctl.build.builder.build` does."""
        known, target = self._named(name)
        source = self._source(name, side)
        if source.baseline is None:
            return self._as_built(build(self._request(known, source, target, name)), name)
        found = self._of_baseline(source.baseline, known, target, name)
        return self._as_built(found if isinstance(found, Artifact) else build(found), name)

    def look(self) -> Iterator[tuple[str, str, str | LabctlError]]:
        """Yield each build and side with its present source, or the reason why it cannot be built.

        Nothing is fetched or built.
        """
        for name in self.recipes:
            for side in (GOOD, HEAD):
                try:
                    yield name, side, self._found(name, side)
                except LabctlError as error:
                    yield name, side, error

    def _found(self, name: str, side: str) -> str:
        """Return the source of a side, as it is now.

        A branch or tag is looked up in its repository. Raises ConfigError for a missing source,
        HostError for a repository that does not answer, ToolMissing without a compiler.
        """
        known, target = self._named(name)
        gone = [one for one in known.history if not (self.lab.root / one).is_dir()]
        if gone:
            raise ConfigError(f"build {name}: history: {listed(gone, joiner='and')}: no folder")
        source, baseline = self._source(name, side), ""
        request = self._request(known, source, target, name)
        if source.baseline is not None:
            found = self._of_baseline(source.baseline, known, target, name)
            baseline = f"baseline {source.baseline}, "
            if isinstance(found, Artifact):
                version = found.manifest.version
                return f"{baseline}version {version}, {found.manifest.source.revision}, built"
            request = found
        planned = explain_build(request)
        identity, given = planned.plan.source.identity, request.source
        what = "" if given is not None else f"version {planned.plan.label}, "
        folder = local_repository(given.git) if isinstance(given, GitSource) else None
        if isinstance(given, GitSource) and folder is not None and folder.is_dir():
            words = ["cat-file", "-e", f"{identity.commit}^{{commit}}"]
            if _asked(folder, *words).exit_status != 0:
                lacks = f"has no commit {identity.commit}"
                if is_shallow(folder):
                    raise shallow_error(folder, f"it {lacks}")
                raise ConfigError(f"{given.git} {lacks}")
        elif isinstance(given, GitSource) and given.ref == identity.commit:
            what = "not looked for before it is fetched, "
        is_built = "built" if planned.built else "not built yet"
        return f"{baseline}{what}{identity.location}, {identity.revision}, {is_built}"

    def _source(self, name: str, side: str) -> NightSource:
        known, _ = self._named(name)
        if side == GOOD and (kept := lab_state(self.lab).baselines.get(self.baseline(name))):
            return NightSource(baseline=kept.name)
        return {HEAD: known.head, GOOD: known.good}.get(side) or _of_commit(known, side)

    def baseline(self, name: str) -> str:
        """Return the name of the baseline of a build."""
        return baseline_name(self.plan.name, name)

    def commits(self, name: str, sides: Mapping[str, Built]) -> Sequence[str]:
        """Return the commits (or folders) after the last good one up to head, oldest first.

        They follow the first parents. Raises ConfigError if neither is known, or if the last good
        is not among them; HostError.
        """
        known, _ = self._named(name)
        if known.head.git is None:
            if not known.history:
                hint = "name the folders between them: `history: [...]`"
                raise ConfigError(f"build {name}: no commits between its sides", hint=hint)
            return [str(folder) for folder in known.history]
        good, head = sides[GOOD].source, sides[HEAD].source
        if not _COMMIT.fullmatch(good):
            raise ConfigError(f"build {name}: the last good is not a commit: {good}")
        place = _repository(known.head.git)
        words = ("--first-parent", "--parents", "--reverse", f"{good}..{head}")
        if is_shallow(place) and _asked(place, "cat-file", "-e", good).exit_status != 0:
            raise shallow_error(place, f"it does not have the last good commit {good}")
        found = [line.split() for line in _git(place, "rev-list", *words).splitlines()]
        # If the last good is on another branch, a commit may only be missing the changes of that
        # branch.
        if not found or found[0][1:2] != [good]:
            if is_shallow(place):
                raise shallow_error(place, f"nothing is known between {good} and {head}")
            raise ConfigError(f"{good} is not among the first parents of {head}")
        return [commit for commit, *_ in found[:-1]]

    def _named(self, name: str) -> tuple[NightBuild, str]:
        build_name, _, target = name.rpartition("/")
        return self.plan.builds[build_name], target

    def _request(
        self, known: NightBuild, source: NightSource, target: str, name: str
    ) -> BuildRequest:
        own: Path | GitSource | None = None
        if source.folder is not None:
            own = self.lab.root / source.folder
        elif source.git is not None and source.ref is not None:
            own = GitSource(git=source.git, ref=source.ref)
        return BuildRequest(
            target,
            known.product,
            self._tools(name) or None,
            source.version,
            own,
            lab_root=self.lab.root,
        )

    def _tools(self, name: str) -> tuple[str, ...]:
        """Return the names of the programs that the rows of a build run."""
        tools = (
            needed_program(recipe, self.lab.root) if isinstance(recipe, Recipe) else SERVER
            for recipe in self.recipes[name]
        )
        return tuple(dict.fromkeys(tool for tool in tools if tool))

    def _as_built(self, artifact: Artifact, name: str) -> Built:
        manifest = artifact.manifest
        version = f"{manifest.version}-{manifest.key[:KEY_DIGITS]}"
        deployed = {tool: manifest.tools[tool].sha256 for tool in sorted(self._tools(name))}
        program = hashlib.sha256(json.dumps(deployed).encode()).hexdigest() if deployed else ""
        return Built(manifest.key, version, manifest.source.full_revision, program)

    def _of_baseline(
        self, word: str, known: NightBuild, target: str, name: str
    ) -> Artifact | BuildRequest:
        """Find the artifact of a baseline's runs, or the source to build it from its commit."""
        baseline = lab_state(self.lab).baselines.find(word)
        for run in baseline.runs:
            record = find_run(self.lab.root / "runs", run).run()
            for one in record.artifacts:
                if one.product != known.product or one.target != target:
                    continue
                there = [a for a in list_artifacts() if a.manifest.key == one.key]
                if there:
                    return there[0]
                if one.commit and known.head.git:
                    again = NightSource(git=known.head.git, ref=one.commit)
                    return self._request(known, again, target, name)
        raise ConfigError(
            f"the build of baseline {word} is gone, and no commit is known to build it from",
            hint=f"remove it to begin with the plan's `good`: labctl baseline remove {word}",
        )


def sources_of(lab: LabFile, plan: NightPlan, planned: Planned) -> Sources:
    """Return the sources of a night's rows."""
    recipes: dict[str, list[AnyRecipe]] = {}
    for row in planned.record.rows:
        if row.name in planned.recipes:  # a night that is only finished builds nothing
            recipes.setdefault(row.build, []).append(planned.recipes[row.name])
    return Sources(lab, plan, recipes)


def _of_commit(known: NightBuild, side: str) -> NightSource:
    if known.head.git is not None:
        return NightSource(git=known.head.git, ref=side)
    return NightSource.model_validate({"folder": side})


def _repository(address: str) -> Path:
    """Return a repository with the history of an address, or the address itself if it is a
    folder."""
    if (folder := local_repository(address)) is not None and folder.is_dir():
        return folder
    name = hashlib.sha256(address.encode()).hexdigest()[:16]
    place = cache_dir() / "histories" / f"{name}.git"
    with locked(place.with_suffix(".lock"), timeout=_GIT_SECONDS, holder="another night"):
        if place.is_dir():
            words = ["fetch", "--quiet", "--filter=blob:none", "origin", "+refs/*:refs/*"]
            fetching_git(address, "-C", str(place), *words, timeout=_GIT_SECONDS)
        else:
            words = ["clone", "--quiet", "--bare", "--filter=blob:none", "--", address, str(place)]
            fetching_git(address, *words, timeout=_GIT_SECONDS)
    return place


def _git(folder: Path, *words: str) -> str:
    done = _asked(folder, *words)
    if done.exit_status != 0:
        raise HostError("git cannot read the history of the source", details=done.tail())
    return done.text


def _asked(folder: Path, *words: str) -> process.Completed:
    return run_git("-C", str(folder.absolute()), *words, timeout=_GIT_SECONDS)
