"""``labctl agreement``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from labctl.cli.complete import RUN
from labctl.cli.lab import find_only_run
from labctl.cli.output import json_option, output_console, output_option, write_result
from labctl.cli.root import Invocation
from labctl.errors import ConfigError, ExitStatus

if TYPE_CHECKING:
    from labctl.evaluation.agreement import Answers


@click.command(
    "agreement",
    epilog="Example: labctl agreement 20261122T150000Z-host 20261122T160000Z-board",
)
@json_option("Print all of it as JSON.")
@output_option
@click.argument("first", metavar="RUN", shell_complete=RUN)
@click.argument("second", metavar="[RUN]", required=False, shell_complete=RUN)
@click.pass_obj
def agreement(
    invocation: Invocation,
    first: str,
    second: str | None,
    *,
    as_json: bool,
    output: Path | None,
) -> int:
    """Compare the answers of two servers of one model: is a host as good as the board?

    Give two runs, evaluations with the same questions and prompts, or one run with two models of
    the same file. Prints the share of identical answers, the position of the first difference, and
    the difference in accuracy with its interval. -o FILE.json writes everything.
    """
    if output is not None and output.suffix.lower() != ".json":
        raise ConfigError(f"nothing can be written as {output.name}", hint="name it FILE.json")
    from labctl.evaluation.agreement import agreements
    from labctl.report.agreement import agreements_json, print_agreements

    one = _answers(invocation, first)
    found = agreements(one, one if second is None else _answers(invocation, second))
    if as_json or output is not None:
        write_result(agreements_json(found), output)
    else:
        print_agreements(output_console(), found)
    return ExitStatus.OK


def _answers(invocation: Invocation, name: str) -> "Answers":
    from labctl.evaluation.agreement import Answers
    from labctl.evaluation.directory import EvaluationDirectory

    directory = EvaluationDirectory(find_only_run(invocation, name))
    generations = [one for one in directory.generations() if one.check is None]
    return Answers(directory.record(), generations, list(directory.grades()))
