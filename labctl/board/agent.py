"""The host side of the on-board agent: start a job, check it, fetch its files."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from labctl.board.facts import tells_facts
from labctl.board.job import (
    DEFAULT_MAX_OUTPUT_BYTES,
    FILES_CHANGED,
    JOB_FILES,
    SPAWN_FAILED,
    STARTED,
    BroughtFiles,
    DirectoryUsed,
    JobProgress,
    JobSpec,
    JobState,
    Started,
    Survivor,
    bring_files,
    check_lengths,
    files_changed,
    refusal,
)
from labctl.board.lease import Fence
from labctl.errors import (
    BoardError,
    BoardRebooted,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    InfraError,
    LabctlError,
    LinkRefused,
    ProtocolError,
)
from labctl.records.board import BoardFacts
from labctl.records.trial import JobStatus
from labctl.retry import RETRY_SECONDS, in_threads, retry_infra, wait_until
from labctl.transport.base import (
    CommandResult,
    TransferOptions,
    Transport,
    board_error,
    last_object,
    remote_words,
    require,
)
from labctl.transport.file_transfer import hash_timeout

#: Time (s) for a command in addition to its waiting time on the board.
_ANSWER_SECONDS = 20.0
#: Time (s) of one query while a job runs. An interrupt is noticed between two queries.
_WAIT_SECONDS = 10.0
#: After its time-out a job gets 2 s to end and 10 s to be killed; its files are synced.
_END_SECONDS = 60.0
_STOP_SECONDS = 20.0

#: Errors that do not end a job and are worth a retry.
LINK_LOSSES = (DeviceLost, LinkRefused, CommandTimeout)
#: Statuses with which a shell, or the kernel (SIGILL), reports a file that it cannot execute ...
_NOT_EXECUTABLE = (126, 128 + 4)
#: ... or messages of mksh, bash and dash if they read another machine's program as a script.
_NOT_A_PROGRAM = ("not executable", "xec format error", "yntax error")

#: Facts for which the agent is more reliable than the shell.
_MEMORY = ("memory_total_bytes", "memory_available_bytes")
_BETTER_KNOWN = ("machine", "kernel", "cpus", "cpus_allowed", "devfreq", *_MEMORY)


class BoardAgent:
    """The agent at ``path`` on a board. Jobs are below ``<workdir>/jobs``.

    ``fence`` belongs to the board's holder; without a fence the epoch is 0. ``on_survivors`` gets
    the processes that the agent ended. Methods raise LinkError, and may be called from several
    threads.
    """

    def __init__(self, transport: Transport, path: str, workdir: str, fence: Fence | None = None):
        self._transport = transport
        self._jobs = f"{workdir}/jobs"
        self.path = path
        self.fence = fence or Fence(transport, workdir, path)
        self.on_survivors: Callable[[list[Survivor]], None] = lambda _ended: None

    def job_directory(self, name: str) -> str:
        """Return the directory for the named job. Raises ConfigError if the name is a path."""
        if not name or "/" in name or name in (".", ".."):
            raise ConfigError(f"not a name for a job: {name!r}")
        return f"{self._jobs}/{name}"

    def refine(self, facts: BoardFacts, answered: str = "") -> BoardFacts:
        """Return the facts completed by the agent; ``answered`` is its earlier answer, if any.

        Raises ConfigError if the board cannot execute the agent, BoardRebooted if it restarted
        meanwhile.
        """
        answer = last_object(answered) if tells_facts(answered) else None
        answer = answer or self._ask(("facts",), "cannot ask the agent for facts")
        try:
            better = {name: answer[name] for name in _BETTER_KNOWN}
            better["highest_khz"] = answer.get("highest_khz", {})
            seen = BoardFacts.model_validate({**facts.model_dump(), **better})
            boot_id = answer["boot_id"]
        except (KeyError, ValidationError) as error:
            raise self._not_understood("facts", answer) from error
        if boot_id != facts.boot_id:
            raise BoardRebooted(f"{self._transport.label}: the board restarted since it was probed")
        return seen

    def start(
        self,
        spec: JobSpec,
        *,
        again: bool = False,
        reattach_s: float = RETRY_SECONDS,
        on_link_loss: Callable[[InfraError], None] | None = None,
    ) -> Started:
        """Start a job. It continues without the link, which is retried for ``reattach_s``.

        The job is never started twice, because a directory serves one job. ``again``: an earlier
        controller may have started the job; then return that job. Raises LeaseLost, ProgramFailed,
        ConfigError (wrong instruction set), BoardNoSpace, BoardPermission, BoardError.
        """
        losses: list[InfraError] = []

        def lost(error: InfraError) -> None:
            losses.append(error)
            if on_link_loss:
                on_link_loss(error)

        answer = retry_infra(
            lambda: self._launch(spec, again=again or bool(losses)),
            on=LINK_LOSSES,
            timeout=reattach_s,
            on_retry=lost,
        )
        try:
            return Started.model_validate({**answer, "directory": spec.directory}, extra="ignore")
        except ValidationError as error:
            raise self._not_understood("run", answer) from error

    def poll(self, directory: str) -> JobProgress:
        """Return the state of the job in a directory. Raises BoardRebooted."""
        return self._look("wait", directory, 0)

    def wait(
        self,
        started: Started,
        *,
        timeout_s: float,
        reattach_s: float = RETRY_SECONDS,
        question_s: float = _WAIT_SECONDS,
        on_progress: Callable[[JobProgress], None] | None = None,
        on_link_loss: Callable[[InfraError], None] | None = None,
    ) -> JobStatus:
        """Wait for the end of a job, with a query every ``question_s`` s; return its end.

        ``timeout_s`` is the job's own time-out, enforced by the agent; this method waits at most a
        minute longer. A lost link is retried for ``reattach_s``: the job does not need it. Raises
        LinkError if the link stays lost, BoardRebooted, BoardError (supervisor killed),
        CommandTimeout.
        """
        until = time.monotonic() + timeout_s + _END_SECONDS
        while True:
            progress = retry_infra(
                lambda: self._look("wait", started.directory, question_s),
                on=LINK_LOSSES,
                timeout=reattach_s,
                on_retry=on_link_loss,
            )
            if on_progress:
                on_progress(progress)
            if (status := self.end_of(started, progress)) is not None:
                return status
            if time.monotonic() > until:
                raise CommandTimeout(
                    f"{self._transport.label}: the agent did not end the job in"
                    f" {started.directory} although its {timeout_s:g} s are over",
                    hint="restart the board",
                )

    def end_of(self, started: Started, progress: JobProgress) -> JobStatus | None:
        """Return the end of a job from its progress; None while it runs.

        Raises BoardRebooted, BoardError (supervisor killed, directory gone).
        """
        if progress.status is not None:
            return progress.status
        if progress.boot_id != started.boot_id:  # unsynced data is lost
            raise self._restarted()
        if progress.state is not JobState.RUNNING:
            raise self._vanished(started, progress.state)
        return None

    def stop(self, directory: str) -> JobProgress:
        """Stop the job and all its processes; return its state. Raises BoardRebooted."""
        return self._look("stop", directory, _STOP_SECONDS, self.fence.options)

    def collect(
        self,
        directory: str,
        local: Path,
        *,
        status: JobStatus | None = None,
        max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
        reattach_s: float = RETRY_SECONDS,
        on_link_loss: Callable[[InfraError], None] | None = None,
        ask: Callable[..., CommandResult] | None = None,
    ) -> dict[str, Path]:
        """Fetch the job's files into ``local``, each verified by its hash; return name -> path.

        Files missing on the board are skipped; small files come with one command. With ``status``,
        the streams must have the lengths given there, unless it reports them as lost.
        ``max_output_bytes`` is the value in the job's :class:`JobSpec`. A lost link is retried for
        ``reattach_s``; no file is fetched twice. ``ask`` runs the first script on the board, and
        may refuse to. Raises LinkError if the link stays lost, IntegrityError, ProtocolError,
        HostError, and ProgramFailed if the program has changed these files.
        """
        if status is not None and status.outcome == FILES_CHANGED:
            raise files_changed(status.error or "no reason given")
        again = partial(retry_infra, on=LINK_LOSSES, timeout=reattach_s, on_retry=on_link_loss)
        written = 0 if status is None else status.stdout_bytes + status.stderr_bytes
        seconds = hash_timeout(_ANSWER_SECONDS, written)
        script = bring_files(self.path, directory, max_output_bytes)
        answer = again(lambda: (ask or self._transport.run)(script, timeout=seconds))
        found = BroughtFiles.of(answer, f"cannot look into {directory} on the board")
        pulled = {name: local / name for name in found.names}
        here = found.write(local)

        options = TransferOptions(timeout=_ANSWER_SECONDS)

        def pull(name: str) -> None:
            self._transport.pull(f"{directory}/{name}", pulled[name], options)
            here.add(name)

        def pull_missing() -> None:
            # Each file takes a few round trips, and there are many trials.
            missing = [name for name in pulled if name not in here]
            in_threads(pull, missing, at_once=len(JOB_FILES))

        if len(here) < len(pulled):
            again(pull_missing)
        if status is not None:
            check_lengths(pulled, status)
        return pulled

    def remove(self, directory: str) -> None:
        """Delete a job's directory from the board. Raises LeaseLost, and as :meth:`removal`."""
        self.fence.run(self.removal(directory), f"cannot remove {directory} from the board")

    def removal(self, directory: str) -> str:
        """Return the script that deletes a job's directory. Raises ConfigError for others."""
        if directory != self.job_directory(directory.removeprefix(f"{self._jobs}/")):
            raise ConfigError(f"not the directory of a job: {directory}")
        return f"rm -rf {remote_words(directory)}"

    def has_jobs(self) -> bool:
        """Return True if there are jobs whose files were not fetched, running or finished."""
        look = f'for job in {remote_words(self._jobs)}/*; do [ ! -d "$job" ] || echo one; done'
        return bool(
            require(self._transport.run(look, timeout=_ANSWER_SECONDS), "cannot look at jobs").text
        )

    def remove_others(self, prefix: str, but: str | None) -> None:
        """Delete the directories of all jobs with this prefix, except the job ``but``."""
        self.job_directory(prefix)  # otherwise it is a path
        self.fence.run(
            f"cd {remote_words(self._jobs)} 2>/dev/null || exit 0\n"
            f'for job in {remote_words(prefix)}*; do [ "$job" = {remote_words(but or "")} ]'
            ' || rm -rf "$job" || exit 1; done',
            f"cannot remove jobs from {self._jobs} on the board",
        )

    def _launch(self, spec: JobSpec, *, again: bool) -> dict[str, Any]:
        """Start the job, or with ``again`` find an earlier start; return its started.json."""
        what = f"cannot start the job in {spec.directory}"
        if again and (found := self._found(spec.directory, what)):
            return found
        jobs = remote_words(self._jobs)
        make = f"{{ [ -d {jobs} ] || mkdir -p {jobs}; }}"
        run = remote_words(*spec.agent_words(self.path))
        result = self._run(f"umask 022; {make} && {run}", what, _ANSWER_SECONDS)
        try:
            return self._answer(result, "run", what)
        except DirectoryUsed as used:
            # An earlier attempt whose answer was lost may be starting the program now.
            if again and wait_until(
                lambda: self._look("wait", spec.directory, 0).state is not JobState.ABSENT,
                timeout=_ANSWER_SECONDS,
                interval=0.5,
            ):
                return self._launch(spec, again=True)
            raise BoardError(used.message, hint=used.hint, details=used.details) from used

    def _found(self, directory: str, what: str) -> dict[str, Any] | None:
        """Return the started.json of the job in a directory; None if no job was started."""
        progress = self._look("wait", directory, 0)
        if progress.status and progress.status.outcome == SPAWN_FAILED:
            raise refusal(SPAWN_FAILED, progress.status.error or what, what)
        if progress.state is JobState.ABSENT:
            return None
        words = remote_words("cat", f"{directory}/{STARTED}")
        result = self._transport.run(words, timeout=_ANSWER_SECONDS)
        try:
            return self._answer(result, "run", what)
        except (ProtocolError, BoardError) as error:
            if progress.state is JobState.LOST:  # no report, or lost in a power failure
                raise self._killed() from error
            raise

    def _look(
        self, command: str, directory: str, seconds: float, options: tuple[str, ...] = ()
    ) -> JobProgress:
        answer = self._ask(
            (command, "--dir", directory, "--seconds", f"{seconds:.3f}", *options),
            f"cannot look at the job in {directory}",
            wait_s=seconds,
            statuses=(0, 1),
        )
        if answer.get("state") == "rebooted":
            raise self._restarted()
        try:
            return JobProgress.model_validate(answer, extra="ignore")
        except ValidationError as error:
            raise self._not_understood(command, answer) from error

    def _ask(
        self,
        words: tuple[str, ...],
        what: str,
        *,
        wait_s: float = 0,
        statuses: tuple[int, ...] = (0,),
    ) -> dict[str, Any]:
        result = self._run(remote_words(self.path, *words), what, wait_s + _ANSWER_SECONDS)
        return self._answer(result, words[0], what, statuses=statuses)

    def _run(self, command: str, what: str, seconds: float) -> CommandResult:
        try:
            return self._transport.run(command, timeout=seconds)
        except CommandTimeout as error:
            raise CommandTimeout(
                f"{self._transport.label}: {what}: no answer within {seconds:g} s",
                hint="the board may be frozen, or busy with something else",
            ) from error

    def _answer(
        self, result: CommandResult, command: str, what: str, statuses: tuple[int, ...] = (0,)
    ) -> dict[str, Any]:
        """Parse the JSON object printed by the agent; raise its failures as typed errors."""
        answer = last_object(result.text)
        if answer is not None and "error" in answer:
            raise refusal(str(answer["error"]), str(answer.get("message")), what)
        if answer is None or result.exit_status not in statuses:
            raise self._unanswered(result, command, what)
        if ended := answer.get("survivors"):
            self.on_survivors([Survivor.model_validate(one, extra="ignore") for one in ended])
        return answer

    def _unanswered(self, result: CommandResult, command: str, what: str) -> LabctlError:
        """Explain the agent's silence: the shell's message, or the status with which it died."""
        text = result.text
        if result.exit_status == 0:
            return self._not_understood(command, text)
        if "Permission denied" not in text and (
            result.exit_status in _NOT_EXECUTABLE or any(word in text for word in _NOT_A_PROGRAM)
        ):
            return ConfigError(
                f"{self._transport.label}: the board cannot execute the agent",
                hint="its instruction set may differ from its target: `labctl boards`"
                " shows the board",
                details=text.strip() or f"exit status {result.exit_status}",
            )
        return board_error(text, what)

    def _not_understood(self, command: str, answer: object) -> ProtocolError:
        return ProtocolError(
            f"{self._transport.label}: the answer to `agent {command}` cannot be understood",
            hint="`labctl deploy` sends the agent of this version to the board",
            details=str(answer)[-2000:] or None,
        )

    def _restarted(self) -> BoardRebooted:
        return BoardRebooted(f"{self._transport.label}: the board restarted while a job was on it")

    def _killed(self) -> BoardError:
        return BoardError(
            f"{self._transport.label}: the agent was killed on the board while it ran a job;"
            " its end is unknown",
            hint="the board may have too little memory, or may have lost power",
        )

    def _vanished(self, started: Started, state: JobState) -> BoardError:
        if state is JobState.LOST:
            return self._killed()
        return BoardError(
            f"{self._transport.label}: the directory {started.directory} of a running job is gone",
            hint="something on the board removed it",
        )
