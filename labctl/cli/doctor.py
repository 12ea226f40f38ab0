"""``labctl doctor``."""

import json
from dataclasses import asdict

import click

from labctl.cli.output import json_option
from labctl.doctor import Importance, examine
from labctl.errors import ExitStatus, printable_line


@click.command(epilog="Example: labctl doctor --json")
@json_option("Print the findings as JSON.")
def doctor(as_json: bool) -> int:
    """List what is missing on this host.

    Names each program that labctl uses, its purpose, and how to get it. Exit status 3 if something
    required is missing; a missing optional program only limits labctl.
    """
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
