"""Forecasts of completions, for tests of what is made of them."""

from collections.abc import Mapping

from labctl.config.variants import Variant
from labctl.engines import Passes
from labctl.engines.llama_cpp import LlamaCpp
from labctl.performance.prediction import Rates, Work, predictions
from labctl.records import BoardFacts
from labctl.runs.planning.forecast import Forecast
from labctl.runs.planning.trials import cut


def completion_passes(variant: Variant, tokens: int | None, warm_up_pass: bool) -> Passes:
    """Of a prompt of one word."""
    planned = cut(variant, tokens, warm_up_pass, LlamaCpp.roles)
    parameters = LlamaCpp().parameters(planned.parameters)
    return LlamaCpp().passes(parameters, len("x"))


def forecast_of(
    works: Mapping[str, Work],
    facts: BoardFacts,
    rates: Rates | None,
    variants: tuple[Variant, ...] = (),
) -> Forecast:
    predicted = predictions(works, facts, rates)
    roles = LlamaCpp.roles
    return Forecast(facts, rates, works, predicted, completion_passes, roles, variants)
