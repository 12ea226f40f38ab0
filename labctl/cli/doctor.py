"""``labctl doctor``."""

import json
from dataclasses import asdict

import click

from labctl.cli.lab import lab_or_own
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation
from labctl.doctor import Importance, examine
from labctl.errors import ConfigError, ExitStatus, printable_line


@click.command(epilog="Example: labctl doctor --json")
@json_option("Print the findings as JSON.")
@click.pass_obj
def doctor(invocation: Invocation, as_json: bool) -> int:
    """List what is missing on this host.

    Names each program that labctl uses, its purpose, and how to get it, and the boards of the lab
    whose memory seems slow. Exit status 3 if something required is missing; a missing optional
    program only limits labctl.
    """
    try:
        findings = examine(lab_or_own(invocation))
    except ConfigError as error:
        note(f"boards are not judged: {error.message}")
        findings = examine()
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            needed = finding.importance is Importance.NEEDED
            mark = "ok" if finding.found else ("MISSING" if needed else "absent")
            click.echo(printable_line(f"{mark:8}{finding.name}: {finding.detail}"))
            if not finding.found:
                click.echo(f"{'':8}used for: {finding.used_for}")
                click.echo(f"{'':8}get it:   {finding.remedy}")
    lacking = [f for f in findings if not f.found and f.importance is Importance.NEEDED]
    return ExitStatus.INFRA if lacking else ExitStatus.OK
