"""``labctl reproduce``: measure a bundle's run again on a board of this lab, and compare."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from labctl.build.plan import BuildRequest
from labctl.bundle.importing import import_bundle, imported_name
from labctl.bundle.programs import ProgramPlan, plan_program
from labctl.bundle.reader import Bundle
from labctl.bundle.records import BundledRun, bundled_run
from labctl.bundle.signature import Signer
from labctl.bundle.trusted_recipe import Missing, TrustedRecipe, trusted_recipe
from labctl.bundle.verdicts import Measured, Number, judge, judge_search, texts
from labctl.compare.session_noise import board_history
from labctl.compare.tuned import tuned
from labctl.config.lab import Board, LabFile
from labctl.config.recipe import Recipe
from labctl.config.yaml.document import Document
from labctl.errors import ConfigError
from labctl.file_hashes import sha256_file
from labctl.files import host_writes, write_atomic
from labctl.progress import Progress
from labctl.results.summary import ESTIMATE, good_trials
from labctl.runs.inputs.prepare import find_files, read_recipe
from labctl.runs.observer import Observer
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.repository import RunRepository, note_in_index
from labctl.runs.run import RunRequest, run_recipe
from labctl.runs.runner import Outcome
from labctl.transport.base import Transport
from labctl.units import counted, size

#: Folder of the lab with recipes and inputs of reproductions.
FOLDER = "reproductions"
_LONGEST_SHOWN = 400


@dataclass(frozen=True)
class Reproduction:
    """Plan of a reproduction. Nothing was written, fetched or built yet."""

    bundle: Bundle
    known: BundledRun
    signer: Signer | None
    lab: LabFile
    board: Board
    folder: Path
    trusted: TrustedRecipe
    document: Document
    recipe: Recipe
    program: ProgramPlan

    def lines(self) -> Iterator[str]:
        """Yield all that a person must know before the start; the bundle's texts are unchanged."""
        run, plan = self.known.run, self.known.plan
        yield f"run {run.id}: recipe {run.recipe} on a {run.target}, {run.facts.execution}"
        yield str(self.signer) if self.signer else "not signed: its author is unknown"
        yield from self.program.lines
        argv = next((trial.argv for trial in self.known.trials if trial.argv), ())
        yield f"program and arguments there: {_short(' '.join(argv))}"
        if self.recipe.prompt is not None:
            yield f"prompt: {_short(self.recipe.prompt)!r}"
        for name in self.trusted.inputs:
            entry = self.bundle.manifest.entries[name]
            yield f"input: {name}, {size(entry.size_bytes)}, SHA-256 {entry.sha256}"
        for origin in self.trusted.origins:
            source = self.trusted.document["models"].get(origin.key)
            if source is not None:
                large = f", {size(origin.size_bytes)}" if origin.size_bytes else ""
                yield f"model {origin.key}{large}, SHA-256 {origin.sha256}: {_place(source)}"
        made = [m for m in self.trusted.document["models"].values() if "derive" in m]
        if made:
            yield "llama-quantize, built here, makes models on this host"
        yield from (f"on the board, the recipe {caution}" for caution in self.trusted.cautions)
        if self.recipe.target != run.target:
            yield f"another kind of board, a {self.recipe.target}: compared by shares of ceilings"
        yield (
            f"runs on board {self.board.name}: {counted(len(plan.trials), 'trial')}, at most"
            f" {self.recipe.max_time:g} s"
        )


def plan_reproduction(
    bundle: Bundle,
    signer: Signer | None,
    lab: LabFile,
    board: Board,
    *,
    files: Mapping[str, Path],
    inputs: Mapping[str, Path],
    program: Path | None = None,
) -> Reproduction:
    """Plan the reproduction of a bundle's run; everything in the bundle is checked.

    Args:
        bundle: an open bundle.
        signer: signer of the bundle, as verified by the caller.
        lab: the lab whose board and builds are used.
        board: the board to measure on; its target may differ from the bundle's.
        files: the user's own model files, by the models' keys.
        inputs: the user's own files for the recipe's `files`, by their keys.
        program: the user's own file for a program that labctl did not build.

    Raises NotABundle, ConfigError (something is missing, with a hint; a recipe that could start a
    program chosen by the bundle), HostError.
    """
    bundle.verify()
    known = bundled_run(bundle)
    folder = lab.root / FOLDER / imported_name(bundle)
    trusted = trusted_recipe(
        bundle,
        known,
        board,
        folder=folder,
        files=files,
        inputs=inputs,
        program=program,
        lab_root=lab.root,
    )
    _refuse_missing(trusted.missing)
    text = json.dumps(trusted.document, indent=2, ensure_ascii=False)
    name = str(folder / "recipe.yaml")
    document = Document.parse(f"# Made by labctl reproduce from {bundle.sha256}\n{text}\n", name)
    recipe = read_recipe(document, lab_root=lab.root)
    planned = plan_program(bundle, known, recipe, lab.root)
    _refuse_missing([] if planned.missing is None else [planned.missing])
    return Reproduction(
        bundle, known, signer, lab, board, folder, trusted, document, recipe, planned
    )


