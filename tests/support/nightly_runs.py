"""A lab's nights: a run each, of a source that may become slower."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from records_made import BEGAN, planned_run, run, timing, trial

from labctl.index.entry import entry_of
from labctl.index.index import IndexedTrial
from labctl.records.board import Execution
from labctl.records.run import (
    Annotations,
    ArtifactIdentity,
    PlannedRecord,
    PlanRecord,
    RunEnd,
    RunRecord,
)
from labctl.records.trial import TrialRecord

REPEATS = 3
SPEC = "5" * 64


def build(commit: int) -> ArtifactIdentity:
    """The artifact of a source; equal numbers are equal sources."""
    return ArtifactIdentity(
        product="llama.cpp",
        version=f"c{commit:03d}",
        target="rk3568",
        key=f"{commit:064x}",
        commit=f"{commit:03d}".ljust(40, "c"),
        toolchain="zig 0.17",
        tools={},
    )


class Lab:
    """Runs are added one after the other, a night apart; on disk only with ``runs``."""

    def __init__(self, runs: Path | None = None, *, seed: int = 1, sigma: float = 0.01):
        self._runs = runs
        self._chance = np.random.default_rng(seed)
        self._sigma = sigma
        self._night = 0
        self._trials: list[IndexedTrial] = []
        #: The last night's record, and its trials.
        self.last: tuple[RunRecord, list[TrialRecord]] | None = None

    def night(
        self,
        commit: int,
        ms: float,
        *,
        execution: Execution = Execution.BOARD,
        spec: str = SPEC,
        board: str = "rk1",
        known: bool = True,
        gates: Sequence[Mapping[str, Any]] = (),
        comparison: Mapping[str, Any] | None = None,
        committed: bool = False,
        variants: Sequence[str] = ("q2_k",),
        of_run: Mapping[str, Any] | None = None,
        later: timedelta | None = None,
        **changes: Any,
    ) -> str:
        """Measure a source whose tokens take so long; the run's id.

        Of a source that is not ``known`` the records say nothing. ``later``: so long after the last
        run, instead of the next night.
        """
        self._night += 1
        now = BEGAN + timedelta(days=self._night)
        if later is not None:
            assert self.last is not None
            now = self.last[0].started + later
        own = build(commit)
        run_id = f"{now:%Y%m%dT%H%M%SZ}-q2-{self._night:06x}"
        record = run(
            run_id,
            started=now,
            artifacts=(own,) if known else (),
            board=board,
            variants=tuple(variants),
            recipe_resolved={"name": "q2", "gates": list(gates), "comparison": comparison},
            facts=run().facts.model_copy(update={"execution": execution}),
            **(of_run or {}),
        )
        source = {"build_key": own.key, "build_commit": own.commit, "program_sha256": own.key}
        if committed:  # the numbers of commits are in the order of their time
            source["build_committed"] = (BEGAN - timedelta(days=1000 - commit)).isoformat()
        level = ms * math.exp(self._sigma * self._chance.standard_normal())
        trials: list[TrialRecord] = []
        for n, variant in enumerate((v for v in variants for _ in range(REPEATS)), 1):
            gap = level * math.exp(0.003 * self._chance.standard_normal())
            values: dict[str, Any] = {
                "variant": variant,
                "repeat": (n - 1) % REPEATS + 1,
                "board": board,
                "execution": execution,
                "comparability": {"threads": 4, "build_spec": spec, **(source if known else {})},
                "timing": timing([gap] * 4),
            }
            trials.append(trial(n, **{**values, **changes}))
        self.last = record, trials
        end = RunEnd(state="finished", finished=now)
        entry = entry_of(run_id, record, trials, end, annotations=Annotations(), stamp="")
        self._trials += [IndexedTrial(row, entry.run, ()) for row in entry.trials]
        if self._runs:
            plan = tuple(
                PlannedRecord(
                    number=one.number,
                    variant=one.variant,
                    model="q2_k",
                    repeat=one.repeat,
                    parameters={},
                    warm_up_pass=False,
                )
                for one in trials
            )
            directory = planned_run(self._runs, record, PlanRecord(trials=plan, max_seconds=60))
            for one in trials:
                directory.add(one)
            directory.finish(end)
        return run_id

    def nights(self, commits: Iterable[int], ms: float, **changes: Any) -> None:
        for commit in commits:
            self.night(commit, ms, **changes)

    def trials(self) -> list[IndexedTrial]:
        return self._trials
