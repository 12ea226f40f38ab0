"""Options of a program that its build lacks, found before any contact with a board.

A build that could not start its programs knows no options. There the program itself refuses an
unknown option at its first start on a board, and the engine's ``diagnose`` names it.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from labctl.engines.base import EngineBase, EngineParameters, Inputs, Listen
from labctl.errors import ConfigError
from labctl.runs.inputs.programs import Program
from labctl.suggestions import listed

_OPTION = re.compile(r"-{1,2}[A-Za-z][\w-]*")
#: Stands for every text and path of a command: none is an option.
_ANY = "any"


def refuse_unknown(
    engine: EngineBase[Any],
    program: Program,
    asked: Iterable[EngineParameters],
    *,
    adapters: int = 0,
) -> None:
    """Raise ConfigError if a command with these parameters has options that the program lacks."""
    if program.artifact is None:
        return
    known = program.artifact.manifest.tools[program.tool.name].options
    if known is None:
        return
    files = dict.fromkeys(engine.files, _ANY)
    inputs = Inputs(_ANY, _ANY, _ANY if engine.uses_prompt else None, files, Listen(1, _ANY))
    inputs = replace(inputs, adapters=((_ANY, 1.0),) * adapters)
    for parameters in asked:
        decided = engine.for_version(program.tool, parameters)
        words = engine.command(program.tool, decided, inputs)
        if lacking := [w for w in words if _OPTION.fullmatch(w) and w not in known]:
            raise ConfigError(
                f"this build of {program.tool.name} has no option {listed(lacking)}, which the"
                " parameters need",
                hint="leave the parameter out, or use another version",
            )
