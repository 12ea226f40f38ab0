"""Engines of installed packages, and the check that they keep the contract.

A package offers an engine by an entry point of the group ``labctl.engines``. Its name is the
engine's in recipes; it names a tuple of subclasses of :class:`~labctl.engines.base.Engine`, or of
:class:`~labctl.engines.server.ServerEngine`, one for each task, the usual first.
"""

import inspect
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from labctl.config.names import listed
from labctl.engines.base import Engine, EngineBase
from labctl.engines.server import ServerEngine
from labctl.errors import ConfigError

GROUP = "labctl.engines"
#: labctl's own are here and not in its metadata, which a source tree that is not installed lacks.
_OWN = tuple(
    EntryPoint(name, value, GROUP)
    for name, value in (
        ("llama_cpp", "labctl.engines.llama_cpp:ENGINES"),
        ("mindspore_lite", "labctl.engines.openharmony:MINDSPORE_LITE"),
        ("nnrt", "labctl.engines.openharmony:NNRT"),
        ("command", "labctl.engines.command:ENGINES"),
    )
)

EngineClass = type[EngineBase[Any]]


def offers() -> tuple[EntryPoint, ...]:
    """Return what offers an engine, labctl's own first; nothing is imported."""
    return (*_OWN, *_installed(tuple(sys.path)))


@cache
def _installed(_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Look through the metadata of all distributions on the path, once: it takes milliseconds."""
    return tuple(sorted(entry_points(group=GROUP), key=lambda entry: entry.name))


def owner(entry: EntryPoint) -> str:
    """Name the distribution of an entry point, with its version."""
    if entry.dist is None:
        return "labctl itself"
    return f"{entry.dist.name or 'a package without a name'} {entry.dist.version}"


def load(entry: EntryPoint) -> tuple[EngineClass, ...]:
    """Import an engine's classes. Raises ConfigError that names the distribution."""
    try:
        engines = entry.load()
    except Exception as error:  # code of others may raise anything
        details = traceback.format_exc()
        raise _unusable(entry, f"{type(error).__name__}: {error}", details) from error
    problem = next(_problems(entry, engines), None)
    if problem is not None:
        raise _unusable(entry, problem)
    return tuple(engines)


def _unusable(entry: EntryPoint, why: str, details: str | None = None) -> ConfigError:
    return ConfigError(
        f"the engine {entry.name!r} of {owner(entry)} cannot be used: {why}",
        hint="install a version of it that is made for this labctl, or uninstall it",
        details=details,
    )


def _problems(entry: EntryPoint, engines: object) -> Iterator[str]:
    if not isinstance(engines, tuple) or not engines or not all(map(_is_engine, engines)):
        yield f"{entry.value} is no tuple of engine classes"
        return
    for engine in engines:
        yield from _engine_problems(entry.name, engine)
    if len({engine.task for engine in engines}) < len(engines):
        yield "two of its classes have the same task"


def _is_engine(candidate: object) -> bool:
    return inspect.isclass(candidate) and issubclass(candidate, (Engine, ServerEngine))


def _engine_problems(name: str, engine: EngineClass) -> Iterator[str]:
    if inspect.isabstract(engine):
        lacking = listed(sorted(engine.__abstractmethods__), joiner="and")
        yield f"{engine.__name__} does not define {lacking}"
    for attribute in ("name", "task", "product"):
        if not isinstance(getattr(engine, attribute, None), str):
            yield f"{engine.__name__}.{attribute} is no text"
    if engine.name != name:
        yield f"{engine.__name__} calls itself {engine.name!r}"
    parameters = getattr(engine, "parameters_model", None)
    if parameters is not None:  # else each recipe has its own
        for parameter in engine.roles.names():
            if parameter not in parameters.model_fields:
                yield f"{engine.__name__} gives a role to {parameter!r}, which is no parameter"
