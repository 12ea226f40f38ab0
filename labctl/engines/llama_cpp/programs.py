"""Programs and flags of llama.cpp by version.

Text completion was ``llama-cli`` until build 7348 (2025-12); since then it is ``llama-completion``,
and ``llama-cli`` only chats. Both need ``-no-cnv``: otherwise a model with a chat template waits
for a conversation. The other programs kept their names; a version that offers ``llama-completion``
is called with the newer flags.

Newer versions print from a separate thread, and do not wait for it at the end (``common_log_main``
in ``common/log.cpp``; llama-bench does not): output not printed by then is lost, and the exit
status is 0. labctl builds them with a patch that prints it
(``toolchains/products/patches/llama.cpp``); a program built elsewhere, on a busy machine, may still
lose its last lines.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from labctl.config.recipe_parts import cpu_numbers
from labctl.engines.base import Inputs, RawOutput, Tool
from labctl.engines.llama_cpp.parameters import (
    LlamaBenchParameters,
    LlamaCppParameters,
    LlamaParameters,
    P,
    TimedParameters,
)
from labctl.engines.outcome import diagnose_outcome
from labctl.errors import ConfigError, IntegrityError, LabctlError, ProgramFailed
from labctl.records.trial import JobStatus
from labctl.suggestions import listed

#: Names of version profiles: sets of flags.
NEW, CLASSIC = "new", "classic"
_MARK_OF_NEW = "llama-completion"


@dataclass(frozen=True)
class VersionProfile:
    """A program and its flags."""

    name: str
    program: str
    flags: tuple[str, ...]
    #: Prints JSON with the program's own stamps.
    jsonl: tuple[str, ...] = ()


#: Best first. ``-fit off``: newer versions otherwise shrink the context by themselves.
COMPLETIONS = (
    VersionProfile("completion", "llama-completion", ("-fit", "off"), ("--log-jsonl",)),
    VersionProfile(CLASSIC, "llama-cli", ()),
)

#: Characters that end a path in ``--lora-scaled PATH:SCALE,…``.
_LORA_SEPARATORS = ':,"'
#: Flags that are the same in every version.
_COMMON = (
    "-no-cnv",
    "--no-display-prompt",  # the first byte of stdout belongs to the first generated token
    "--no-escape",  # keep backslashes in the prompt
    "--no-context-shift",  # a full context ends the generation instead of forgetting silently
    "--simple-io",
)


def choose_completion(available: Collection[str], offered: Collection[str]) -> Tool:
    """Return the program for text completion. Raises ConfigError."""
    profile = next((d for d in COMPLETIONS if d.program in {*offered, *available}), None)
    if profile is None:
        raise _not_offered("completion", offered, [d.program for d in COMPLETIONS])
    return _built(Tool(profile.program, profile.name), available, "completion")


def choose(program: str, task: str, available: Collection[str], offered: Collection[str]) -> Tool:
    """Return a program that has the same name in all versions, with the flags of this version.

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
        f"this version of llama.cpp has no program for {task}; it has {present}",
        hint=f"use one that has {listed(wanted)}",
    )


def _built(tool: Tool, available: Collection[str], task: str) -> Tool:
    if tool.name not in available:
        raise ConfigError(
            f"the artifact has no {tool.name}, which {task} needs",
            hint=f"build it: labctl build … --tool {tool.name}",
        )
    return tool


def common_words(tool: Tool, parameters: LlamaParameters, inputs: Inputs) -> list[str]:
    """Return the flags that all programs share, as this version of this program knows them.

    Values that are llama.cpp's defaults in all versions are left out. Raises ConfigError if the
    version has no flag for one.
    """
    words = ["-b", str(parameters.batch), "-ub", str(parameters.ubatch)]
    words += ["-ctk", parameters.cache_type_k, "-ctv", parameters.cache_type_v]
    if parameters.threads is not None:
        words += ["-t", str(parameters.threads)]
    if isinstance(parameters, TimedParameters) and parameters.warmup is False:
        words.append("--no-warmup")
    is_bench = isinstance(parameters, LlamaBenchParameters)
    switches = _bench_switches if is_bench else _switches
    return [*words, *switches(tool, parameters), *_placement(parameters, inputs)]


def _bench_switches(tool: Tool, parameters: LlamaParameters) -> list[str]:
    """Return switches that are 0 or 1 for llama-bench; all of them are passed."""
    words = []
    if parameters.flash_attention is not None:
        values = ("off", "on") if tool.profile == NEW else ("0", "1")
        words += ["-fa", values[parameters.flash_attention]]
    if tool.profile == NEW:
        words += ["-lm", "mmap" if parameters.mmap else "none"]
        return [*words, "--repack", "0" if parameters.repack is False else "1"]
    if parameters.repack is False:
        raise ConfigError(
            "this version's llama-bench has no option to disable repacking",
            hint="use a newer version, or set repack: true if the copies fit in memory",
        )
    return [*words, "-mmp", "1" if parameters.mmap else "0"]


