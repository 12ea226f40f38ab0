"""What a deploy brings to the boards of one target, found once for all of them."""

import threading
from collections.abc import Callable, Mapping

from labctl.errors import ConfigError, LabctlError
from labctl.models import Progress
from labctl.runs.inputs.prepare import Prepared, RecipeFiles


class Wanted:
    """The recipes of a deploy for boards of one target.

    With ``left_out``, which is told of them, recipes whose models cannot be had are left out.
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
        self._found: list[Prepared] | LabctlError | None = None
        #: Whether what was found is all on this host; otherwise something is only expected.
        self.is_whole = False

    def look(self, progress: Progress) -> list[Prepared]:
        """Say what is known of the recipes by now; nothing is fetched or made.

        Every board gets the same answer. Raises ConfigError, HostError.
        """
        with self._lock:
            if self._found is None:
                try:
                    if all(files.models_are_here for files in self._recipes.values()):
                        self._fetch(progress)
                    else:
                        self._found = self._each(lambda files: files.expected(progress))
                except LabctlError as error:
                    self._found = error
            if isinstance(self._found, LabctlError):
                raise self._found
            assert self._found is not None
            return self._found

    def fetch(self, progress: Progress) -> None:
        """Fetch and make what is not here. Raises what :func:`labctl.models.resolve` raises."""
        with self._lock:
            if not self.is_whole:
                self._fetch(progress)

    def _fetch(self, progress: Progress) -> None:
        self._found = self._each(lambda files: files.with_models(progress))
        self.is_whole = True

    def _each(self, find: Callable[[RecipeFiles], Prepared]) -> list[Prepared]:
        found = []
        for name, files in list(self._recipes.items()):
            try:
                found.append(find(files))
            except ConfigError as error:
                if self._left_out is None:
                    raise
                del self._recipes[name]
                self._left_out(name, error)
        if not found:
            raise nothing_to_deploy(self.target)
        return found


def nothing_to_deploy(target: str) -> ConfigError:
    """Make the error of a lab that has nothing for boards of a target."""
    return ConfigError(
        f"nothing to deploy: the lab has no usable recipe for target {target}",
        hint="name a recipe, or write one: `labctl init`",
    )
