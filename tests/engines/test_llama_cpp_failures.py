import pytest

from labctl.engines.base import RawOutput
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.errors import (
    BoardError,
    ConfigError,
    JobError,
    LeaseLost,
    ProgramFailed,
    ProgramTimeout,
)
from labctl.records.trial import JobStatus

ENGINE = LlamaCpp()


def job(status: int | None = 1, *, signal: int | None = None, outcome: str = "") -> JobStatus:
    return JobStatus(
        outcome=outcome or ("exited" if signal is None else "signaled"),
        exit_status=status if signal is None else None,
        signal=signal,
        error="Exec format error" if outcome == "spawn-failed" else None,
        start_mono_ns=0,
        end_mono_ns=90_000_000_000,
        wall_ns=90_000_000_000,
        stdout_bytes=1,
        stderr_bytes=2,
        boot_id="x",
        epoch=1,
    )


def said(text: str) -> RawOutput:
    return RawOutput(b"", text.encode(), b"")


def test_success_is_no_failure() -> None:
    assert ENGINE.diagnose(job(0), said("failed to read magic")) is None


@pytest.mark.parametrize(
    ("status", "line", "message", "hint"),
    [
        (
            1,
            "gguf_init_from_file: failed to open GGUF file '/x/m.gguf' (No such file or directory)",
            "not on the board",
            "labctl deploy",
        ),
        (
            1,
            "tensor 'blk.3.ffn_up.weight' data is not within the file bounds",
            "truncated",
            "labctl deploy",
        ),
        (1, "invalid magic characters: '<!do', expected 'GGUF'", "not a GGUF", "deploy"),
        (1, "gguf_init_from_reader: failed to read magic", "not a GGUF", "deploy"),
        (
            1,
            "check_tensor_dims: tensor 'token_embd.weight' not found",
            "tensors are missing",
            "vocabulary",
        ),
        (1, "llama_mmap: mmap failed: Cannot allocate memory", "ran out of memory", "smaller"),
        (1, "error loading model: mmap failed: Out of memory", "ran out of memory", "smaller"),
        (
            134,
            "ggml/src/ggml-cpu/ggml-cpu.c:3370: GGML_ASSERT(rc == 0) failed",
            "ran out of memory",
            "smaller",
        ),
        (1, "failed to allocate buffer for kv cache", "ran out of memory", "smaller context"),
        (1, "failed to allocate compute pp buffers", "ran out of memory", "smaller"),
        (1, "terminate called: std::bad_alloc", "ran out of memory", "smaller"),
        (134, "GGML_ASSERT(ctx->mem_buffer != NULL) failed", "ran out of memory", "smaller"),
        (1, "main: prompt is too long (900 tokens, max 508)", "does not fit", "context"),
        (1, "error: --no-conversation is not supported by llama-cli", "only chats", "completion"),
        (1, "error: invalid argument: -no-cnv", "only chats", "completion"),
        (1, "error: invalid argument: -fit", "refuses the argument -fit", "version"),
        (137, "", "SIGKILL: most likely by the kernel, because memory ran out", "smaller"),
        (132, "", "SIGILL: an instruction that this CPU does not support", "another CPU"),
        (130, "", "SIGINT", "again"),
        (143, "", "SIGTERM", "again"),
        (139, "", "SIGSEGV", ""),
        (
            135,
            "",
            "SIGBUS: most likely a page of a mapped file (the model) could not",
            "store verify",
        ),
        (3, "", "ended with status 3", ""),
        (255, "", "ended with status 255", ""),
    ],
)
def test_what_llama_cpp_says_is_put_in_words(
    status: int, line: str, message: str, hint: str
) -> None:
    error = ENGINE.diagnose(job(status), said(f"load: something\n{line}\nmain: error\n"))
    assert isinstance(error, ProgramFailed)
    assert message in error.message
    assert hint in (error.hint or "")
    assert line in (error.details or "")


@pytest.mark.parametrize(("signal", "name"), [(4, "SIGILL"), (9, "SIGKILL"), (6, "SIGABRT")])
def test_signals_told_by_the_agent(signal: int, name: str) -> None:
    error = ENGINE.diagnose(job(signal=signal), said(""))
    assert isinstance(error, ProgramFailed)
    assert name in error.message


@pytest.mark.parametrize(
    ("kills", "message"),
    [
        (None, "most likely by the kernel, because memory ran out"),
        (1, "SIGKILL: by the kernel, because memory ran out"),
        (0, "not by the kernel: it counted no out-of-memory kill"),
    ],
)
def test_what_the_kernel_counted_tells_who_killed(kills: int | None, message: str) -> None:
    error = ENGINE.diagnose(job(signal=9).model_copy(update={"oom_kills": kills}), said(""))
    assert message in str(error)


@pytest.mark.parametrize(
    ("outcome", "kind", "message"),
    [
        ("timeout", ProgramTimeout, "stopped after 90 s"),
        ("output-limit", ProgramFailed, "output limit"),
        ("spawn-failed", ProgramFailed, "Exec format error"),
        ("stopped", BoardError, "from outside"),
        ("stale-epoch", LeaseLost, "another controller"),
    ],
)
def test_other_ends(outcome: str, kind: type[Exception], message: str) -> None:
    error = ENGINE.diagnose(job(signal=9, outcome=outcome), said("mmap failed: Cannot allocate"))
    assert isinstance(error, kind)
    assert message in str(error)


def test_a_crash_is_the_jobs_blame() -> None:
    assert isinstance(ENGINE.diagnose(job(signal=11), said("")), JobError)


@pytest.mark.parametrize(
    ("status", "line", "words", "hint"),
    [
        (127, ("{}: error while loading shared libraries: libgomp.so.1: cannot open shared object"
         " file: No such file or directory"), "its library libgomp.so.1 is not", "statically"),
        (127, "Error loading shared library libc.so.6: No such file or directory (needed by {})",
         "its library libc.so.6 is not", "statically"),
        (1, 'CANNOT LINK EXECUTABLE "{}": library "libomp.so" not found: needed by main executable',
         "its library libomp.so is not", "statically"),
        (255, ("qemu-aarch64-static: Could not open '/lib/ld-linux-aarch64.so.1': No such file or"
         " directory"), "its loader /lib/ld-linux-aarch64.so.1 is not", "statically"),
        (127, "/usr/bin/env: \u2018python3\\r\u2019: No such file or directory",
         r"its interpreter python3\r is not", "line ends of Windows"),
        (127, "env: can't execute 'python3': No such file or directory",
         "its interpreter python3 is not", "first line"),
        (127, "env: exec python3: No such file or directory",
         "its interpreter python3 is not", "first line"),
        (127, "env: exec bash\r: No such file or directory",
         r"its interpreter bash\x0d is not", "line ends of Windows"),
    ],
)  # fmt: skip
def test_a_program_that_misses_a_part_is_a_fault_of_the_build(
    status: int, line: str, words: str, hint: str
) -> None:
    error = ENGINE.diagnose(job(status), said(f"{line.format('/d/llama-cli')}\n"))
    assert isinstance(error, ConfigError)
    assert words in error.message
    assert hint in str(error.hint)


def test_a_log_that_speaks_of_an_environment_is_no_missing_interpreter() -> None:
    error = ENGINE.diagnose(job(1), said("load: env: 'GGML_DEBUG' is not set\n"))
    assert isinstance(error, ProgramFailed)
    assert "GGML_DEBUG" not in error.message