def _switches(tool: Tool, parameters: LlamaParameters) -> list[str]:
    words = ["--no-repack"] if parameters.repack is False else []
    locked = isinstance(parameters, LlamaCppParameters) and parameters.mlock
    if tool.profile == CLASSIC:
        words += ["-fa"] if parameters.flash_attention else []
        words += [] if parameters.mmap else ["--no-mmap"]
        return [*words, "--mlock"] if locked else words
    if parameters.flash_attention is not None:
        words += ["-fa", "on" if parameters.flash_attention else "off"]
    if locked or not parameters.mmap:
        modes = ["mmap"] * parameters.mmap + ["mlock"] * locked
        words += ["-lm", "+".join(modes) or "none"]
    return words


def _placement(parameters: LlamaParameters, inputs: Inputs) -> list[str]:
    """Return the flags for CPUs, polling and priority of threads, of prompts too.

    With ``-tb``, threads for prompts are a pool of their own, which inherits nothing from the other
    (``postprocess_cpu_params`` in ``common/common.cpp``).
    """
    threads, batch = parameters.threads, getattr(parameters, "threads_batch", None)
    words, of_batch = [], []
    if parameters.cpu_strict:
        allowed = cpu_numbers(inputs.cpus) if inputs.cpus else range(max(threads or 1, batch or 1))
        mask = f"0x{sum(1 << cpu for cpu in allowed):x}"
        words += ["-C", mask, "--cpu-strict", "1"]
        of_batch += ["-Cb", mask, "--cpu-strict-batch", "1"]
    for name in ("poll", "prio"):
        value = getattr(parameters, name)
        if value != LlamaParameters.model_fields[name].default:
            words += [f"--{name}", str(value)]
            of_batch += [f"--{name}-batch", str(value)]
    if batch in (None, threads):
        return words
    return [*words, "-tb", str(batch), *of_batch]


def complete(tool: Tool, parameters: LlamaCppParameters, inputs: Inputs) -> list[str]:
    """Return the command of a text completion. Raises ConfigError for an empty prompt."""
    if not inputs.prompt:
        raise ConfigError("the prompt is empty", hint="llama.cpp needs at least one token")
    profile = next(d for d in COMPLETIONS if d.name == tool.profile)
    argv = [*start(tool, inputs), *_COMMON, *profile.flags]
    argv += ["-n", str(parameters.tokens), "-c", str(parameters.context)]
    argv += ["--seed", str(parameters.seed), "--temp", f"{parameters.temperature:g}"]
    argv += common_words(tool, parameters, inputs)
    if parameters.ignore_eos:
        argv.append("--ignore-eos")
    if parameters.log_jsonl:
        if not profile.jsonl:
            raise ConfigError(
                "parameters: log_jsonl: this version of llama.cpp has no --log-jsonl",
                hint="leave it out, or use a version that has llama-completion",
            )
        argv += profile.jsonl
    return [*argv, "-p", inputs.prompt]


def for_version(tool: Tool, parameters: P) -> P:
    """Decide the parameters whose default differs between versions."""
    if parameters.flash_attention is not None:
        return parameters
    return parameters.model_copy(update={"flash_attention": tool.profile != CLASSIC})


def start(tool: Tool, inputs: Inputs) -> list[str]:
    """Return program, model and adapters. Raises ConfigError."""
    if inputs.model is None:
        raise ConfigError("llama.cpp needs a model", hint="name one in the recipe's models")
    words = [inputs.program, "-m", inputs.model]
    if tool.profile == CLASSIC:
        return words + [
            word for path, scale in inputs.adapters for word in ("--lora-scaled", path, repr(scale))
        ]
    for path, _ in inputs.adapters:
        if wrong := sorted(set(path) & set(_LORA_SEPARATORS)):
            raise ConfigError(
                f"the path of an adapter has a {wrong[0]!r} in it, which llama.cpp takes for a"
                f" separator: {path}",
                hint="put it elsewhere",
            )
    scaled = ",".join(f"{path}:{scale!r}" for path, scale in inputs.adapters)
    return [*words, "--lora-scaled", scaled] if scaled else words


_TAIL_BYTES = 64 * 1024
_SHOWN_BYTES = 2000
_DEPLOY_AGAIN = "`labctl deploy` checks the board's copy and repairs it"
_BROKEN = (
    "the quantization is most likely broken: quantize the model again from its original, or take"
    " another file; if the same file gives numbers elsewhere, build llama.cpp anew for this CPU"
)
_SMALLER = "use a smaller model, a smaller context, or close what else runs on the board"


@dataclass(frozen=True)
class _Symptom:
    pattern: re.Pattern[str]
    message: str
    hint: str


def _symptom(pattern: str, message: str, hint: str) -> _Symptom:
    return _Symptom(re.compile(pattern), message, hint)