def _refuse_missing(missing: Sequence[Missing]) -> None:
    """Raise ConfigError for everything missing, each with a hint."""
    if missing:
        first, *others = missing
        details = "\n".join(f"{one.what}: {one.cure}" for one in others)
        raise ConfigError(
            f"it cannot be reproduced yet: {first.what}", hint=first.cure, details=details or None
        )


def reproduce(
    planned: Reproduction,
    connect: Callable[[Board], Transport],
    observer: Observer,
    progress: Progress,
    build: Callable[[BuildRequest], object],
) -> tuple[Outcome, RunDirectory, list[Number]]:
    """Reproduce a run: write its inputs, build, fetch, run, import the bundle, and judge.

    Returns the run, the imported one beside it, and a judgement for each number. Raises ConfigError
    for a model with other bytes than the measured ones, and the errors of
    :func:`labctl.runs.run.run_recipe` and ``build``.
    """
    recipe, lab, board = planned.recipe, planned.lab, planned.board
    with host_writes(planned.folder):
        if planned.folder.exists():
            shutil.rmtree(planned.folder)
    planned.bundle.extract(planned.trusted.inputs, planned.folder)
    write_atomic(planned.folder / "recipe.yaml", planned.document.text)
    for request in planned.program.builds:
        build(request)
    prepared = find_files(recipe, board, lab.root).with_models(progress)
    wanted = {model.key: model.sha256 for model in planned.known.run.models}
    for key, file in prepared.models.items():
        if file.identity.sha256 != wanted[key]:
            raise ConfigError(
                f"the model {key!r} has other bytes here: its SHA-256 is {file.identity.sha256},"
                f" not {wanted[key]}",
                hint=f"get the measured file from the bundle's author: --model {key}=FILE",
            )
    outcome = run_recipe(RunRequest(recipe, board, lab, build), connect, observer)
    imported = _imported(planned, observer)
    here = Measured(outcome.run, outcome.trials)
    there = Measured(imported.run(), imported.trials())
    repository = RunRepository(lab.root / "runs", observer.note)
    numbers, own, other = [], imported.tuning(), outcome.directory.tuning()
    if own and other:  # a raced setting's times are no result
        results = tuned(there.run, there.trials, own), tuned(here.run, here.trials, other)
        numbers = judge_search(*results, (there.run.facts, here.run.facts))
        there, here = there.only(own.default), here.only(other.default)
    numbers += judge(there, here, board_history(repository))
    numbers += texts(there, here, planned.bundle.manifest, _outputs(outcome))
    return outcome, imported, numbers


def reproduction_document(
    bundle: Path, there: RunDirectory, here: Outcome, numbers: Sequence[Number]
) -> dict[str, object]:
    """Return a reproduction as JSON: the ids of both runs, and the judgements; times in ns."""
    return {
        "bundle": str(bundle),
        "there": there.path.name,
        "here": here.run.id,
        "estimate": ESTIMATE,
        "numbers": [asdict(one) for one in numbers],
    }


def _imported(planned: Reproduction, observer: Observer) -> RunDirectory:
    runs = planned.lab.root / "runs"
    there = RunDirectory(runs / imported_name(planned.bundle))
    if not there.is_imported:
        there = import_bundle(planned.bundle, runs, planned.signer)
        note_in_index(there, observer.note)
    return there


def _outputs(outcome: Outcome) -> dict[str, str]:
    """Return for each variant the hash of the output of its first good repeat."""
    found: dict[str, str] = {}
    for trial in good_trials(outcome.trials):
        path = outcome.directory.trial_path(trial.number, trial.slug) / "stdout"
        if trial.variant not in found and path.is_file():
            found[trial.variant] = sha256_file(path)
    return found


def _place(source: Mapping[str, object]) -> str:
    """Return the source of a model, in a few words."""
    ((kind, where),) = ((k, v) for k, v in source.items() if k != "lock")
    if isinstance(where, Mapping):
        return f"{kind} {', '.join(f'{key} {value}' for key, value in where.items())}"
    return f"{kind} {where}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}… ({len(text)})"
