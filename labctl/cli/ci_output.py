"""Files for a CI server, written beside the result of a run: ``--junit``, ``--write``."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from labctl.cli.output import CI_FORMATS, FORMATS, write_result
from labctl.errors import ExitStatus, LabctlError
from labctl.suggestions import listed

if TYPE_CHECKING:
    from labctl.config.recipe import Recipe
    from labctl.records.run import GateRecord, RunRecord
    from labctl.records.trial import TrialRecord
    from labctl.report.ci.cases import Suite
    from labctl.runs.record.directory import RunDirectory
    from labctl.runs.runner import Outcome


class _Written(click.ParamType[tuple[str, Path | None]]):
    """A format and the file it is written to."""

    name = "FORMAT=FILE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Path | None]:
        """Return the format and the file (None: ``-``). Fail if the file cannot be written."""
        form, _, file = str(value).partition("=")
        if form not in (known := (*FORMATS, *CI_FORMATS)) or not file:
            self.fail(f"{value!r} is not FORMAT=FILE with a format of {listed(known)}", param, ctx)
        return form, _writable(file)


def _writable(file: str) -> Path | None:
    from labctl.files import check_named

    if file == "-":
        return None
    check_named(Path(file))
    return Path(file)


@dataclass(frozen=True)
class CiOutput:
    """Files to write, by format; with ``strict``, a result that was not judged is a failure."""

    files: tuple[tuple[str, Path | None], ...] = ()
    strict: bool = False

    def write(
        self,
        directory: "RunDirectory",
        run: "RunRecord",
        trials: Sequence["TrialRecord"],
        gates: Sequence["GateRecord"],
    ) -> None:
        """Write all files. Raises HostError."""
        from labctl.report.formats import result_text
        from labctl.report.status import run_status

        if not self.files:
            return
        status, path = run_status(directory), directory.path
        for form, file in self.files:
            text = result_text(form, run, trials, gates, path, status=status, strict=self.strict)
            write_result(text, file)

    def exit_status(self, outcome: "Outcome") -> int:
        """Return the status of a run; a failure if ``strict`` and some result was not judged."""
        if not self.strict:
            return outcome.exit_status
        from labctl.report.ci.cases import run_suite

        run, trials = outcome.run, outcome.trials
        found = run_suite(outcome.directory, run, trials, outcome.gates, strict=True)
        return ExitStatus.JOB if found.failed else outcome.exit_status

    def write_failed(
        self,
        error: LabctlError,
        directory: "RunDirectory | None",
        recipe: "Recipe | None" = None,
        board: str = "",
    ) -> None:
        """Write all files for a run that ended early; without a run, from its recipe.

        If writing fails, only prints a note: the command ends with the error of the run.
        """
        from labctl.report.ci.cases import refused_suite

        try:
            if directory is not None and directory.is_planned:
                end = directory.end()
                gates = end.gates if end else ()
                self.write(directory, directory.run(), directory.trials(), gates)
            elif recipe is not None:
                self.write_suite(refused_suite(recipe, board, error))
        except LabctlError as other:
            click.echo(f"note: {other.message}", err=True)

    def check_cases_only(self) -> None:
        """Refuse formats of a single run's result. Raises UsageError."""
        for form, _ in self.files:
            if form not in CI_FORMATS:
                raise click.UsageError(f"--write {form}: this command writes {listed(CI_FORMATS)}")

    def write_suite(self, suite: "Suite") -> None:
        """Write the cases; skip formats that need a run. Raises HostError."""
        from labctl.report.ci.texts import ci_text

        for form, file in self.files:
            if form in CI_FORMATS:
                write_result(ci_text(form, suite), file)

    @contextmanager
    def replacing(self, make: Callable[[LabctlError | None], "Suite"]) -> Iterator[None]:
        """Replace the files of an earlier command now, and again if an error ends the block.

        ``make`` returns the suite for an error, or for None: the command has only begun. Thus no
        old results remain, even after a kill. If writing fails, only prints a note.
        """
        named = tuple(one for one in self.files if one[1] is not None)
        replace(self, files=named)._try_suite(make(None))
        try:
            yield
        except LabctlError as error:
            self._try_suite(make(error))
            raise

    def _try_suite(self, suite: "Suite") -> None:
        try:
            self.write_suite(suite)
        except LabctlError as error:
            click.echo(f"note: {error.message}", err=True)


def ci_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--junit``, ``--write`` and ``--strict``; the command gets ``ci``, a CiOutput."""

    @wraps(command)
    def with_ci(
        *words: Any,
        junit: Path | None,
        written: tuple[tuple[str, Path | None], ...],
        strict: bool,
        **options: Any,
    ) -> Any:
        files = (*written, ("junit", junit)) if junit else written
        return command(*words, ci=CiOutput(files, strict), **options)

    def checked(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> Path | None:
        return None if value is None else _writable(value)

    decorated: Callable[..., Any] = with_ci
    for option in (
        click.option(
            "--strict",
            is_flag=True,
            help="Treat a gate that could not be judged, and a result that its own checks"
            " contradict, as a failure.",
        ),
        click.option(
            "--write",
            "written",
            type=_Written(),
            multiple=True,
            help="Also write the result in this format, to this file; repeatable.",
        ),
        click.option(
            "--junit",
            type=click.Path(dir_okay=False),
            metavar="FILE",
            callback=checked,
            help="Write JUnit XML to this file; the same as --write junit=FILE.",
        ),
    ):
        decorated = option(decorated)
    return decorated
