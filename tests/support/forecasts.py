"""Forecasts of completions, for tests of what is made of them."""

from collections.abc import Mapping

from labctl.config.recipe_parts import Variant
from labctl.engines.base import TokenCounts
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.performance.prediction import ModelWorkload, Rates, predictions
from labctl.records.board import BoardFacts
from labctl.runs.planning.forecast import Forecast
from labctl.runs.planning.trials import cut


def completion_counts(variant: Variant, tokens: int | None, warm_up_pass: bool) -> TokenCounts:
    """Of a prompt of one word."""
    planned = cut(variant, tokens, warm_up_pass, LlamaCpp.roles)
    parameters = LlamaCpp().parameters(planned.parameters)
    return LlamaCpp().token_counts(parameters, len("x"))


def forecast_of(
    workloads: Mapping[str, ModelWorkload],
    facts: BoardFacts,
    rates: Rates | None,
    variants: tuple[Variant, ...] = (),
) -> Forecast:
    predicted = predictions(workloads, facts, rates)
    roles = LlamaCpp.roles
    return Forecast(facts, rates, workloads, predicted, completion_counts, roles, variants)
