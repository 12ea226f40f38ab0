"""Grade the kept answers of an evaluation again: by other graders, and without any server."""

from collections.abc import Sequence

from labctl.errors import ConfigError
from labctl.evaluation.datasets.kept import kept_questions
from labctl.evaluation.directory import EvaluationDirectory
from labctl.evaluation.ending import judged, ledger_of
from labctl.evaluation.graders import grader_class
from labctl.evaluation.graders.pool import GraderPool
from labctl.evaluation.grading import grade_answers, right_answers
from labctl.evaluation.plan import make_plan
from labctl.evaluation.recipe import recipe_of
from labctl.evaluation.results import table_of
from labctl.progress import Progress
from labctl.runs.record.directory import RunDirectory


def grade_again(run: RunDirectory, graders: Sequence[str], progress: Progress) -> int:
    """Grade all answers by some graders, beside the grades that there are; return their number.

    What a grader's present version has judged is not judged again; the grades of its older versions
    are replaced. The gates of a finished run are judged again. Raises ConfigError where nothing can
    be graded, or the run is in progress; HostError.
    """
    if not run.is_evaluation:
        raise ConfigError(
            f"run {run.path.name} measured times: it has no answers",
            hint="`labctl runs` lists the runs; `labctl eval` makes those that have answers",
        )
    for name in graders:
        grader_class(name)  # a wrong name is told before anything is read
    with run.held(), GraderPool() as pool:
        directory = EvaluationDirectory(run)
        record = directory.record()
        recipe = recipe_of(record)
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
                hint=f"`labctl resume {directory.id}` asks what is missing",
            )
        # The recipe's graders first, then the others, as they were asked for.
        order = {name: number for number, name in enumerate((*record.graders, *graders))}
        grades.sort(key=lambda one: order.get(one.grader, len(order)))
        directory.write_grades(grades)
        if (end := directory.end()) is not None:
            directory.finish(judged(end, recipe, table_of(directory)))
    return wanted
