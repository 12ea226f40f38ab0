"""What is foreseen of completions, for tests of what is made of it."""

from collections.abc import Mapping

from labctl.config.variants import Variant
from labctl.engines import Passes
from labctl.engines.llama_cpp import LlamaCpp
from labctl.performance.prediction import Work, predictions
from labctl.performance.rates import Rates
from labctl.records import BoardFacts
from labctl.runs.plan.forecast import Foresight
from labctl.runs.plan.trials import cut


def completion_passes(variant: Variant, tokens: int | None, warm_up_pass: bool) -> Passes:
    """Of a prompt of one word."""
    planned = cut(variant, tokens, warm_up_pass, LlamaCpp.roles)
    parameters = LlamaCpp().parameters(planned.parameters)
    return LlamaCpp().passes(parameters, len("x"))


def foresight_of(works: Mapping[str, Work], facts: BoardFacts, rates: Rates | None) -> Foresight:
    return Foresight(
        facts, rates, works, predictions(works, facts, rates), completion_passes, LlamaCpp.roles
    )
