"""Performance lines that llama.cpp prints at its end.

Three forms (``common/sampling.cpp``, ``src/llama-context.cpp``, older ``llama.cpp``):
``common_perf_print:`` after a time stamp, ``llama_perf_context_print:`` with
``llama_perf_sampler_print:``, and ``llama_print_timings:``. Fields are read by name. Rates are not
read: they are quotients of the other fields, and ``inf`` for one token.
"""

import re
from dataclasses import dataclass
from itertools import chain

from labctl.engines.base import lines_of
from labctl.errors import OutputNotUnderstood

_ANSI = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_LINE = re.compile(
    r"(?P<form>common_perf_print|llama_perf_context_print|llama_perf_sampler_print"
    r"|llama_print_timings): {0,20}"
    r"(?P<field>load|sampling|samplers|sample|prompt eval|eval|total) time = {1,20}"
    r"(?P<ms>[0-9]{1,12}\.[0-9]{1,3}) ms(?: / {1,20}(?P<count>[0-9]{1,10}) (?:tokens|runs))?"
)
COMMON_PERF = "common_perf"
_FORMS = {
    "common_perf_print": COMMON_PERF,
    "llama_perf_context_print": "llama_perf",
    "llama_perf_sampler_print": "llama_perf",
    "llama_print_timings": "llama_print_timings",
}
_TOTAL = re.compile(
    rb"(?:common_perf_print|llama_perf_context_print|llama_print_timings): {0,20}total time = "
)
#: Each number is rounded to 0.01 ms.
_ROUNDING_NS = 50_000
_REQUIRED = ("prompt eval", "eval", "total")


@dataclass(frozen=True)
class Perf:
    """The program's own numbers; durations in ns, ``None`` if not measured.

    ``load_ns``: time from the start of loading to the end of the first pass over the weights. This
    pass is the warm-up, or without warm-up the prompt, which also counts in ``prompt_eval_ns``;
    newer programs then lose the loading time.
    """

    form: str
    load_ns: int | None
    prompt_eval_ns: int | None
    prompt_tokens: int | None
    eval_ns: int | None
    eval_runs: int
    sampling_ns: int | None
    total_ns: int

    @property
    def prompt_was_a_run(self) -> bool:
        """True if the prompt counts as ``eval``, like every pass over a single token.

        Source: ``llama_context::synchronize`` in ``src/llama-context.cpp``.
        """
        return self.prompt_eval_ns is None and self.eval_runs > 0

    @property
    def decode_steps(self) -> int:
        """Number of passes after the first generated token, up to the last."""
        return self.eval_runs - self.prompt_was_a_run

    @property
    def generated_tokens(self) -> int:
        """Number of generated tokens: one from the prompt, and one for each decode step."""
        return self.decode_steps + 1

    @property
    def decode_ns(self) -> int:
        """Time of the decode steps."""
        return (self.eval_ns or 0) - self._prompt_run_ns

    @property
    def _prompt_run_ns(self) -> int:
        return (self.eval_ns or 0) // self.eval_runs if self.prompt_was_a_run else 0

    def after_prompt_ns(self, *, warmup: bool) -> int:
        """Return ``total`` without the prompt, in ns: the decode steps and the work around them.

        Without a warm-up, ``total`` of older programs also includes loading.
        """
        if not warmup and self.form != COMMON_PERF:
            return self.total_ns - (self.load_ns or 0)
        return self.total_ns - (self.prompt_eval_ns or self._prompt_run_ns)


def has_performance(stderr: bytes) -> bool:
    """Return True if there is a performance line of a known form."""
    return any(form.encode() + b":" in stderr for form in _FORMS)


def has_total(stderr: bytes) -> bool:
    """Return True if the last required line is present."""
    return _TOTAL.search(stderr) is not None


def parse_perf(stderr: bytes, *, limit: int) -> Perf:
    """Find the performance lines in the program's stderr.

    Args:
        stderr: the raw stream.
        limit: requested number of tokens.

    Raises OutputNotUnderstood if lines are missing or impossible.
    """
    form, ns, counts = _fields(stderr)
    # A count is never printed as 0, even if nothing ran; a time of 0.00 ms shows that.
    perf = Perf(
        form=form,
        load_ns=ns.get("load"),
        prompt_eval_ns=ns["prompt eval"] or None,
        prompt_tokens=counts["prompt eval"] if ns["prompt eval"] else None,
        eval_ns=ns["eval"] or None,
        eval_runs=counts["eval"] if ns["eval"] else 0,
        sampling_ns=ns.get("sampling", ns.get("sample")),
        total_ns=ns["total"],
    )
    parts_ns = (perf.prompt_eval_ns or 0) + (perf.eval_ns or 0)
    if parts_ns > perf.total_ns + _ROUNDING_NS:
        raise OutputNotUnderstood(
            f"llama.cpp's prompt eval and eval took {parts_ns / 1e6:.2f} ms,"
            f" its total is {perf.total_ns / 1e6:.2f} ms"
        )
    if perf.generated_tokens > limit:
        raise OutputNotUnderstood(
            f"llama.cpp reports {perf.generated_tokens} generated tokens, but {limit} were"
            " requested"
        )
    return perf


def _fields(stderr: bytes) -> tuple[str, dict[str, int], dict[str, int]]:
    """Return the form of the lines, their times in ns, and their counts, by field.

    Raises OutputNotUnderstood if a field is missing or occurs twice.
    """
    forms: set[str] = set()
    ns: dict[str, int] = {}
    counts: dict[str, int] = {}
    twice: set[str] = set()
    timed = (line for line in lines_of(stderr) if b"time" in line)
    lines = (_ANSI.sub("", line.decode(errors="replace")) for line in timed)
    for match in chain.from_iterable(map(_LINE.finditer, lines)):
        forms.add(_FORMS[match["form"]])
        field = match["field"]
        if field in ns:
            twice.add(field)
        ns[field] = _ms_to_ns(match["ms"])
        if match["count"]:
            counts[field] = int(match["count"])
    missing = [field for field in _REQUIRED if field not in ns]
    missing += [f"{field} count" for field in ("prompt eval", "eval") if field not in counts]
    if missing:
        raise OutputNotUnderstood(
            f"llama.cpp's performance lines are incomplete: no {', no '.join(missing)}"
            if forms
            else "no performance lines of llama.cpp; expected common_perf_print,"
            " llama_perf_context_print and llama_print_timings",
            hint="-lv 0, -lv 1, --log-disable and --no-perf suppress them",
            details=stderr[-2000:].decode(errors="replace") or None,
        )
    if len(forms) > 1:
        raise OutputNotUnderstood(
            f"performance lines of different programs are mixed: {', '.join(sorted(forms))}"
        )
    if twice:
        # A model's metadata, which llama.cpp also prints, can contain any text.
        raise OutputNotUnderstood(
            f"llama.cpp's performance lines appear twice: {', '.join(sorted(twice))}"
        )
    return forms.pop(), ns, counts


def _ms_to_ns(text: str) -> int:
    whole, _, fraction = text.partition(".")
    return int(whole) * 1_000_000 + int(fraction.ljust(6, "0"))
