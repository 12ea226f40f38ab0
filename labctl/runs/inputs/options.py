"""Options of a program that its build lacks, found before any contact with a board.

A build that could not start its programs knows no options. There the program itself refuses an
unknown option at its first start on a board, and the engine's ``diagnose`` names it.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from labctl.engines.base import EngineBase, EngineParameters, Inputs, Listen
from labctl.errors import ConfigError
from labctl.runs.inputs.programs import Program
from labctl.suggestions import listed

if TYPE_CHECKING:
    from labctl.runs.inputs.prepare import Prepared

_OPTION = re.compile(r"-{1,2}[A-Za-z][\w-]*")
#: Stands for every text and path of a command: none is an option.
_ANY = "any"


def refuse_unknown(
    engine: EngineBase[Any],
    program: "Program | Prepared",
    asked: Iterable[EngineParameters],
    *,
    adapters: int = 0,
    has_draft: bool = False,
) -> None:
    """Raise ConfigError for parameters that the program's version or build cannot have."""
    if program.artifact is None:
        return
    known = program.artifact.manifest.tools[program.tool.name].options
    files = dict.fromkeys(engine.files, _ANY)
    inputs = Inputs(_ANY, _ANY, _ANY if engine.uses_prompt else None, files, Listen(1, _ANY))
    draft = _ANY if has_draft else None
    inputs = replace(inputs, adapters=((_ANY, 1.0),) * adapters, draft=draft)
    for parameters in asked:
        decided = engine.for_version(program.tool, parameters)
        words = engine.command(program.tool, decided, inputs)
        if known is None:
            continue
        if lacking := [w for w in words if _OPTION.fullmatch(w) and w not in known]:
            raise ConfigError(
                f"this build of {program.tool.name} has no option {listed(lacking)}, which the"
                " parameters need",
                hint="leave the parameter out, or use another version",
            )
