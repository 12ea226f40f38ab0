"""Read the records of a run from an open bundle, without trust in their names."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from labctl.bundle import form
from labctl.bundle.form import NotABundle, name_problem
from labctl.bundle.reader import Bundle
from labctl.config.printed import check_json
from labctl.errors import ConfigError
from labctl.records.base import FileRecord, read_record
from labctl.records.run import Annotations, PlanRecord, RunEnd, RunRecord
from labctl.records.trial import TrialRecord
from labctl.records.tuning import TuningRecord
from labctl.runs.record.directory import ANNOTATIONS, RECORD, TUNING, is_run_id
from labctl.runs.record.disk import COMPRESSED
from labctl.text_types import is_name

RecordT = TypeVar("RecordT", bound=FileRecord)

#: Folder of the run directory's files in a bundle.
RUN = "run/"
_TRIAL = re.compile(rf"{RUN}trials/([^/]+)/{re.escape(RECORD)}")


@dataclass(frozen=True)
class BundledRun:
    """The records of a bundle's run."""

    run: RunRecord
    plan: PlanRecord
    trials: tuple[TrialRecord, ...]


def bundled_run(bundle: Bundle) -> BundledRun:
    """Read all records of a bundle's run; check that their names are safe in paths.

    Raises NotABundle.
    """
    run_id = bundle.manifest.run
    if not is_run_id(run_id) or name_problem(run_id) or "/" in run_id:
        raise bundle.refusal(f"{run_id[:100]!r} is not the id of a run")
    # A bundle has all files uncompressed: a compressed file could unpack to any size later.
    if packed := [name for name in bundle.names if name.endswith(COMPRESSED)]:
        raise bundle.refusal(f"{packed[0]} is compressed")
    run = _record(bundle, f"{RUN}run.json", RunRecord)
    plan = _record(bundle, f"{RUN}plan.json", PlanRecord)
    for name, kind in (("end.json", RunEnd), (ANNOTATIONS, Annotations), (TUNING, TuningRecord)):
        if bundle.has(f"{RUN}{name}"):
            _record(bundle, f"{RUN}{name}", kind)
    found = [match for name in bundle.names if (match := _TRIAL.fullmatch(name))]
    trials = [_record(bundle, match[0], TrialRecord) for match in found]
    for match, trial in zip(found, trials, strict=True):
        if match[1] != f"{trial.number:03d}-{trial.slug}" or trial.number < 1:
            raise bundle.refusal(f"{match[0]} belongs to trial {trial.number} {trial.slug[:100]!r}")
    if run.id != run_id:
        raise bundle.refusal(f"it belongs to run {run_id}, but has {run.id[:100]!r}")
    names = {run.recipe, run.board, run.target, *(trial.board for trial in trials)}
    if odd := sorted(name for name in names if not is_name(name)):
        raise bundle.refusal(f"it has the name {odd[0][:100]!r}, which labctl never uses")
    return BundledRun(run, plan, tuple(sorted(trials, key=lambda trial: trial.number)))


def _record(bundle: Bundle, name: str, kind: type[RecordT]) -> RecordT:
    raw = bundle.read(name, most=form.MOST_RECORD_BYTES)
    try:
        check_json(raw, most_bytes=form.MOST_RECORD_BYTES)
        return read_record(kind, raw, Path(name))
    except ConfigError as error:
        raise NotABundle(f"{bundle.path}: {error.message}", hint=error.hint) from error
    except ValueError as error:
        raise bundle.refusal(f"{name} is not a record: {str(error).splitlines()[0]}") from error
