"""Rows of a night without measurements to judge: the reason, and the one who must act."""

from typing import TypeAlias

from labctl.errors import Blame
from labctl.farm.nightly.executor import GOOD, HEAD
from labctl.farm.nightly.state import GATE_RUN, NightState, RowState
from labctl.records.night import NightFinding, NightVerdict
from labctl.records.trial import Failure

#: Verdict without measurements, blame, and reason.
Refusal: TypeAlias = tuple[NightVerdict, Blame | None, str]


def refused_build(state: NightState, name: str) -> Refusal | None:
    """Return why no row of a build has measurements to judge."""
    if failure := state.unbuilt.get((name, GOOD)):
        blame = Blame.CONFIG if failure.blame is Blame.JOB else failure.blame
        reason = f"the last good cannot be built: {failure.message}"
        return NightVerdict.NOT_MEASURED, blame, reason
    if failure := state.unbuilt.get((name, HEAD)):
        if failure.blame is Blame.JOB:
            return NightVerdict.DOES_NOT_BUILD, Blame.JOB, failure.message
        reason = f"head cannot be built: {failure.message}"
        return NightVerdict.NOT_MEASURED, failure.blame, reason
    return None


def refused_runs(state: RowState) -> Refusal | None:
    """Return why a row has no measurements to judge, although its build exists."""
    if state.gave_up and state.gave_up.failure:
        failure = state.gave_up.failure
        return NightVerdict.NOT_MEASURED, failure.blame, failure.message
    if crash := state.fails:
        reason = f"head fails where the last good does not: {crash.message}"
        return NightVerdict.FAILS, Blame.JOB, reason
    return None


def crashed(state: RowState) -> Failure:
    """Return why a row leaves a board on which the last good build fails.

    The lab is to blame if it ran on no board tonight and there is no other board to try.
    """
    crashes = state.crashes.get((GOOD, False)) or state.crashes[HEAD, False]
    is_board = state.good_ran or state.next_board is not None
    return Failure(
        kind="ProgramFailed",
        blame=Blame.INFRA if is_board else Blame.CONFIG,
        message=f"the last good fails too on board {state.board}: {crashes[-1].message}",
    )


def refusal(
    state: RowState, variant: str, verdict: NightVerdict, blame: Blame | None, reason: str
) -> NightFinding:
    """Return the finding of a row that has no measurements to judge."""
    return NightFinding(
        row=state.row.name,
        build=state.row.build,
        variant=variant,
        board=state.board,
        verdict=verdict,
        blame=blame,
        reason=reason,
        mde=state.row.mde,
        execution=state.execution,
        runs=tuple(state.runs),
    )


def gated_finding(state: RowState) -> NightFinding:
    """Return the verdict on a row whose gates alone are judged; a missed gate is a failure."""
    if GATE_RUN in state.done:
        return refusal(state, state.row.variants[0], NightVerdict.GOOD, None, "all gates are met")
    reason = "the time ran out before its run"
    return refusal(state, state.row.variants[0], NightVerdict.NOT_MONITORED, None, reason)
