"""From a recipe and a board to records that stay."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.runs.board.deploy_preview import DeployPreview
    from labctl.runs.board.held_board import HeldBoard, hold_board
    from labctl.runs.board.in_use import BoardUse
    from labctl.runs.deploy import (
        BoardTask,
        Fleet,
        FleetView,
        SendProgress,
        at_once,
        pruner_of,
        when_free,
    )
    from labctl.runs.failover import run_with_failover
    from labctl.runs.inputs.deploy_inputs import Wanted
    from labctl.runs.inputs.prepare import find_files, read_recipe
    from labctl.runs.observer import Observer, TrialProgress
    from labctl.runs.planning.forecast import Fit
    from labctl.runs.planning.trials import PlannedTrial
    from labctl.runs.resume import ResumeRequest
    from labctl.runs.run import RunRequest, run_recipe
    from labctl.runs.runner import Outcome
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "board.deploy_preview": "DeployPreview",
            "board.held_board": "HeldBoard hold_board",
            "board.in_use": "BoardUse",
            "deploy": "BoardTask Fleet FleetView SendProgress at_once pruner_of when_free",
            "failover": "run_with_failover",
            "inputs.deploy_inputs": "Wanted",
            "inputs.prepare": "find_files read_recipe",
            "observer": "Observer TrialProgress",
            "planning.forecast": "Fit",
            "planning.trials": "PlannedTrial",
            "resume": "ResumeRequest",
            "run": "RunRequest run_recipe",
            "runner": "Outcome",
        },
    )

__all__ = [
    "BoardTask",
    "BoardUse",
    "DeployPreview",
    "Fit",
    "Fleet",
    "FleetView",
    "HeldBoard",
    "Observer",
    "Outcome",
    "PlannedTrial",
    "ResumeRequest",
    "RunRequest",
    "SendProgress",
    "TrialProgress",
    "Wanted",
    "at_once",
    "find_files",
    "hold_board",
    "pruner_of",
    "read_recipe",
    "run_recipe",
    "run_with_failover",
    "when_free",
]
