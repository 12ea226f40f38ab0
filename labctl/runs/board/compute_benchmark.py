"""Measure the speed of a board's arithmetic, with a small model that stays in memory."""

from collections.abc import Mapping
from pathlib import Path

from labctl.board.job import STDERR, STDOUT, TIMELINE
from labctl.board.measuring import Measuring
from labctl.config.lab import Board, LabFile
from labctl.config.recipe import Recipe
from labctl.engines.base import Inputs, RawOutput
from labctl.engines.registry import COMPUTE_BENCHMARK
from labctl.errors import ConfigError, OutputNotUnderstood
from labctl.records.probe import ComputeRate
from labctl.runs.board.deploy_preview import program_path
from labctl.runs.board.session import BoardSession
from labctl.runs.inputs.prepare import Prepared, RecipeFiles, find_files

_TIMEOUT_SECONDS = 1200.0
_MODEL = "small"


def benchmark_files(path: Path, board: Board, lab: LabFile) -> RecipeFiles:
    """Find the program for the board, and the model. Raises ConfigError."""
    recipe = Recipe.model_validate(
        {
            "name": "probe",
            "target": board.target,
            "engine": COMPUTE_BENCHMARK.engine,
            "models": {_MODEL: {"file": str(path.resolve())}},
            "parameters": COMPUTE_BENCHMARK.parameters,
            "max_time": f"{_TIMEOUT_SECONDS:g}s",
        }
    )
    return find_files(recipe, board, lab.root)


def compute_rate(
    held: BoardSession, prepared: Prepared, measuring: Measuring, paths: Mapping[str, str]
) -> ComputeRate:
    """Run the benchmark; ``paths`` are the paths of its files on the board, by SHA-256.

    Raises ConfigError (the model does not fit in half of the free memory, so it would measure
    storage), JobError (the program failed, or its output is not understood), LinkError, BoardError.
    """
    engine, file = prepared.engine, prepared.models[_MODEL]
    model = file.identity
    asked = COMPUTE_BENCHMARK.parameters
    parameters = engine.resolved(prepared.tool, asked, held.facts, model).parameters
    need = engine.memory(parameters, model)
    free = held.facts.memory_available_bytes
    if need is not None and free is not None and need.total_bytes > free / 2:
        raise ConfigError(
            f"{file.path.name} takes more than half of the board's free memory",
            hint="name a smaller model",
        )
    inputs = Inputs(program_path(prepared, paths), paths[model.sha256])
    argv = tuple(engine.command(prepared.tool, parameters, inputs))
    job = measuring.job(argv, _TIMEOUT_SECONDS)
    raw = RawOutput(*(job.files.get(name, b"") for name in (STDOUT, STDERR, TIMELINE)))
    failure = engine.diagnose(job.status, raw)
    if failure is not None:
        raise failure
    timing = engine.parse(raw, parameters)
    built = engine.build_check(timing, prepared.revision)
    if built is not None and built.ok is False:
        raise OutputNotUnderstood(f"{prepared.tool.name} is not what was built: {built.detail}")
    if None in (model.quantization, model.parameters, model.bytes_per_token):
        raise OutputNotUnderstood(f"{file.path.name} does not report its weights")
    prompt = _best(tuple((t.prompt_tokens, t.samples_ns) for t in timing.tests))
    decode = _best(tuple((t.generated_tokens, t.samples_ns) for t in timing.tests))
    return ComputeRate.model_validate(
        {
            "quantization": model.quantization,
            "threads": engine.roles.workload(parameters.model_dump()).threads,
            "parameters": model.parameters,
            "bytes_per_token": model.bytes_per_token,
            "prompt_tokens_per_second": prompt,
            "eval_tokens_per_second": decode,
            "model_file": model.file,
            "build_commit": timing.program_version,
            "others_share": job.others_share,
        }
    )


def _best(tests: tuple[tuple[int, tuple[int, ...]], ...]) -> float | None:
    """Tokens per second of the best repetition: other processes can only slow a repetition down."""
    rates = [tokens * 1e9 / min(samples) for tokens, samples in tests if tokens]
    return max(rates, default=None)
