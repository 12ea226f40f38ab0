"""Files that a deploy sends to the boards of one target, found once for all of them."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping

from labctl.errors import ConfigError, LabctlError
from labctl.progress import Progress
from labctl.runs.inputs.prepare import Prepared, RecipeFiles


class Wanted:
    """The recipes of a deploy for boards of one target.

    With ``left_out``, recipes whose models are missing are left out and added to it.
    """

    def __init__(
        self,
        target: str,
        recipes: Mapping[str, RecipeFiles],
        left_out: Callable[[str, ConfigError], None] | None = None,
    ):
        self.target = target
        self._recipes = dict(recipes)
        self._left_out = left_out
        self._lock = threading.Lock()
        self._found: dict[str, Prepared] = {}
        self._error: LabctlError | None = None
        #: Names of the recipes whose models are all on this host.
        self._whole: set[str] = set()

    def look(self, progress: Progress) -> list[Prepared]:
        """Return the known inputs of the recipes; nothing is fetched or made.

        Every board gets the same answer. Raises ConfigError, HostError.
        """
        with self._lock:
            if self._error is None and not self._found:
                try:
                    self._each(self._recipes, lambda files: self._known(files, progress))
                except LabctlError as error:
                    self._error = error
            if self._error is not None:
                raise self._error
            return list(self._found.values())

    def to_fetch(self, missing: Collection[str]) -> list[str]:
        """Return the recipes with models to fetch or make for a board that lacks these SHA-256s."""
        return [
            name
            for name, found in self._found.items()
            if name not in self._whole
            and (
                not found.has_all_models
                or any(model.identity.sha256 in missing for model in found.models.values())
            )
        ]

    def takes_long(self, missing: Collection[str]) -> bool:
        """Return True if a model has to be downloaded or quantized, not only hashed."""
        return any(not self._recipes[name].models_are_here for name in self.to_fetch(missing))

    def fetch(self, missing: Collection[str], progress: Progress) -> None:
        """Fetch and make missing models. Raises the errors of :func:`labctl.models.resolve`."""
        with self._lock:
            self._each(self.to_fetch(missing), lambda files: files.with_models(progress))

    def _known(self, files: RecipeFiles, progress: Progress) -> Prepared:
        return (files.with_models if files.models_are_ready else files.expected)(progress)

    def _each(self, names: Iterable[str], find: Callable[[RecipeFiles], Prepared]) -> None:
        for name in list(names):
            files = self._recipes[name]
            try:
                self._found[name] = found = find(files)
                if files.models_are_here and found.has_all_models:
                    self._whole.add(name)
            except ConfigError as error:
                if self._left_out is None:
                    raise
                del self._recipes[name]
                self._found.pop(name, None)
                self._left_out(name, error)
        if not self._recipes:
            raise nothing_to_deploy(self.target)


def nothing_to_deploy(target: str) -> ConfigError:
    """Return the error for a lab that has nothing for boards of a target."""
    return ConfigError(
        f"nothing to deploy: the lab has no usable recipe for target {target}",
        hint="name a recipe, or write one: `labctl init`",
    )
