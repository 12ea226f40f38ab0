"""The content of a job: everything that its run needs, as it was at submission.

The recipe is kept as written and as resolved, the files of this host by their SHA-256, and the
build of its program by its manifest. A queued job does not change if a recipe is edited or a
program is rebuilt; a file that changed later is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from labctl.build.installation import manifest_with, version_of
from labctl.build.manifest import Manifest
from labctl.config.recipe import EngineChoice, Recipe
from labctl.config.yaml.document import Document
from labctl.errors import ConfigError
from labctl.evaluation.any_recipe import AnyRecipe, any_of
from labctl.evaluation.datasets.load import local_file
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.evaluation.serving.recipe import LoadTestRecipe
from labctl.file_hashes import cached_sha256
from labctl.records.run import NightPart
from labctl.runs.inputs.prepare import recipe_files
from labctl.runs.inputs.servers import WantedServer


@dataclass(frozen=True)
class RunContent:
    """A recipe with the digests of its files.

    The engine's version names only its build.
    """

    recipe: AnyRecipe
    #: Path, in the lab's folder if it lies there -> SHA-256.
    files: Mapping[str, str]
    #: The build of its program, with only that tool; None: no build has it.
    build: Manifest | None = None
    #: The night it belongs to.
    night: NightPart | None = None

    @classmethod
    def of(
        cls,
        recipe: AnyRecipe,
        lab_root: Path,
        *,
        target: str | None = None,
        untrusted: bool = False,
        sha256: Callable[[Path], str] = cached_sha256,
    ) -> "RunContent":
        """Find a recipe's files on this host; an ``untrusted`` recipe may bring a program.

        ``target`` is the boards' target, for a recipe without one; ``sha256`` hashes the files.
        Raises ConfigError for a missing file or a missing build.
        """
        if not isinstance(recipe, Recipe):
            assert target is not None
            return cls._of_served(recipe, lab_root, target, sha256)
        found = recipe_files(recipe, lab_root, untrusted=untrusted)
        paths = [lab_root / file for file in recipe.files.values()]
        paths += [lab_root / source.file for source in recipe.models.values() if source.file]
        paths += [lab_root / recipe.prompt_file] if recipe.prompt_file else []
        digests = {_named(path, lab_root): sha256(path) for path in paths}
        if found.artifact is not None:
            build = manifest_with(found.artifact, [found.tool.name])
            engine = recipe.engine.model_copy(update={"version": version_of(build)})
            return cls(recipe.model_copy(update={"engine": engine}), digests, build)
        if found.program is not None:
            digests[_named(found.program.local, lab_root)] = found.program.sha256
        return cls(recipe, digests)

    @classmethod
    def _of_served(
        cls,
        recipe: EvaluationRecipe | LoadTestRecipe,
        lab_root: Path,
        target: str,
        sha256: Callable[[Path], str],
    ) -> "RunContent":
        """Find the files of a recipe that starts a server on a board of a target."""
        named = [recipe.models[key].file for key in recipe.measured_models()]
        if (questions := recipe.questions) is not None:
            named += [questions.file, questions.shots.file if questions.shots else None]
        (source,) = recipe.board_servers()
        named += [one.file for one in source.lora]
        paths = [local_file(file, lab_root) for file in named if file is not None]
        digests = {_named(path, lab_root): sha256(path) for path in paths}
        choice = EngineChoice(name="llama_cpp", task="serve", version=source.version)
        wanted = WantedServer(
            choice,
            target,
            recipe.models,
            source.model,
            source.parameters,
            source.draft,
            source.scaled_lora,
        )
        _, program = wanted.find_program(lab_root)
        if program.artifact is None:
            return cls(recipe, digests)
        build = manifest_with(program.artifact, [program.tool.name])
        return cls(recipe.changed_on_board(version=version_of(build)), digests, build)

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "kind": self.recipe.kind,
            "recipe": self.recipe.resolved(),
            "as_written": self.recipe.as_written,
            "settings": list(self.recipe.settings),
            "files": dict(self.files),
            "build": None if self.build is None else self.build.model_dump(mode="json"),
            "night": None if self.night is None else self.night.model_dump(mode="json"),
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "RunContent":
        """Read the result of :meth:`document`. Raises ConfigError if this labctl cannot."""
        try:
            recipe = any_of(document["kind"], document["recipe"])
            written, settings = document["as_written"], document["settings"]
            if written is not None:
                source = Document.parse(written, f"the recipe {recipe.name}")
                source.overridden = {(str(n),): text for n, text in enumerate(settings)}
                recipe = recipe.written_in(source)
            files = {str(path): str(sha) for path, sha in document["files"].items()}
            build, night = document.get("build"), document.get("night")
            return cls(
                recipe,
                files,
                None if build is None else Manifest.model_validate(build),
                None if night is None else NightPart.model_validate(night),
            )
        except (ValidationError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                "this labctl cannot read the job's request",
                hint="the labctl that submitted it may be of another version; submit it again",
            ) from error

    def check(self, lab_root: Path) -> None:
        """Raise ConfigError if one of its files changed since."""
        for path, digest in self.files.items():
            if cached_sha256(lab_root / path) != digest:
                raise ConfigError(
                    f"{path} changed since the job was submitted",
                    hint="submit the job again to use the file as it is now",
                )


def _named(path: Path, lab_root: Path) -> str:
    """Return a path in a form that is valid on another host, whose lab has another folder."""
    return str(path.relative_to(lab_root) if path.is_relative_to(lab_root) else path)
