"""Errors in llama.cpp's last output.

Programs of newer versions print from a thread of their own that nobody waits for at the end
(``common_log_main`` in ``common/log.cpp``; llama-bench does not): what it has not printed by then
is lost, and the exit status is 0. On a busy machine, with a small model, that is common.
"""

import re
from dataclasses import dataclass

from labctl.engines.base import RawOutput
from labctl.engines.outcome import diagnose_outcome, succeeded
from labctl.errors import IntegrityError, LabctlError, ProgramFailed
from labctl.records import JobStatus

_TAIL_BYTES = 64 * 1024
_SHOWN_BYTES = 2000
_DEPLOY_AGAIN = "`labctl deploy` checks the board's copy and repairs it"
_SMALLER = "use a smaller model, a smaller context, or close what else runs on the board"


@dataclass(frozen=True)
class _Symptom:
    pattern: re.Pattern[str]
    message: str
    hint: str


def _symptom(pattern: str, message: str, hint: str) -> _Symptom:
    return _Symptom(re.compile(pattern), message, hint)


#: The first that is found is the cause; later lines are only its consequences.
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
        "is it a vocabulary, an adapter, or a model for a newer llama.cpp?",
    ),
    _symptom(
        r"unknown model architecture",
        "this version of llama.cpp does not know the model's architecture",
        "build a newer llama.cpp",
    ),
    _symptom(
        # As glibc and musl say ENOMEM.
        r"mmap failed: (?:Cannot allocate|Out of) memory|failed to allocate buffer for kv cache"
        r"|failed to allocate compute|unable to allocate|std::bad_alloc"
        r"|insufficient memory|failed to mmap"
        r"|GGML_ASSERT\(ctx->mem_buffer != NULL\) failed"
        # The return of pthread_create.
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
        r"Unexpected negative standard deviation|failed to open file|unexpected end of file",
        "the text was not read, or gave no estimate",
        "look at the end of its log",
    ),
    _symptom(
        r"error: failed to load model",
        "the model cannot be loaded",
        f"{_DEPLOY_AGAIN}; llama-bench shows no details: try the model with task: completion",
    ),
    _symptom(
        r"failed to create context",
        "the board has no memory for the context, or the program does not know its cache type",
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
        r"error: invalid (?:argument|parameter for argument): ",
        "this version of llama.cpp does not know one of the arguments",
        "is the artifact's version label right?",
    ),
)


def lost(raw: RawOutput, what: str) -> IntegrityError:
    """Return the error for a program that succeeded before its own log was printed.

    It says nothing about model or board: the trial is retried.
    """
    return IntegrityError(
        f"llama.cpp ended before it had printed {what}: it does not flush its log",
        hint="the trial is retried up to infra_retries times (recipe); a busy board"
        " makes it likelier",
        details=raw.stderr[-_SHOWN_BYTES:].decode(errors="replace") or None,
    )


def diagnose(job: JobStatus, raw: RawOutput) -> LabctlError | None:
    """See :meth:`labctl.engines.base.Engine.diagnose`."""
    if succeeded(job):
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
        if symptom.pattern.search(tail):
            return ProgramFailed(
                f"llama.cpp failed: {symptom.message}",
                hint=symptom.hint,
                details=tail[-_SHOWN_BYTES:],
            )
    return None
