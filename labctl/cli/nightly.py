"""``labctl nightly``."""

import json
import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from labctl.cli.ci_output import CiOutput, ci_options
from labctl.cli.lab import connect_board, lab_of
from labctl.cli.output import json_option, note, way_on
from labctl.cli.root import Invocation
from labctl.config.lab import LabFile
from labctl.errors import ConfigError, ExitStatus, LabctlError, printable_line

if TYPE_CHECKING:
    from labctl.farm.nightly.run import NightRequest
    from labctl.report.ci.cases import Suite


@click.command(epilog="Example: labctl nightly plan.yaml --dry-run")
@click.option(
    "--dry-run",
    "--dry",
    is_flag=True,
    help="Print the sources, the rows, their pairs and the smallest slowdown each can find; run"
    " nothing.",
)
@click.option("--host", metavar="NAME", help="Name of this lab host; default: its own name.")
@click.option(
    "--detach",
    is_flag=True,
    help="Start the night in the background, print its id, and end; nights/ID/night.log tells how"
    " it goes on.",
)
@click.option("--new", is_flag=True, help="Begin a new night even if the last one can continue.")
@click.option(
    "--accept",
    metavar="ROW",
    help="Accept the slowdown of ROW (BUILD/RECIPE@BOARD) that the last night found, and end: no"
    " alarm until it is faster again, or slower by another `find`.",
)
@click.option("--reason", metavar="TEXT", help="With --accept: why, for those who read the page.")
@click.option("--unaccept", metavar="ROW", help="Take back --accept ROW, and end.")
@click.option(
    "--untrusted",
    is_flag=True,
    hidden=True,
    help="Refused: a night measures only trusted sources.",
)
@json_option("Print the plan, or the findings, as JSON.")
@ci_options
@click.argument("plan", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_obj
def nightly(
    invocation: Invocation,
    plan: Path,
    *,
    dry_run: bool,
    host: str | None,
    detach: bool,
    new: bool,
    accept: str | None,
    reason: str | None,
    unaccept: str | None,
    untrusted: bool,
    as_json: bool,
    ci: CiOutput,
) -> int:
    """Compare new builds with the last good ones on all boards, by a plan.

    PLAN is a YAML file: builds, recipes, boards and the time. Each row (a recipe on a board) is
    screened against the last good build. Rows that are not shown to be good are confirmed with both
    builds alternately. An evaluation or a load test is judged by its gates alone, on one run of
    head. An interrupted night continues where it stopped. Exit status 1: a slowdown
    is confirmed, or head does not build or run; 3: hosts or boards prevented a verdict on a row.
    """
    from labctl.farm.nightly.plan_file import read_plan
    from labctl.farm.nightly.results import lines_of, suite_of, suite_without_end
    from labctl.farm.nightly.run import NightRequest, run_night

    if detach and as_json:
        raise click.UsageError("--detach prints no findings: nights/ID/result.json will have them")
    ci.check_cases_only()
    is_night = dry_run or detach or new or ci != CiOutput()
    row = _accepted_row(accept, unaccept, reason, is_night=is_night)
    if row is not None:
        return _accept(invocation, plan, row, reason, takes_back=accept is None, as_json=as_json)
    name = plan.stem

    def suite_of_error(error: LabctlError | None) -> "Suite":
        return suite_without_end(name, str(plan), error)

    with nullcontext() if dry_run else ci.replacing(suite_of_error):
        if untrusted:
            raise _untrusted()
        lab = lab_of(invocation)
        asked, document = read_plan(plan)
        name = asked.name
        request = NightRequest(
            lab,
            asked,
            document,
            connect_board,
            lambda line: note(printable_line(line)),
            new,
            ci.strict,
            host,
        )
        if dry_run:
            return _show_plan(request, as_json=as_json)
        if detach:
            return _detach(request, plan, ci)
        with way_on(f"what was measured is kept; to continue: labctl nightly {plan}"):
            result, folder = run_night(request)
    ci.write_suite(suite_of(result, strict=ci.strict))
    if as_json:
        click.echo(json.dumps(result.model_dump(mode="json"), indent=2))
    for line in [] if as_json else lines_of(result):
        click.echo(printable_line(line))
    note(f"night directory: {folder}")
    if lab.lab.webhooks:
        _tell(lab, name, result.exit_status, list(lines_of(result)))
    return result.exit_status


def _accepted_row(
    accept: str | None, unaccept: str | None, reason: str | None, *, is_night: bool
) -> str | None:
    """Return the row whose slowdown is accepted or no longer accepted. Raises UsageError."""
    if reason is not None and accept is None:
        raise click.UsageError("--reason says why a slowdown is accepted: give --accept ROW")
    rows = [row for row in (accept, unaccept) if row is not None]
    if len(rows) > 1 or (rows and is_night):
        raise click.UsageError("--accept and --unaccept run no night: give one of them alone")
    return next(iter(rows), None)


def _accept(
    invocation: Invocation,
    plan: Path,
    row: str,
    reason: str | None,
    *,
    takes_back: bool,
    as_json: bool,
) -> int:
    """Accept the slowdown of a row, or withdraw that; print the changed rows."""
    from labctl.farm.nightly.acceptance import accept_slowdown, accepted_lines, unaccept_slowdown
    from labctl.farm.nightly.plan_file import read_plan

    lab = lab_of(invocation)
    asked, _ = read_plan(plan)
    if takes_back:
        done = unaccept_slowdown(lab, asked.name, row)
    else:
        done = accept_slowdown(lab, asked.name, row, reason)
    if as_json:
        click.echo(json.dumps([one.document() for one in done], indent=2))
    for line in [] if as_json else accepted_lines(done):
        click.echo(printable_line(f"no longer accepted: {line}" if takes_back else line))
    return ExitStatus.OK


def _untrusted() -> ConfigError:
    return ConfigError(
        "a night needs trusted results (it blames commits and sets baselines); boards for"
        " untrusted recipes give none",
        hint="measure a pull request with `labctl batch --untrusted PLAN` or `labctl run"
        " --untrusted RECIPE`",
    )


def _show_plan(request: "NightRequest", *, as_json: bool) -> int:
    """Print the plan of a night. Raises the error of a source that cannot be built."""
    from labctl.farm.nightly.hosts import host_lines, hosts_of
    from labctl.farm.nightly.planning import make_plan
    from labctl.farm.nightly.results import (
        dry_run_document,
        plan_lines,
        source_lines,
        total_line,
    )
    from labctl.farm.nightly.sources import sources_of

    lab, asked = request.lab, request.plan
    planned = make_plan(lab, asked, request.document, host=request.host)
    hosts = hosts_of(lab, planned.record, request.own_host)
    found = list(sources_of(lab, asked, planned).look())
    if as_json:
        click.echo(json.dumps(dry_run_document(planned.record, found, hosts), indent=2))
    else:
        for line in (
            *source_lines(found),
            *host_lines(hosts),
            *plan_lines(planned.record),
            total_line(planned.record),
        ):
            click.echo(printable_line(line))
    for _, _, one in found:
        if isinstance(one, LabctlError):
            raise one
    return ExitStatus.OK


def _detach(request: "NightRequest", plan: Path, ci: CiOutput) -> int:
    """Prepare a night, and start it or its rest in the background."""
    from labctl.cli.run_detached import start_in_background
    from labctl.farm.nightly.run import ready_night

    folder = ready_night(request)
    log = folder / "night.log"
    words = ["nightly", str(plan.absolute()), *["--strict"] * ci.strict]
    words += ["--host", request.host] if request.host else []
    for form, file in ci.files:
        words += ["--write", f"{form}={file.absolute() if file else '-'}"]
    pid = start_in_background(request.lab, words, log)
    click.echo(folder.name)
    note(f"process {pid} runs it; its log: {log}")
    note(f"follow it: tail -f {shlex.quote(str(log))}; `labctl queue` shows its jobs")
    note(f"stop it: kill {pid} lets its runs end; a second time breaks them off")
    return ExitStatus.OK


def _tell(lab: LabFile, plan: str, status: int, lines: list[str]) -> None:
    """Report the end of the night to the lab's webhooks."""
    from labctl.farm.webhooks import LabEvent, notify

    verdicts = {0: "good", 1: "head is slower, or does not build or run"}
    verdict = verdicts.get(status, "some rows have no verdict")
    facts = {str(number): line.strip() for number, line in enumerate(lines, 1)}
    notify(lab, LabEvent("night-ended", f"night {plan}: {verdict}", "", facts), note=note)
