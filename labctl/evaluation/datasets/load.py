"""Choose the questions to ask, and the worked examples before them."""

from pathlib import Path

from labctl import package_data
from labctl.errors import ConfigError
from labctl.evaluation.datasets.rows import Rows, read_rows
from labctl.evaluation.datasets.source import DatasetSource, HubDataset
from labctl.evaluation.datasets.subset import in_seed_order
from labctl.evaluation.question import Dataset, Question
from labctl.progress import Progress, silent
from labctl.units import counted


def load_dataset(source: DatasetSource, root: Path, progress: Progress = silent) -> Dataset:
    """Read a data set: all checks, the subset, the examples.

    A relative ``file`` begins at ``root``, the lab's folder. If the lab has no
    ``recipes/questions/…`` file, the one shipped with labctl is used. Raises ConfigError with file
    and line, HostError if a hub cannot be reached.
    """
    rows, shown = _rows(source, source.file, source.hub, root, progress)
    questions, notes = _distinct(rows, shown)
    examples: tuple[Question, ...] = ()
    if source.shots is not None:
        shots = source.shots
        if shots.file is None and shots.hub is None:
            from_rows, from_shown = rows, shown
        else:
            from_rows, from_shown = _rows(source, shots.file, shots.hub, root, progress)
        asked_elsewhere = {one.text for one in questions} if from_rows is not rows else set()
        candidates, _ = _distinct(from_rows, from_shown)
        free = [one for one in candidates if one.text not in asked_elsewhere]
        examples = tuple(in_seed_order(free, shots.seed)[: shots.count])
        if len(examples) < shots.count:
            raise ConfigError(
                f"{from_shown} has only {counted(len(free), 'question')} that could be worked"
                f" examples: shots.count is {shots.count}"
            )
        taken = {one.text for one in examples}
        questions = [one for one in questions if one.text not in taken]
        if not questions:
            raise ConfigError(f"{shown}: the worked examples leave no question to ask")
    chosen = (
        questions if source.subset_seed is None else in_seed_order(questions, source.subset_seed)
    )
    if source.limit is not None:
        if source.limit > len(chosen):
            notes.append(
                f"{shown} has only {counted(len(chosen), 'question')}, fewer than the limit"
            )
        chosen = chosen[: source.limit]
    return Dataset(
        name=source.label,
        source=shown,
        sha256=rows.sha256,
        size=len(rows.questions),
        questions=tuple(chosen),
        split=None if source.hub is None else source.hub.split,
        subset_seed=source.subset_seed,
        examples=examples,
        notes=tuple(notes),
    )


def _rows(
    source: DatasetSource,
    file: str | None,
    hub: HubDataset | None,
    root: Path,
    progress: Progress,
) -> tuple[Rows, str]:
    if file is not None:
        path = local_file(file, root)
        if not path.exists():
            raise ConfigError(
                f"no file {file} with questions",
                hint=f"put it at {path}, or use another: --set dataset.file=FILE",
            ).at(file)
        if not path.is_file():
            raise ConfigError(f"{file} is a folder or device, not a file with questions").at(file)
        return read_rows(path, source, file), file
    assert hub is not None
    from labctl.evaluation.datasets.hub import fetch_dataset  # http is slow to import

    fetched = fetch_dataset(hub, progress)
    return read_rows(fetched.path, source, fetched.address), fetched.address


def local_file(file: str, root: Path) -> Path:
    """Return the lab's file, or the one shipped with labctl."""
    own, from_labctl = root / file, package_data.RECIPES.parent / file
    if not own.exists() and Path(file).parts[:1] == ("recipes",) and from_labctl.exists():
        return from_labctl
    return own


def _distinct(rows: Rows, shown: str) -> tuple[list[Question], list[str]]:
    """Return each question once. Raises ConfigError if a question has two answers."""
    first: dict[tuple[str, tuple[str, ...]], tuple[Question, int]] = {}
    repeated: list[int] = []
    for question, line in zip(rows.questions, rows.lines, strict=True):
        known, at = first.setdefault((question.text, question.choices), (question, line))
        if known.answer != question.answer:
            raise ConfigError(
                f"{shown}:{line}: repeats the question of line {at} with another answer:"
                f" {question.answer[:60]!r}, not {known.answer[:60]!r}"
            ).at(shown, line)
        if known is not question:
            repeated.append(line)
    notes = []
    if repeated:
        which = ", ".join(map(str, repeated[:8])) + (" …" if len(repeated) > 8 else "")
        notes.append(
            f"{shown}: {counted(len(repeated), 'question')} repeated, asked once"
            f" (line{'s' * (len(repeated) > 1)} {which})"
        )
    return [question for question, _ in first.values()], notes
