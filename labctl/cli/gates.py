"""Gates against other runs: a run gets what judges them, loaded only for a recipe that has one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from labctl.cli.output import note

if TYPE_CHECKING:
    from labctl.config.lab import LabFile
    from labctl.config.recipe import Recipe
    from labctl.records import GateRecord, RunRecord, TrialRecord
    from labctl.results.gates import CompareGates, Parameters


def comparing_with(lab: "LabFile") -> "CompareGates":
    """Return what judges gates against the lab's baselines and its last runs."""

    def judge(
        run: "RunRecord", trials: Sequence["TrialRecord"], parameters: "Parameters"
    ) -> tuple["GateRecord", ...]:
        from labctl.results.gates import comparing_gates

        if not comparing_gates(run):
            return ()
        from labctl.compare.gates import judge_gates

        return judge_gates(lab, run, trials, parameters)

    return judge


def note_missing(lab: "LabFile", recipe: "Recipe", board: str) -> None:
    """Say before a run which of its gates have nothing to be compared with."""
    if any(gate.against is not None for gate in recipe.gates):
        from labctl.compare.gates import missing_references

        for line in missing_references(lab, recipe, board):
            note(f"note: {line}")
