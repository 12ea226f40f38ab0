"""Confine an untrusted recipe, such as a pull request's recipe.

Keys are allowed by a list: a key that a later version adds is refused until it is added here.
Programs of the recipe run only on the board, and its files are sent there. On this host its paths
are read, all within one folder.
"""

import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from labctl.build.untrusted import stand_apart
from labctl.config.lab import Board
from labctl.config.models import ModelSource
from labctl.config.recipe import Recipe
from labctl.config.types import format_duration
from labctl.config.yaml.loader import Path as DocumentPath
from labctl.engines.base import ProgramSource
from labctl.engines.registry import OWN_ENGINES, is_own
from labctl.errors import ConfigError
from labctl.suggestions import listed
from labctl.units import size

#: Keys that are harmless on this host with any value.
_HARMLESS = {
    *("name", "description", "target", "model", "prompt", "parameters", "matrix", "repeats"),
    *("warm_up", "repeats_until", "order", "order_seed", "conditions", "scheduling"),
    *("sampling_interval", "min_tokens", "timeouts", "infra_retries", "gates", "comparison"),
    *("lora", "references", "tune"),
}
#: Keys whose content is checked.
_CHECKED = {"engine", "models", "prompt_file", "files", "max_time"}
#: Maximum total size of all its files.
MOST_BYTES = 16 << 30
MOST_SECONDS = 2 * 3600.0

Problem = tuple[DocumentPath, str]


@dataclass(frozen=True)
class Workspace:
    """The folder that untrusted recipes may read. Their relative paths begin in it."""

    folder: Path

    @classmethod
    def of(cls, recipe: Path, lab_root: Path, named: Path | None = None) -> "Workspace":
        """Return the current folder, if it contains the recipe and is separate from the lab.

        ``named`` is the lab as the user named it: a link in the folder could lead anywhere. Raises
        ConfigError.
        """
        folder = Path.cwd().resolve()
        if not _real(recipe).is_relative_to(folder):
            raise ConfigError(
                f"the untrusted recipe {recipe} is not in the present folder {folder}",
                hint="change to the folder of the pull request first: it may read nothing else",
            )
        for lab in (lab_root, named or lab_root):
            stand_apart(lab, folder)
        return cls(folder)

    def recipe(self, text: str) -> Path:
        """Return the file of a recipe that a plan in the folder names. Raises ConfigError."""
        found = _real(self.folder / text)
        if not found.is_relative_to(self.folder):
            raise ConfigError(
                f"{text} is outside of {self.folder}, which alone an untrusted plan may read"
            )
        return found

    def problems(self, recipe: Recipe) -> Iterator[Problem]:
        """Yield all forbidden requests of the recipe, as (path in the recipe, sentence)."""
        for key in sorted(recipe.model_fields_set - _HARMLESS - _CHECKED):
            yield (key,), "an untrusted recipe cannot have this key"
        if recipe.max_time > MOST_SECONDS:
            most = format_duration(MOST_SECONDS)
            yield ("max_time",), f"an untrusted recipe has {most} at most"
        # Another package's code would read the recipe's values.
        if not is_own(recipe.engine.name):
            known = listed(OWN_ENGINES)
            yield ("engine", "name"), f"an untrusted recipe uses labctl's own engines: {known}"
        for key, source in recipe.models.items():
            if why := _model_problem(source):
                yield ("models", key), why
        total = 0
        for path, text in _paths(recipe):
            why, taken = self._file_problem(text)
            total += taken
            if why is not None:
                yield path, why
        if total > MOST_BYTES:
            yield (), f"its files have {size(total)} together; {size(MOST_BYTES)} is the most"

    def _file_problem(self, text: str) -> tuple[str | None, int]:
        """Return the reason if a file cannot be read, and its size."""
        try:
            found = (self.folder / text).resolve(strict=True)
            status = found.stat()
        except (OSError, RuntimeError, ValueError) as error:
            return f"cannot be read: {getattr(error, 'strerror', None) or error}", 0
        if not found.is_relative_to(self.folder):
            return f"is outside of {self.folder}, which alone an untrusted recipe may read", 0
        if not stat.S_ISREG(status.st_mode):
            return "is not a file", 0
        return None, status.st_size

    def within(self, recipe: Recipe) -> Recipe:
        """Return a recipe without problems, with the real paths of its files."""

        return with_paths(recipe, lambda text: str((self.folder / text).resolve(strict=True)))


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a link to itself
        raise ConfigError(f"cannot read {path}: {error}") from error


def with_paths(recipe: Recipe, found: Callable[[str], str]) -> Recipe:
    """Return a recipe with other paths for its files; ``found`` returns each path."""
    changed: dict[str, object] = {
        "files": {name: found(path) for name, path in recipe.files.items()},
        "models": {
            key: source
            if source.file is None
            # Its bytes may differ in the next pull request.
            else source.model_copy(update={"file": found(source.file), "lock": False})
            for key, source in recipe.models.items()
        },
    }
    if recipe.prompt_file is not None:
        changed["prompt_file"] = found(recipe.prompt_file)
    if (program := _program(recipe)) is not None and program.file is not None:
        taken = program.model_copy(update={"file": found(program.file)})
        changed["engine"] = recipe.engine.model_copy(update={"program": taken})
    return recipe.model_copy(update=changed)


def check_board(board: Board) -> None:
    """Raise ConfigError unless untrusted recipes may run on a board."""
    if not board.untrusted:
        raise ConfigError(
            f"board {board.name} takes no untrusted recipes: their programs may have all rights"
            " there",
            hint=f"name a board that you can spare, with `untrusted: true` in devices.yaml;"
            f" {board.name} is not one",
        )
    if board.transport.is_this_host:
        raise ConfigError(
            f"board {board.name} is this host itself (kind: {board.transport.kind}): an untrusted"
            " recipe would run its programs here",
            hint="choose a board that is a machine of its own",
        )


def _model_problem(source: ModelSource) -> str | None:
    if source.derive is not None:
        return "an untrusted model is not quantized: that runs a program on this host"
    if source.url is not None:
        return "an untrusted recipe names no addresses; take a file, hub, pypi or lab"
    if source.hub is not None and source.hub.sha256 is None:
        return "an untrusted recipe names a model of a hub with its sha256"
    return None


def _program(recipe: Recipe) -> ProgramSource | None:
    found = getattr(recipe.engine, "program", None)
    if isinstance(found, dict):  # from the queue: the engine's own keys are not read yet
        try:
            found = ProgramSource.model_validate(found)
        except ValidationError as error:
            raise ConfigError(f"recipe {recipe.name}: its program cannot be read") from error
    return found if isinstance(found, ProgramSource) else None


def _paths(recipe: Recipe) -> Iterator[tuple[DocumentPath, str]]:
    """Yield all paths of this host in a recipe, each with its place."""
    if recipe.prompt_file is not None:
        yield ("prompt_file",), recipe.prompt_file
    for name, path in recipe.files.items():
        yield ("files", name), path
    for key, source in recipe.models.items():
        if source.file is not None:
            yield ("models", key, "file"), source.file
    if (program := _program(recipe)) is not None and program.file is not None:
        yield ("engine", "program", "file"), program.file
