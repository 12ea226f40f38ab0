"""What llama.cpp prints, made from numbers, for tests of what is read from it."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from labctl.engines.base import RawOutput

MS = 1_000_000
READY = b"generate: n_ctx = 512, n_batch = 2048, n_predict = 32, n_keep = 0\n\n"


def perf_new(
    *, prompt_ms: float, prompt_tokens: int, eval_ms: float, runs: int, total_ms: float
) -> str:
    """The lines of 2026."""
    prompt = f"{prompt_ms:10.2f} ms / {prompt_tokens:5d} tokens"
    decode = f"{eval_ms:10.2f} ms / {runs:5d} runs  "
    rates = "(  274.33 ms per token,     3.65 tokens per second)"
    lines = (
        "   sampling time =      18.24 ms",
        "   samplers time =      13.94 ms /    23 tokens",
        "       load time =    3059.72 ms",
        f"prompt eval time = {prompt} {rates}",
        f"       eval time = {decode} {rates}",
        f"      total time = {total_ms:10.2f} ms / {prompt_tokens + runs:5d} tokens",
        "unaccounted time =      12.18 ms /   0.2 %      (total - sampling - prompt eval - eval)",
        "   graphs reused =         14",
    )
    return "".join(f"0.12.548.131 I common_perf_print: {line}\n" for line in lines)


def perf_of(
    form: str, *, prompt_ms: float, prompt_tokens: int, eval_ms: float, runs: int, total_ms: float
) -> str:
    """The lines of a version, by the name of their form in records."""
    if form == "common_perf":
        return perf_new(
            prompt_ms=prompt_ms,
            prompt_tokens=prompt_tokens,
            eval_ms=eval_ms,
            runs=runs,
            total_ms=total_ms,
        )
    name = "llama_perf_context_print" if form == "llama_perf" else "llama_print_timings"
    lines = (
        "       load time =    2210.05 ms",
        f"prompt eval time = {prompt_ms:10.2f} ms / {prompt_tokens:5d} tokens",
        f"       eval time = {eval_ms:10.2f} ms / {runs:5d} runs",
        f"      total time = {total_ms:10.2f} ms / {prompt_tokens + runs:5d} tokens",
    )
    return "".join(f"{name}: {line}\n" for line in lines)


@dataclass
class Session:
    """A job's streams and its timeline, written as a board's agent would."""

    start_ns: int = 1_000_000_000
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    lines: list[str] = field(default_factory=list)

    def out(self, at_ms: float, data: bytes) -> None:
        """One read from stdout."""
        self._entry(at_ms, 1, self.stdout, data)

    def err(self, at_ms: float, data: bytes) -> None:
        """One read from stderr."""
        self._entry(at_ms, 2, self.stderr, data)

    def ready(self, at_ms: float) -> None:
        """The last line before the prompt is read."""
        self.err(at_ms, READY)

    def _entry(self, at_ms: float, stream: int, buffer: bytearray, data: bytes) -> None:
        at = self.start_ns + round(at_ms * MS)
        self.lines.append(f"{at} {stream} {len(buffer)} {len(data)}\n")
        buffer += data

    def raw(self) -> RawOutput:
        """The files."""
        head = f"labctl-timeline 1 {self.start_ns}\n"
        return RawOutput(
            bytes(self.stdout), bytes(self.stderr), (head + "".join(self.lines)).encode()
        )


def session(
    texts: list[bytes],
    *,
    token_ms: float = 100.0,
    first_ms: float = 1000.0,
    prompt_ms: float = 500.0,
    tokens: int | None = None,
    tail: bytes = b"\n\n",
) -> Session:
    """A completion whose token ``n`` arrives at ``first + n * token``; ``tokens`` is what llama.cpp
    counts, where it is not the number of texts."""
    made = Session()
    made.ready(first_ms - prompt_ms)
    for number, text in enumerate(texts):
        made.out(first_ms + number * token_ms, text)
    count = len(texts) if tokens is None else tokens
    end = first_ms + (len(texts) - 1) * token_ms
    if tail:
        made.out(end + 0.1, tail)
    eval_ms = (count - 1) * token_ms
    perf = perf_new(
        prompt_ms=prompt_ms,
        prompt_tokens=7,
        eval_ms=eval_ms,
        runs=max(1, count - 1),
        total_ms=prompt_ms + eval_ms + 1,
    )
    made.err(end + 1, perf.encode())
    return made


def completion(
    times_ms: Sequence[float],
    *,
    form: str = "common_perf",
    silent: Collection[int] = (),
    together: Collection[int] = (),
    end_of_text: bool = False,
    ready_line: bool = True,
    prompt_ms: float = 500.0,
) -> Session:
    """A completion whose tokens are made at known times, as the agent stamps it.

    ``silent`` tokens print nothing; what a token of ``together`` prints is read with the next one's
    text. With ``end_of_text`` the last token shows as llama.cpp's own words. Without ``ready_line``
    standard error is read once, at the end.
    """
    made = Session()
    if ready_line:
        made.ready(times_ms[0] - prompt_ms - 0.3)
    held = b""
    for number, at in enumerate(times_ms):
        last = end_of_text and number == len(times_ms) - 1
        held += b" [end of text]\n" if last else b"" if number in silent else b" word"
        if number not in together and held:
            made.out(at, held)
            held = b""
    end = times_ms[-1]
    made.out(end + 0.05, b"\n\n")
    eval_ms = end - times_ms[0]
    perf = perf_of(
        form,
        prompt_ms=prompt_ms,
        prompt_tokens=7,
        eval_ms=eval_ms * 0.995,
        runs=max(1, len(times_ms) - 1),
        total_ms=prompt_ms + eval_ms + 1,
    )
    made.err(end + 1, (b"" if ready_line else READY) + perf.encode())
    return made


def completion_jsonl(
    made_ms: Sequence[float],
    *,
    late_ms: Mapping[int, float] | None = None,
    together: Collection[int] = (),
    silent: Collection[int] = (),
    end_of_text: bool = False,
    step_ms: float = 0,
    before: Sequence[tuple[str, str]] = (),
) -> Session:
    """A completion with ``--log-jsonl``, whose program stamps each token as it is made.

    The agent reads a token later by ``late_ms``, one of ``together`` with the next one. The wall
    clock, from which the program's stamps are, is set forward by ``step_ms`` before the last token.
    ``before`` are entries of the log (level, message) before the prompt.
    """
    late = late_ms or {}
    made = Session()
    prompt_ms = 500.0
    began = made_ms[0] - prompt_ms - 0.3
    for level, message in (*before, ("info", READY.decode()[:-1]), ("info", "\n")):
        made.out(began, entry(began, level, message))
    held = b""
    for number, at in enumerate(made_ms):
        last = number == len(made_ms) - 1
        stamp = at + (step_ms if last else 0)
        held += entry(stamp, "none", "" if number in silent or (last and end_of_text) else " word")
        if last and end_of_text:
            held += entry(stamp, "none", " [end of text]\n")
        if number not in together:
            made.out(at + late.get(number, 0), held)
            held = b""
    end = made_ms[-1] + late.get(len(made_ms) - 1, 0) + 0.05
    made.out(end, held + entry(end + step_ms, "none", "\n\n"))
    eval_ms = made_ms[-1] - made_ms[0]
    perf = perf_new(
        prompt_ms=prompt_ms,
        prompt_tokens=7,
        eval_ms=eval_ms * 0.995,
        runs=max(1, len(made_ms) - 1),
        total_ms=prompt_ms + eval_ms + 1,
    )
    for line in perf.splitlines(keepends=True):
        made.out(end + 0.1, entry(end + step_ms, "info", line.partition(" I ")[2]))
    made.out(end + 0.2, b'{"type":"fit_memory_breakdown","data":{"unit":"MiB","rows":[]}}\n')
    return made


def entry(at_ms: float, level: str, message: str) -> bytes:
    """A line of ``--log-jsonl``."""
    words = {"type": "log", "time": round(at_ms * 1000), "level": level, "msg": message}
    return json.dumps(words, separators=(",", ":")).encode() + b"\n"
