"""Graders: find the answer in a text and compare it with the right answer.

Imports neither pydantic nor numpy, since each worker process imports it anew.
"""

from importlib import import_module

from labctl.errors import ConfigError
from labctl.evaluation.graders.base import Grade, Grader

__all__ = ["DEFAULT_GRADER", "GRADERS", "Grade", "Grader", "grader_class", "make_grader"]

#: Name of each grader -> its module and class.
GRADERS = {
    "boxed": "boxed.Boxed",
    "qwen": "qwen.Qwen",
    "numeric": "numeric.Numeric",
    "math-verify": "math_verify.MathVerify",
    "choice": "choice.Choice",
}
#: The grader for answers under a budget, which accepts only a complete answer.
DEFAULT_GRADER = "boxed"


def grader_class(name: str) -> type[Grader]:
    """Return a grader's class, which has the grader's version.

    Raises ConfigError for an unknown name, or if the grader's library is missing.
    """
    if name not in GRADERS:
        from labctl.suggestions import did_you_mean

        raise ConfigError(
            f"there is no grader {name!r}{did_you_mean(name, GRADERS)}",
            hint=f"the graders are {', '.join(GRADERS)}",
        )
    module, _, attribute = GRADERS[name].partition(".")
    found: type[Grader] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return found


def make_grader(name: str) -> Grader:
    """Return a grader, and import its library. Raises ConfigError as :func:`grader_class` does."""
    return grader_class(name)()
