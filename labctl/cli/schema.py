"""``labctl schema``."""

import json
from collections.abc import Mapping, Sequence

import click
from pydantic import BaseModel

from labctl.cli.output import note
from labctl.config.schema import KINDS, Kind, json_schema


@click.command(epilog="Example: labctl schema recipe > recipe.schema.json")
@click.argument("kind", type=click.Choice(KINDS))
def schema(kind: Kind) -> None:
    """Print the JSON Schema of a file format.

    KIND is the file: a recipe of a run, an evaluation or a load test, a lab's devices.yaml,
    models.yaml or references.yaml, a target.yaml of toolchains/, or the plan of `labctl nightly` or
    `labctl batch`. Editors use it to complete and check files: put `# yaml-language-server:
    $schema=recipe.schema.json` on top. The schema of a recipe has the keys of all installed
    engines.
    """
    model: type[BaseModel] | None = None
    metrics: Mapping[str, Sequence[str]] | None = None
    if kind == "recipe":
        from labctl.engines.registry import recipe_model  # imports all engines
        from labctl.results.gates import SCHEMA_METRICS

        metrics = SCHEMA_METRICS
        model, unusable = recipe_model()
        for error in unusable:
            note(f"left out: {error.message}")
    elif kind == "evaluation":
        from labctl.evaluation.recipe import EvaluationRecipe

        model = EvaluationRecipe
    elif kind == "load-test":
        from labctl.evaluation.serving.figures import SCHEMA_METRICS
        from labctl.evaluation.serving.recipe import LoadTestRecipe

        metrics = SCHEMA_METRICS
        model = LoadTestRecipe
    elif kind == "devices":
        from labctl.config.lab import lab_model
        from labctl.config.transport_plugins import installed_transports
        from labctl.transport.built_in import TRANSPORTS

        model = lab_model((*TRANSPORTS, *installed_transports()))
    elif kind == "nightly":
        from labctl.farm.nightly.plan_file import NightPlan

        model = NightPlan
    elif kind == "batch":
        from labctl.farm.batch_plan import BatchPlan

        model = BatchPlan
    click.echo(json.dumps(json_schema(kind, model, metrics), indent=2))
