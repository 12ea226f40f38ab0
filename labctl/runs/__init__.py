"""From a recipe and a board to records that stay."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.runs.board.deploy_preview import Offer
    from labctl.runs.board.fleet import Fleet, FleetView, Visit, at_once
    from labctl.runs.board.held_board import BoardSession, bring_agent, meet_board, pruner_of
    from labctl.runs.failover import conduct_with_spares
    from labctl.runs.inputs.deploy_inputs import Wanted
    from labctl.runs.inputs.prepare import find_files, read_recipe
    from labctl.runs.observer import Observer
    from labctl.runs.plan.memory_fit import Fit
    from labctl.runs.plan.trials import PlannedTrial
    from labctl.runs.progress import TrialProgress
    from labctl.runs.resume import ResumeRequest
    from labctl.runs.run import RunRequest, conduct
    from labctl.runs.runner import Outcome
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "board.deploy_preview": "Offer",
            "board.fleet": "Fleet FleetView Visit at_once",
            "board.held_board": "BoardSession bring_agent meet_board pruner_of",
            "failover": "conduct_with_spares",
            "inputs.deploy_inputs": "Wanted",
            "inputs.prepare": "find_files read_recipe",
            "observer": "Observer",
            "plan.memory_fit": "Fit",
            "plan.trials": "PlannedTrial",
            "progress": "TrialProgress",
            "resume": "ResumeRequest",
            "run": "RunRequest conduct",
            "runner": "Outcome",
        },
    )

__all__ = [
    "BoardSession",
    "Fit",
    "Fleet",
    "FleetView",
    "Observer",
    "Offer",
    "Outcome",
    "PlannedTrial",
    "ResumeRequest",
    "RunRequest",
    "TrialProgress",
    "Visit",
    "Wanted",
    "at_once",
    "bring_agent",
    "conduct",
    "conduct_with_spares",
    "find_files",
    "meet_board",
    "pruner_of",
    "read_recipe",
]
