"""``labctl show``."""

import json
import re
from pathlib import Path

import click

from labctl.cli.complete import COMPARED
from labctl.cli.lab import find_only_run
from labctl.cli.options import allowed_signers_option
from labctl.cli.output import json_option
from labctl.cli.root import Invocation
from labctl.errors import printable_line

#: RUN/NUMBER, or the path of a trial's folder.
_TRIAL = re.compile(r"(?P<run>.+?)/(?:trials/)?(?P<number>\d{1,6})(?:-[^/]*)?/?")


@click.command(
    epilog="Examples: labctl show latest; labctl show latest/3 --json; labctl show x.labctl.zip"
)
@allowed_signers_option
@json_option("Print the facts as JSON, times in ns and sizes in bytes.")
@click.argument("name", metavar="RUN|RUN/NUMBER|BUNDLE", default="latest", shell_complete=COMPARED)
@click.pass_obj
def show(invocation: Invocation, name: str, *, as_json: bool, allowed_signers: Path | None) -> None:
    """Print all facts of a run or a trial with their origin, or the facts of a bundle.

    The origin is the file of the run directory that has the fact, and in brackets the source of the
    value. Unknown facts are left out. BUNDLE is a file of `labctl bundle`: its hashes and its
    signature are checked, and nothing in it is run; FILE/ENTRY prints one of its files.
    """
    from labctl.cli.bundle import as_bundle, show_bundle

    if (bundle := as_bundle(name)) is not None:
        show_bundle(*bundle, allowed_signers, as_json=as_json)
        return
    if allowed_signers is not None:
        raise click.UsageError("--allowed-signers is for a bundle")
    from labctl.report.facts import facts_document, run_facts, trial_facts

    trial = None if (Path(name) / "run.json").is_file() else _TRIAL.fullmatch(name)
    directory = find_only_run(invocation, trial["run"] if trial else name)
    if directory.is_evaluation and not trial:
        from labctl.cli.evaluation_view import facts_of_evaluation

        facts_of_evaluation(directory, as_json=as_json)
        return
    if directory.is_load_test and not trial:
        from labctl.cli.load_test_view import facts_of_load_test

        facts_of_load_test(directory, as_json=as_json)
        return
    facts = trial_facts(directory, int(trial["number"])) if trial else run_facts(directory)
    if as_json:
        click.echo(json.dumps(facts_document(directory, facts), indent=2))
        return
    click.echo(printable_line(str(directory.path)))
    origin = None
    for fact in facts:
        if fact.origin != origin:
            origin = fact.origin
            click.echo(f"\n{printable_line(origin)}")
        if fact.value not in (None, [], ""):
            click.echo(printable_line(f"  {fact.name}: {fact.text}"))