#: The first match is the cause; later lines only follow from it.
_SYMPTOMS = (
    _symptom(
        r"failed to open GGUF file.{0,4096}?\(No such file or directory\)",
        "the model is not on the board",
        _DEPLOY_AGAIN,
    ),
    _symptom(r"failed to open GGUF file", "the model on the board cannot be opened", _DEPLOY_AGAIN),
    _symptom(
        r"data is not within the file bounds",
        "the model on the board is truncated",
        _DEPLOY_AGAIN,
    ),
    _symptom(
        r"invalid magic characters|failed to read magic",
        "the model on the board is not a GGUF file",
        _DEPLOY_AGAIN,
    ),
    _symptom(
        r"tensor '[^']{1,200}' not found",
        "tensors are missing in the model that this program needs",
        "it may be a vocabulary, an adapter, or a model for a newer llama.cpp",
    ),
    _symptom(
        r"unknown model architecture",
        "this version of llama.cpp does not support the model's architecture",
        "build a newer llama.cpp",
    ),
    _symptom(
        # Texts of glibc and musl for ENOMEM.
        r"mmap failed: (?:Cannot allocate|Out of) memory|failed to allocate buffer for kv cache"
        r"|failed to allocate compute|unable to allocate|std::bad_alloc"
        r"|insufficient memory|failed to mmap"
        r"|GGML_ASSERT\(ctx->mem_buffer != NULL\) failed"
        # Return value of pthread_create.
        r"|ggml-cpu\.c:\d{1,9}: GGML_ASSERT\(rc == 0\) failed",
        "the board ran out of memory",
        _SMALLER,
    ),
    _symptom(
        r"you need at least [0-9]{1,20} tokens to evaluate perplexity",
        "the text is too short for one chunk and its context",
        "use a longer text, or a smaller parameter context",
    ),
    _symptom(
        r"Unexpected negative standard deviation",
        "log(prob) has no standard deviation: it is NaN (not a number), or the same everywhere",
        _BROKEN,
    ),
    _symptom(
        r"failed to open file|unexpected end of file",
        "the text was not read",
        "check the end of its log",
    ),
    _symptom(
        r"error: failed to load model",
        "the model cannot be loaded",
        f"{_DEPLOY_AGAIN}; llama-bench shows no details: try the model with task: completion",
    ),
    _symptom(
        r"cache type \w{1,20} with block size \d{1,9} does not divide",
        "a cache of this type needs wider heads than the model has",
        "use a type without blocks: f16, bf16 or f32",
    ),
    _symptom(
        r"failed to create context",
        "the board has too little memory for the context, or the program does not know its cache"
        " type",
        _SMALLER,
    ),
    _symptom(
        r"prompt is too long",
        "the prompt does not fit in the context",
        "raise the parameter context, or shorten the prompt",
    ),
    _symptom(
        r"invalid argument: -no-cnv|--no-conversation is not supported by llama-cli",
        "this llama-cli only chats",
        "build the artifact with llama-completion",
    ),
    _symptom(
        r"error: (?:invalid|unknown) (?:argument|parameter for argument): (?P<what>-[\w-]{1,60})",
        "this version of llama.cpp refuses the argument",
        "leave out the parameter that needs it, or use another version",
    ),
)


def lost(raw: RawOutput, what: str) -> IntegrityError:
    """Return the error for a program that succeeded before its own log was printed.

    The trial is retried: this says nothing about model or board.
    """
    return IntegrityError(
        f"llama.cpp ended before printing {what}: it does not flush its log",
        hint=(
            "the trial is retried up to infra_retries times (recipe); this is more"
            " likely on a busy board"
        ),
        details=raw.stderr[-_SHOWN_BYTES:].decode(errors="replace") or None,
    )


def not_a_number(raw: RawOutput, chunk: int | None) -> ProgramFailed:
    """Return the error for a model whose probabilities become NaN or infinite, from a chunk on."""
    since = "" if chunk is None else f" from chunk {chunk} on"
    return ProgramFailed(
        f"the model's probabilities are NaN (not a number){since}",
        hint=_BROKEN,
        details=raw.stderr[-_SHOWN_BYTES:].decode(errors="replace") or None,
    )


def diagnose(job: JobStatus, raw: RawOutput) -> LabctlError | None:
    """See :meth:`labctl.engines.base.Engine.diagnose`."""
    if job.succeeded:
        return None
    tail = raw.stderr[-_TAIL_BYTES:].decode(errors="replace")
    shown = tail[-_SHOWN_BYTES:]
    if job.outcome in ("exited", "signaled") and (found := recognised(raw)):
        return found
    return diagnose_outcome(job, program="llama.cpp", output_tail=shown)


def recognised(raw: RawOutput) -> ProgramFailed | None:
    """Return the failure that the last output reports, with any exit status."""
    tail = raw.stderr[-_TAIL_BYTES:].decode(errors="replace")
    for symptom in _SYMPTOMS:
        if match := symptom.pattern.search(tail):
            what = match.groupdict().get("what")
            return ProgramFailed(
                f"llama.cpp failed: {symptom.message}{f' {what}' if what else ''}",
                hint=symptom.hint,
                details=tail[-_SHOWN_BYTES:],
            )
    return None
