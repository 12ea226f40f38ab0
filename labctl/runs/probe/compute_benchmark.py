"""How fast a board's arithmetic goes through weights: a small model that stays in memory."""

from dataclasses import dataclass
from pathlib import Path

from labctl.board.job import STDERR, STDOUT, TIMELINE
from labctl.board.measuring import Measuring
from labctl.config.lab import Board
from labctl.config.recipe import Recipe
from labctl.deploy import DeployOptions, OnProgress
from labctl.deploy.deploy import deploy
from labctl.deploy.plan import plan
from labctl.engines import COMPUTE_BENCHMARK, Inputs, RawOutput
from labctl.errors import ConfigError, OutputNotUnderstood
from labctl.records import ComputeRate, TimingRecord
from labctl.runs.board.deploy_preview import wanted_objects
from labctl.runs.board.held_board import BoardSession
from labctl.runs.inputs.prepare import Prepared, prepare
from labctl.runs.observer import Observer

_TIMEOUT_SECONDS = 1200.0
_MODEL = "small"


@dataclass(frozen=True)
class Ceiling:
    """A model to measure with, and the program of the board's target."""

    prepared: Prepared

    @property
    def name(self) -> str:
        """The model's file."""
        return self.prepared.models[_MODEL].path.name

    def measure(
        self, session: BoardSession, measuring: Measuring, on_sent: OnProgress
    ) -> ComputeRate:
        """Bring program and model, and run.

        Raises ConfigError (the model does not fit in half of the free memory: it would measure
        storage), JobError (the program failed, or is not understood), and what deploying raises.
        """
        prepared, engine = self.prepared, self.prepared.engine
        model = prepared.models[_MODEL].identity
        asked = engine.parameters(COMPUTE_BENCHMARK.parameters)
        parameters = engine.settle(asked, session.facts, model).parameters
        need = engine.memory(parameters, model)
        free = session.facts.memory_available_bytes
        if need is not None and free is not None and need.total_bytes > free / 2:
            raise ConfigError(
                f"{self.name} takes more than half of the board's free memory",
                hint="name a smaller model",
            )
        wanted = wanted_objects(prepared)
        paths = deploy(session.store, plan(session.store, wanted), DeployOptions(progress=on_sent))
        assert prepared.program is not None  # it is a tool of an artifact
        inputs = Inputs(paths[prepared.program.sha256], paths[model.sha256])
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
        return self._rate(timing, session.facts.cores or None)

    def _rate(self, timing: TimingRecord, threads: int | None) -> ComputeRate:
        model = self.prepared.models[_MODEL].identity
        prompt = _best(tuple((t.prompt_tokens, t.samples_ns) for t in timing.tests))
        decode = _best(tuple((t.generated_tokens, t.samples_ns) for t in timing.tests))
        if None in (model.quantization, model.parameters, model.bytes_per_token):
            raise OutputNotUnderstood(f"{self.name} does not tell its weights")
        return ComputeRate.model_validate(
            {
                "quantization": model.quantization,
                "threads": threads,
                "parameters": model.parameters,
                "bytes_per_token": model.bytes_per_token,
                "prompt_tokens_per_second": prompt,
                "eval_tokens_per_second": decode,
                "model_file": model.file,
                "build_commit": timing.program_version,
            }
        )


def _best(tests: tuple[tuple[int, tuple[int, ...]], ...]) -> float | None:
    """Tokens a second in the best repetition: whatever else ran could only slow one down."""
    rates = [tokens * 1e9 / min(samples) for tokens, samples in tests if tokens]
    return max(rates, default=None)


def prepare_ceiling(path: Path, board: Board, lab_root: Path, observer: Observer) -> Ceiling:
    """Find the program for the board and look at the model. Raises ConfigError."""
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
    return Ceiling(prepare(recipe, board, lab_root, observer.step))
