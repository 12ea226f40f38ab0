"""Files that a server needs on this host: its program and its model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labctl.build.artifact import build_command, find_artifacts
from labctl.config.models import ModelSource
from labctl.config.recipe import EngineChoice, Recipe
from labctl.config.recipe_parts import Scalar
from labctl.deploy.plan import Object, describe
from labctl.engines.registry import make_server
from labctl.engines.server import ServerEngine
from labctl.errors import ConfigError
from labctl.gguf.adapter import adapted, identify_adapter
from labctl.models.cache import ModelFile
from labctl.models.expected import are_ready, check_files
from labctl.models.quantizer import find_quantizer
from labctl.models.resolve import resolve
from labctl.progress import Progress
from labctl.records.run import ArtifactIdentity
from labctl.records.trial import AdapterIdentity
from labctl.runs.inputs.options import refuse_unknown
from labctl.runs.inputs.programs import Program, artifact_identity, find_program, wanted_tool

#: A recipe needs a maximum run time; nothing here depends on it.
_ANY_TIME = "1h"


@dataclass(frozen=True)
class ServerFiles:
    """A server engine with its program and its model on this host."""

    engine: ServerEngine[Any]
    program: Program
    model: ModelFile
    draft: ModelFile | None = None
    adapters: tuple[tuple[Object, AdapterIdentity], ...] = ()

    @property
    def objects(self) -> tuple[Object, ...]:
        """Files that a board needs, without a program of the board's own."""
        found = [] if self.program.file is None else [self.program.file]
        for file in (self.model, self.draft):
            if file is not None:
                of = file.identity
                assert of.size_bytes is not None  # only for a local file
                found.append(Object(of.sha256, of.size_bytes, file.path, file.path.name))
        return (*found, *(file for file, _ in self.adapters))

    @property
    def artifact(self) -> ArtifactIdentity | None:
        """The build of the program; None: labctl did not build it."""
        artifact = self.program.artifact
        return None if artifact is None else artifact_identity(artifact)


@dataclass(frozen=True)
class WantedServer:
    """A server engine for a target, with its parameters, and the key of one of the ``models``."""

    choice: EngineChoice
    target: str
    models: Mapping[str, ModelSource]
    model: str
    parameters: Mapping[str, Scalar]
    draft: str | None = None
    lora: tuple[tuple[str, float], ...] = ()

    def find(
        self, lab_root: Path, progress: Progress, before_fetch: Callable[[], None] = lambda: None
    ) -> ServerFiles:
        """Find the program, fetch or derive the model.

        ``before_fetch`` is called before the model is fetched, made or hashed; it may raise to
        refuse. Raises as :meth:`find_program`, and the errors of
        :func:`labctl.models.resolve.resolve`.
        """
        engine, program = self.find_program(lab_root)
        models, keys = self.models, [self.model, *([self.draft] if self.draft else [])]
        check_files(models, keys, root=lab_root, gguf_only=engine.reads_gguf)
        files = [(describe(lab_root / path), scale) for path, scale in self.lora]
        lora = [(one, identify_adapter(one.local, one.sha256, scale)) for one, scale in files]
        if not are_ready(models, keys, lab_root):
            before_fetch()
        found = resolve(
            models,
            keys,
            root=lab_root,
            find_quantizer=lambda: find_quantizer(self.target, lab_root),
            progress=progress,
            gguf_only=engine.reads_gguf,
        )
        model = found[self.model]
        identity = adapted(model.identity, (one for _, one in lora))
        draft = found[self.draft] if self.draft else None
        return ServerFiles(engine, program, replace(model, identity=identity), draft, tuple(lora))

    def find_program(self, lab_root: Path) -> tuple[ServerEngine[Any], Program]:
        """Find the engine and its program.

        Raises ConfigError: not a server, wrong parameters, or a program that is not built; if its
        product is not built at all, the hint builds only this program.
        """
        recipe = Recipe.model_validate(
            {
                "name": "serve",
                "target": self.target,
                "engine": self.choice,
                "models": dict(self.models),
                "model": self.model,
                "max_time": _ANY_TIME,
            }
        )
        engine = make_server(recipe.engine)
        parameters = engine.parameters(self.parameters)
        product = engine.product if engine.program is None else engine.program.product
        if product is not None:
            try:
                find_artifacts(recipe.target, product, recipe.engine.version, lab_root=lab_root)
            except ConfigError as error:
                tool = wanted_tool(engine, recipe, (), lab_root).name
                command = build_command(recipe.target, product, recipe.engine.version, [tool])
                raise ConfigError(error.message, hint=command) from error
        program = find_program(engine, recipe, lab_root)
        refuse_unknown(
            engine,
            program,
            [parameters],
            adapters=len(self.lora),
            has_draft=self.draft is not None,
        )
        return engine, program
