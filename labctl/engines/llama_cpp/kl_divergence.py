"""llama-perplexity with ``--kl-divergence``: divergence from the model that wrote a file.

The file, ``base_logits`` of the recipe, has the other model's probabilities for each token of a
text, and the text's tokens (``labctl models logits`` writes it). The program prints the estimates
so far after each chunk on stdout, and final statistics at the end (``kl_divergence`` in
``tools/perplexity/perplexity.cpp``). If the file has a problem, the exit status is still 0.
"""

import math
import re

from labctl.engines.base import Inputs, RawOutput, Tool
from labctl.engines.llama_cpp import programs
from labctl.engines.llama_cpp.parameters import LlamaKlDivergenceParameters
from labctl.engines.llama_cpp.perplexity import PROGRAM, ChunkEngine, not_understood
from labctl.errors import ConfigError, LabctlError, ProgramFailed
from labctl.records.timing import Measure, TimingRecord
from labctl.records.trial import Check, JobStatus

#: Name of the recipe's file.
BASE_LOGITS = "base_logits"
#: The program prints no statistics for fewer tokens.
LEAST_TOKENS = 100

_NUMBER = rb"(-?[0-9]{1,40}\.[0-9]{1,10}|-?nan|-?inf)"
_PAIR = rb" *" + _NUMBER + rb" \xc2\xb1 *" + _NUMBER
_CHUNK = re.compile(
    rb"^ {0,3}([0-9]{1,10}) {2,4}" + _PAIR + _PAIR + _PAIR + _PAIR + rb" %" + _PAIR + rb" %$",
    re.MULTILINE,
)
_BEGUN = re.compile(rb"kl_divergence: computing over ([0-9]{1,10}) chunks, n_ctx=([0-9]{1,10}),")
_ESTIMATES = (
    ("perplexity", rb"^Mean PPL\(Q\) *:", 1),
    ("perplexity_base", rb"^Mean PPL\(base\) *:", 1),
    ("perplexity_ratio", rb"^Mean PPL\(Q\)/PPL\(base\) *:", 1),
    ("kl_divergence", rb"^Mean +KLD:", 1),
    ("probability_change_rms", rb"^RMS \xce\x94p *:", 100),
    ("same_top_token", rb"^Same top p:", 100),
)
_QUANTILES = (("kl_divergence_p99", rb"^99\.0% +KLD:"), ("kl_divergence_max", rb"^Maximum KLD:"))
_FAULTS = (
    (
        rb"inconsistent vocabulary",
        "the vocabularies of this model and the one that wrote base_logits differ",
        "only models with the same tokens can be compared",
    ),
    (
        rb"has been computed with [0-9]+, while the current context",
        "the chunks of base_logits are longer than the context",
        "set the parameter context to that of `labctl models logits`",
    ),
    (
        (
            rb"kl_divergence: failed to open|does not look like a file containing log-prob"
            rb"|kl_divergence: failed reading"
        ),
        "base_logits is not a complete file of logits",
        "write it with `labctl models logits`",
    ),
)


