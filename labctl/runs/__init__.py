"""From a recipe and a board to records that stay."""

from labctl.runs.conduct import RunRequest, conduct
from labctl.runs.deploying import Offer
from labctl.runs.fit import Fit
from labctl.runs.fleet import Fleet, FleetView, Visit, at_once
from labctl.runs.live import TrialProgress
from labctl.runs.observer import Observer
from labctl.runs.plan import PlannedTrial
from labctl.runs.prepare import find_files, read_recipe
from labctl.runs.resume import ResumeRequest, resume
from labctl.runs.runner import Outcome
from labctl.runs.session import (
    BoardSession,
    bring_agent,
    meet_board,
    pruner_of,
)
from labctl.runs.spares import conduct_with_spares
from labctl.runs.wanted import Wanted

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
    "resume",
]
