"""Progress of a build."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """The steps of a build, in their order."""

    IMAGE = "image"
    WAIT = "wait"
    SOURCE = "source"
    SEND = "send"
    RUNTIME = "runtime"
    CONFIGURE = "configure"
    COMPILE = "compile"
    COLLECT = "collect"
    CHECK = "check"


@dataclass(frozen=True)
class BuildProgress:
    """A step has begun or advanced; ``done`` of ``total`` pieces if they can be counted."""

    step: Step
    message: str
    done: int | None = None
    total: int | None = None


OnProgress = Callable[[BuildProgress], None]


def ignore(_progress: BuildProgress) -> None:
    """Ignore progress."""
