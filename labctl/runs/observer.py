"""Who is told how a run goes."""

from labctl.errors import InfraError
from labctl.records import TrialRecord
from labctl.runs.plan.trials import PlannedTrial
from labctl.runs.progress import TrialProgress


class Observer:
    """Told what happens; shows it to somebody. This one shows nothing."""

    def note(self, text: str) -> None:
        """Something that the user has to know before the trials begin."""

    def step(self, step: str, done: int, total: int | None) -> None:
        """A step of preparing or deploying moved on; it has ended when another one begins."""

    def trial_started(self, trial: PlannedTrial, total: int, expected_s: float | None) -> None:
        """A trial begins; ``total`` are planned; the last one like it took ``expected_s``."""

    def trial_progress(self, progress: TrialProgress) -> None:
        """The board was asked how the trial stands: every few seconds."""

    def link_lost(self, error: InfraError) -> None:
        """The link is lost in mid-trial, and tried again; the job on the board goes on."""

    def repeated(self, error: Exception) -> None:
        """The board cut a trial, which will be begun once more."""

    def trial_finished(self, record: TrialRecord, total: int) -> None:
        """A trial is on disk."""