class LlamaKlDivergence(ChunkEngine[LlamaKlDivergenceParameters]):
    """Divergence of a model from another one, over a text."""

    task = "kl_divergence"
    parameters_model = LlamaKlDivergenceParameters
    files = (BASE_LOGITS,)

    def command(
        self, tool: Tool, parameters: LlamaKlDivergenceParameters, inputs: Inputs
    ) -> list[str]:
        """Return the argument vector; the text's tokens are in the file of logits."""
        if BASE_LOGITS not in inputs.files:
            raise ConfigError(
                "a KL divergence needs the logits of another model",
                hint=f"`labctl models logits` writes them; name the file in files.{BASE_LOGITS}",
            )
        words = ["--kl-divergence", "--kl-divergence-base", inputs.files[BASE_LOGITS]]
        words += ["-c", str(parameters.context)]
        return self._argv(tool, parameters, inputs, words)

    def diagnose(self, job: JobStatus, raw: RawOutput) -> LabctlError | None:
        """Return the error from its output, since the exit status is always 0.

        IntegrityError if its last output was lost; the trial is then retried.
        """
        output = raw.stderr + raw.stdout
        for pattern, message, hint in _FAULTS:
            if re.search(pattern, output):
                tail = raw.stderr[-1000:].decode(errors="replace")
                return ProgramFailed(f"llama.cpp failed: {message}", hint=hint, details=tail)
        if job.outcome == "exited":
            for row in _CHUNK.findall(raw.stdout):
                if not all(math.isfinite(float(row[column])) for column in (1, 5)):
                    return programs.not_a_number(raw, int(row[0]))
        if (failure := programs.diagnose(job, raw)) is not None or b"Same top p:" in raw.stdout:
            return failure
        begun = _BEGUN.search(output)
        if begun is None:
            return programs.recognised(raw)
        chunks, context = int(begun[1]), int(begun[2])
        if chunks * (context - 1 - context // 2) < LEAST_TOKENS:
            return ProgramFailed(
                f"llama.cpp gives no statistics on fewer than {LEAST_TOKENS} tokens",
                hint="write base_logits with more chunks, or with a longer context",
            )
        return programs.lost(raw, "its statistics")

    def parse(self, raw: RawOutput, parameters: LlamaKlDivergenceParameters) -> TimingRecord:
        """Parse the final estimates with standard errors, and the estimates after each chunk."""
        begun = _BEGUN.search(raw.stderr + raw.stdout)
        rows = _CHUNK.findall(raw.stdout)
        if begun is None or [int(row[0]) for row in rows] != list(range(1, int(begun[1]) + 1)):
            raise not_understood("its chunks are not numbered 1, 2, 3 …", raw)
        if int(begun[2]) != parameters.context:
            raise ProgramFailed(
                f"the chunks of base_logits have {int(begun[2])} tokens, the context is"
                f" {parameters.context}",
                hint=f"set the parameter context to {int(begun[2])}",
            )
        running = {
            "perplexity": tuple(float(row[1]) for row in rows),
            "kl_divergence": tuple(float(row[5]) for row in rows),
            "same_top_token": tuple(float(row[9]) / 100 for row in rows),
        }
        measures = [
            _estimate(name, _numbers(heading + _PAIR, raw), scale, running.get(name))
            for name, heading, scale in _ESTIMATES
        ]
        for name, heading in _QUANTILES:
            (value,) = _numbers(heading + rb" *" + _NUMBER, raw)
            measures.append(Measure(name=name, unit="1", values=(value,), value=value))
        found = {measure.name: measure for measure in measures}
        if abs(running["kl_divergence"][-1] - found["kl_divergence"].value) > 1e-5:
            raise not_understood("the last running estimate is not the final one", raw)
        if not 0 <= found["same_top_token"].value <= 1 or found["perplexity"].value < 1:
            raise not_understood("an estimate is out of its range", raw)
        return TimingRecord(perf_format=PROGRAM, measures=tuple(measures))

    def checks(
        self,
        timing_record: TimingRecord,  # noqa: ARG002 - parse has checked everything already
        parameters: LlamaKlDivergenceParameters,  # noqa: ARG002
    ) -> tuple[Check, ...]:
        """Return no checks: parse refuses the output unless all chunks of the file were read."""
        return ()


def _numbers(pattern: bytes, raw: RawOutput) -> tuple[float, ...]:
    found = re.findall(pattern, raw.stdout, re.MULTILINE)
    if len(found) != 1:
        raise not_understood(f"{len(found)} lines match {pattern[:24].decode()!r}", raw)
    numbers = found[0] if isinstance(found[0], tuple) else (found[0],)
    values = tuple(float(number) for number in numbers)
    if not math.isfinite(values[0]):
        raise not_understood("an estimate is not a number", raw)
    return values


def _estimate(
    name: str, numbers: tuple[float, ...], scale: int, running: tuple[float, ...] | None
) -> Measure:
    value, error = (number / scale for number in numbers)
    return Measure(
        name=name,
        unit="1",
        values=running or (value,),
        value=value,
        # For two equal models, some errors are square roots of values slightly below 0.
        error=error if math.isfinite(error) else None,
    )
