"""Records what a run reports in its directory, from the first answer of the board to the end.

``events.jsonl`` holds the reports, a line each.
"""

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from labctl.config.lab import Board
from labctl.errors import ExitStatus, LabctlError
from labctl.records import Execution, Failure
from labctl.records.events import Contact, End
from labctl.runs.observer import Observer
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.event_log import EVENTS, EventLog


class RunSession:
    """A context in which one controller drives one run, on one board or on several in turn.

    From :meth:`begin` on the run's directory is held, and its events are written. The last one
    says how the controller left the run.
    """

    def __init__(self, observer: Observer):
        self._observer = observer
        self._stack = ExitStack()
        self._exit_status: int = ExitStatus.OK
        self.directory: RunDirectory | None = None

    def contact(
        self,
        directory: RunDirectory,
        recipe: str,
        board: Board,
        execution: Execution,
        resumed: int = 0,
    ) -> None:
        """Report that a board answered; from the first one on the run is held and recorded.

        Raises as :meth:`begin` does.
        """
        self.begin(directory)
        self._observer.tell(
            Contact(
                run=directory.path.name,
                recipe=recipe,
                board=board.name,
                target=board.target,
                execution=execution,
                resumed=resumed,
            )
        )

    def begin(self, directory: RunDirectory) -> None:
        """Hold a run's directory, once.

        Raises HostTimeout when another controller has it, and ConfigError when one finished it:
        the events of a finished run are left alone.
        """
        if self.directory is None:
            self._stack.enter_context(directory.held())
            directory.refuse_if_finished()
            log = EventLog(directory.path / EVENTS, self._observer.note)
            self._stack.enter_context(log)
            self._stack.enter_context(self._observer.also(log.write))
            self.directory = directory

    def finished(self, exit_status: int) -> None:
        """Note the exit status of a run that came to its end."""
        self._exit_status = exit_status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            if self.directory is None:
                return
            self._observer.tell(_end(error, self._exit_status))
            if isinstance(error, Exception):  # readers have the file of events open
                self.directory.forget_if_refused(error)


def _end(error: BaseException | None, exit_status: int) -> End:
    if error is None:
        return End(state="finished", exit_status=exit_status)
    if isinstance(error, Exception):
        status = error.exit_status if isinstance(error, LabctlError) else ExitStatus.INFRA
        return End(state="failed", exit_status=status, failure=Failure.of(error))
    return End(state="interrupted", exit_status=ExitStatus.INTERRUPTED)
