"""Programs and flags of llama.cpp by version.

The text-completion program was ``llama-cli`` until build 7348 (2025-12) and is ``llama-completion``
since; the newer ``llama-cli`` only chats. Both understand ``-no-cnv``, without which a model with a
chat template waits for a conversation.
"""

from collections.abc import Collection
from dataclasses import dataclass

from labctl.config.names import did_you_mean, listed
from labctl.engines.base import Tool
from labctl.engines.llama_cpp.parameters import LlamaCppParameters
from labctl.errors import ConfigError

COMPLETION = "completion"
INTENTS = (COMPLETION,)


@dataclass(frozen=True)
class Dialect:
    """A program, and the flags that it alone understands."""

    name: str
    program: str
    flags: tuple[str, ...]


#: Best first. ``-fit off``: newer versions shrink the context by themselves otherwise.
DIALECTS = (
    Dialect("completion", "llama-completion", ("-fit", "off")),
    Dialect("classic", "llama-cli", ()),
)

#: The same in every version.
_COMMON = (
    "-no-cnv",
    "--no-display-prompt",  # the first byte of stdout belongs to the first generated token
    "--no-escape",  # a backslash in the prompt is a backslash
    "--no-context-shift",  # a full context ends the generation instead of forgetting silently
    "--simple-io",
)


def wanted_tools(intent: str) -> tuple[str, ...]:
    """See :meth:`labctl.engines.base.Engine.wanted_tools`."""
    if intent not in INTENTS:
        raise ConfigError(
            f"llama_cpp cannot serve the intent {intent!r}{did_you_mean(intent, INTENTS)}",
            hint=f"this version of labctl knows {listed(INTENTS)}",
        )
    return tuple(dialect.program for dialect in DIALECTS)


def choose(intent: str, available: Collection[str], offered: Collection[str]) -> Tool:
    """See :meth:`labctl.engines.base.Engine.tool`."""
    wanted = wanted_tools(intent)
    dialect = next((d for d in DIALECTS if d.program in {*offered, *available}), None)
    if dialect is None:
        present = listed(sorted(offered), joiner="and") if offered else "nothing"
        raise ConfigError(
            f"this version of llama.cpp has no program for {intent}: it offers {present}",
            hint=f"use one that has {listed(wanted)}",
        )
    if dialect.program not in available:
        raise ConfigError(
            f"the artifact has no {dialect.program}, which {intent} needs",
            hint=f"build it: labctl build … --tool {dialect.program}",
        )
    return Tool(dialect.program, dialect.name)


def command(
    tool: Tool, parameters: LlamaCppParameters, *, program: str, model: str, prompt: str
) -> list[str]:
    """See :meth:`labctl.engines.base.Engine.command`."""
    if not prompt:
        raise ConfigError("the prompt is empty", hint="llama.cpp needs at least one token")
    dialect = next(d for d in DIALECTS if d.name == tool.dialect)
    argv = [program, "-m", model, *_COMMON, *dialect.flags]
    argv += ["-n", str(parameters.tokens), "-c", str(parameters.context)]
    argv += ["-b", str(parameters.batch), "-ub", str(parameters.ubatch)]
    argv += ["--seed", str(parameters.seed), "--temp", f"{parameters.temperature:g}"]
    if parameters.threads is not None:
        argv += ["-t", str(parameters.threads)]
    if parameters.ignore_eos:
        argv.append("--ignore-eos")
    if parameters.warmup is False:
        argv.append("--no-warmup")
    if parameters.repack is False:
        argv.append("--no-repack")
    return [*argv, "-p", prompt]
