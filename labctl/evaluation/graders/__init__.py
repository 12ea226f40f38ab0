"""Graders: find the answer in a text and compare it with the right one.

This package needs neither pydantic nor numpy: each worker process imports it anew.
"""

from importlib import import_module

from labctl.errors import ConfigError
from labctl.evaluation.graders.base import Grade, Grader

__all__ = ["DEFAULT_GRADER", "GRADERS", "Grade", "Grader", "make_grader"]

#: Name of each grader -> its module and class.
GRADERS = {
    "boxed": "boxed.Boxed",
    "numeric": "numeric.Numeric",
}
#: The grader for answers under a budget: it takes no answer that was not given.
DEFAULT_GRADER = "boxed"


def make_grader(name: str) -> Grader:
    """Return a grader. Raises ConfigError for an unknown name or where its library is missing."""
    if name not in GRADERS:
        raise ConfigError(
            f"there is no grader {name!r}", hint=f"the graders are {', '.join(GRADERS)}"
        )
    module, _, attribute = GRADERS[name].partition(".")
    grader: Grader = getattr(import_module(f"{__name__}.{module}"), attribute)()
    return grader
