"""``labctl grade``."""

import json

import click
from click.shell_completion import CompletionItem

from labctl.cli.complete import RUN
from labctl.cli.evaluation_view import show_evaluation
from labctl.cli.lab import find_only_run
from labctl.cli.output import json_option, output_console
from labctl.cli.progress import ProgressView
from labctl.cli.root import Invocation
from labctl.errors import ExitStatus
from labctl.evaluation.graders import GRADERS


def _complete_grader(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(name) for name in GRADERS if name.startswith(incomplete)]


@click.command(epilog="Example: labctl grade latest --grader qwen --grader math-verify")
@click.option(
    "--grader",
    "-g",
    "graders",
    multiple=True,
    metavar="NAME",
    shell_complete=_complete_grader,
    help=f"Grader; repeatable: {', '.join(GRADERS)}. Default: the recipe's graders.",
)
@click.option(
    "--disagreements",
    is_flag=True,
    help="List every answer that the graders judge differently.",
)
@json_option("Print the accuracies as JSON; with --disagreements also these.")
@click.argument("name", metavar="[RUN]", default="latest", shell_complete=RUN)
@click.pass_obj
def grade(
    invocation: Invocation,
    name: str,
    *,
    graders: tuple[str, ...],
    disagreements: bool,
    as_json: bool,
) -> int:
    """Grade the kept answers of an evaluation again, without any server.

    New grades are added to those of the run; answers judged by the present version of a grader are
    not judged again. Then prints the accuracies by every grader, and judges the gates of the recipe
    again. Exit status 1: a gate is missed.
    """
    from labctl.evaluation.datasets.kept import kept_questions
    from labctl.evaluation.directory import EvaluationDirectory
    from labctl.evaluation.grading import right_answers
    from labctl.evaluation.regrade import grade_again
    from labctl.evaluation.results import document, table_of
    from labctl.report.accuracy_table import print_disagreements

    run = find_only_run(invocation, name)
    wanted = graders or (run.evaluation().graders if run.is_evaluation else ())
    with ProgressView() as view, view.step("grade") as step:
        grade_again(run, wanted, lambda _, done, total: step.update(done, total))
    directory = EvaluationDirectory(run)
    end = directory.end()
    table = table_of(directory)
    if as_json:
        found = document(directory.record(), end, table, disagreements=disagreements)
        click.echo(json.dumps(found, indent=2))
    else:
        show_evaluation(run)
        if disagreements:
            answers = right_answers(kept_questions(run.path).questions)
            print_disagreements(output_console(), table, answers)
    is_missed = end is not None and any(gate.passed is False for gate in end.gates)
    return ExitStatus.JOB if is_missed else ExitStatus.OK
