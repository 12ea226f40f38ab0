"""Grade the stored answers of an evaluation again, without a server, also by other graders."""

from collections.abc import Sequence

from labctl.errors import ConfigError
from labctl.evaluation.datasets.kept import kept_questions
from labctl.evaluation.directory import EvaluationDirectory
from labctl.evaluation.ending import judged, ledger_of
from labctl.evaluation.graders import grader_class
from labctl.evaluation.graders.pool import GraderPool
from labctl.evaluation.grading import grade_answers, right_answers
from labctl.evaluation.plan import make_plan
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.evaluation.results import table_of
from labctl.progress import Progress
from labctl.runs.record.directory import RunDirectory


def grade_again(run: RunDirectory, graders: Sequence[str], progress: Progress) -> int:
    """Grade all answers by some graders, keep other grades; return the number of their grades.

    Texts judged by a grader's current version are not judged again; grades of its older versions
    are replaced. The gates of a finished run are judged again. Raises ConfigError if nothing can be
    graded, or the run is in progress; HostError.
    """
    if not run.is_evaluation:
        raise ConfigError(
            f"run {run.path.name} is no evaluation: it has no answers",
            hint="`labctl runs --kind evaluation` lists those that have answers",
        )
    for name in graders:
        grader_class(name)  # report a wrong name before anything is read
    with run.held(), GraderPool() as pool:
        directory = EvaluationDirectory(run)
        record = directory.record()
        recipe = EvaluationRecipe.of_run(record)
        ledger = ledger_of(directory, make_plan(recipe, record))
        total = sum(1 for _ in ledger.served(directory.generations())) * len(graders)
        grades = []
        fresh = grade_answers(
            ledger,
            directory.generations(),
            answers=right_answers(kept_questions(run.path).questions),
            graders=tuple(dict.fromkeys(graders)),
            pool=pool,
            known=list(directory.known_grades()),
        )
        wanted = 0
        for grade in directory.keeping(fresh):
            grades.append(grade)
            wanted += grade.grader in graders
            progress("grade", wanted, total)
        if not wanted:
            raise ConfigError(
                f"run {directory.id} has no answer to grade",
                hint=f"`labctl resume {directory.id}` asks the missing questions",
            )
        # The recipe's graders first, then the others in the requested order.
        order = {name: number for number, name in enumerate((*record.graders, *graders))}
        grades.sort(key=lambda one: order.get(one.grader, len(order)))
        directory.write_grades(grades)
        if (end := directory.end()) is not None:
            directory.finish(judged(end, recipe, table_of(directory)))
    return wanted
