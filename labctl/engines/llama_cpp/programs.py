"""Programs and flags of llama.cpp by version.

The text-completion program was ``llama-cli`` until build 7348 (2025-12) and is ``llama-completion``
since; the newer ``llama-cli`` only chats. Both understand ``-no-cnv``, without which a model with a
chat template waits for a conversation. The other programs kept their names; a version that offers
``llama-completion`` is called with the newer flags.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from labctl.config.names import listed
from labctl.engines.base import Inputs, Tool
from labctl.engines.llama_cpp.parameters import (
    LlamaCppParameters,
    LlamaParameters,
    TimedParameters,
)
from labctl.errors import ConfigError

#: Names of version profiles: sets of flags.
NEW, CLASSIC = "new", "classic"
_MARK_OF_NEW = "llama-completion"


@dataclass(frozen=True)
class VersionProfile:
    """A program, and the flags that it alone understands."""

    name: str
    program: str
    flags: tuple[str, ...]
    #: Locks the weights in memory.
    lock: tuple[str, ...]
    #: Prints JSON with the program's own stamps.
    jsonl: tuple[str, ...] = ()


#: Best first. ``-fit off``: newer versions shrink the context by themselves otherwise.
COMPLETIONS = (
    VersionProfile(
        "completion", "llama-completion", ("-fit", "off"), ("-lm", "mmap+mlock"), ("--log-jsonl",)
    ),
    VersionProfile("classic", "llama-cli", (), ("--mlock",)),
)

#: The same in every version.
_COMMON = (
    "-no-cnv",
    "--no-display-prompt",  # the first byte of stdout belongs to the first generated token
    "--no-escape",  # a backslash in the prompt is a backslash
    "--no-context-shift",  # a full context ends the generation instead of forgetting silently
    "--simple-io",
)


def choose_completion(available: Collection[str], offered: Collection[str]) -> Tool:
    """Return the program that completes a text. Raises ConfigError."""
    profile = next((d for d in COMPLETIONS if d.program in {*offered, *available}), None)
    if profile is None:
        raise _not_offered("completion", offered, [d.program for d in COMPLETIONS])
    return _built(Tool(profile.program, profile.name), available, "completion")


def choose(program: str, task: str, available: Collection[str], offered: Collection[str]) -> Tool:
    """Return a program that has one name in all versions, with the flags of this one.

    Raises ConfigError.
    """
    everything = {*offered, *available}
    if program not in everything:
        raise _not_offered(task, offered, [program])
    profile = NEW if _MARK_OF_NEW in everything else CLASSIC
    return _built(Tool(program, profile), available, task)


def _not_offered(task: str, offered: Collection[str], wanted: Sequence[str]) -> ConfigError:
    present = listed(sorted(offered), joiner="and") if offered else "nothing"
    return ConfigError(
        f"this version of llama.cpp has no program for {task}: it offers {present}",
        hint=f"use one that has {listed(wanted)}",
    )


def _built(tool: Tool, available: Collection[str], task: str) -> Tool:
    if tool.name not in available:
        raise ConfigError(
            f"the artifact has no {tool.name}, which {task} needs",
            hint=f"build it: labctl build … --tool {tool.name}",
        )
    return tool


def common_words(parameters: LlamaParameters) -> list[str]:
    """Return the flags that all programs share."""
    words = ["-b", str(parameters.batch), "-ub", str(parameters.ubatch)]
    if parameters.threads is not None:
        words += ["-t", str(parameters.threads)]
    if isinstance(parameters, TimedParameters) and parameters.warmup is False:
        words.append("--no-warmup")
    return words


def complete(tool: Tool, parameters: LlamaCppParameters, inputs: Inputs) -> list[str]:
    """Return the command of a text completion. Raises ConfigError for an empty prompt."""
    if not inputs.prompt:
        raise ConfigError("the prompt is empty", hint="llama.cpp needs at least one token")
    profile = next(d for d in COMPLETIONS if d.name == tool.profile)
    argv = [*start(inputs), *_COMMON, *profile.flags]
    argv += ["-n", str(parameters.tokens), "-c", str(parameters.context)]
    argv += ["--seed", str(parameters.seed), "--temp", f"{parameters.temperature:g}"]
    argv += common_words(parameters)
    if parameters.ignore_eos:
        argv.append("--ignore-eos")
    if parameters.repack is False:
        argv.append("--no-repack")
    if parameters.mlock:
        argv += profile.lock
    if parameters.log_jsonl:
        if not profile.jsonl:
            raise ConfigError(
                "parameters: log_jsonl: this version of llama.cpp has no --log-jsonl",
                hint="leave it out, or use a version that has llama-completion",
            )
        argv += profile.jsonl
    return [*argv, "-p", inputs.prompt]


def start(inputs: Inputs) -> list[str]:
    """Program and model."""
    if inputs.model is None:
        raise ConfigError("llama.cpp needs a model", hint="name one in the recipe's models")
    return [inputs.program, "-m", inputs.model]
