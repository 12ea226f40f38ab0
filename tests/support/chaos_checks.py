"""Checks of a lab that was broken: nothing lost, doubled, unfenced, or blamed on the wrong one."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from board_effects import effects_after_epoch, jobs_of_old_epochs, read_effects
from chaos import ChaosLab
from chaos_history import ended_twice

from labctl.errors import ExitStatus
from labctl.records.trial import TrialRecord
from labctl.retry import wait_until
from labctl.runs.record.repository import RunRepository
from labctl.state.job import Job, NewJob

#: A fault breaks what begins so long (s) after it, too: a host or a board is still coming back.
_AFTER = 20.0


def check_all(lab: ChaosLab) -> None:
    """Wait for all jobs; see that none is lost or doubled, blamed wrongly, or was unfenced."""

    def all_ended() -> bool:
        lab.keep_hosts()
        return not lab.state.jobs.list()

    ended = wait_until(all_ended, timeout=240, interval=0.2)
    jobs = [lab.job(name) for name in lab.submitted]
    left = [replace(job, request="") for job in jobs if job.state != "done"]
    assert ended, f"{left}\n{lab.said()}"
    assert not left, f"{left}\n{lab.said()}"
    stale = stale_effects(lab)
    assert not stale, f"{stale}\n{lab.said()}"
    # A host that was cut off with a finished run hears now that another's came before.
    wait_until(lambda: not _doubled(lab), timeout=120, interval=0.5)
    runs = lab.runs()
    for number, job in enumerate(jobs, 1):
        _check_end(lab, job, runs.get(number, []))
    # Interrupted is what comes to its end after another run of the job was finished.
    fine = (0, ExitStatus.INFRA, ExitStatus.INTERRUPTED)
    told = [(job, status) for job, status in lab.ends() if status not in fine]
    wrong = [one for one in told if one != (one[0], 1) or one[0] not in lab.broken]
    assert not wrong, f"blamed on the job: {wrong}\n{lab.said()}"
    assert not ended_twice(lab.history.changes()), lab.said()
    lab.clients.check()
    for name, job in lab.clients.jobs.items():
        done = lab.job(name)
        finished = [path for path in runs.get(_asked(job), []) if _state(path) == "finished"]
        assert done.state == "done", f"{done}\n{lab.said()}"
        assert len(finished) == (done.exit_status == 0), f"{done} {finished}\n{lab.said()}"
    _check_index(lab, runs)


def stale_effects(lab: ChaosLab) -> list[Any]:
    """What happened on a board under an older epoch after a newer one was there.

    Of a change that was over before its process could be looked at, nothing is said.
    """
    log = read_effects(lab.effects)
    wrong = [
        one for one in effects_after_epoch(log) if one["what"] in ("lease", "started") or one["by"]
    ]
    return [*wrong, *jobs_of_old_epochs(log)]


def _doubled(lab: ChaosLab) -> bool:
    try:
        states = [[_state(path) for path in paths] for paths in lab.runs().values()]
    except FileNotFoundError:  # one goes to the trash just now
        return True
    return any(one.count("finished") > 1 for one in states)


def _check_end(lab: ChaosLab, job: Job, runs: list[Path]) -> None:
    """The job's blame is right, and its run is there once, whole, with one record."""
    context = f"{replace(job, request='')}\n{runs}\n{lab.said()}"
    finished = [path for path in runs if _state(path) == "finished"]
    for path in runs:
        numbers = [record.number for record in _records(path)]
        assert len(numbers) == len(set(numbers)), f"a record is doubled in {path}: {context}"
    if job.blame == "infra":
        assert job.exit_status == 3, context
        assert job.attempts >= 3, context
        began, end = job.submitted_at, job.ended_at or 0.0
        here = [one for one in lab.faults if one.began <= end and one.ended >= began - _AFTER]
        assert here, f"nothing was broken: {context}"
        assert len(finished) <= 1, context  # on a host that was dead when the job was given up
        return
    is_broken = job.id in lab.broken
    assert (job.exit_status, job.blame) == ((1, "job") if is_broken else (0, None)), context
    assert [path.name for path in finished] == [job.run], f"not one run: {context}"
    assert job.run is not None
    assert lab.results.setdefault(job.id, job.run) == job.run, f"another result: {context}"
    # A run that was broken off stays with its host, with the record that it may have.
    records = _records(finished[0])
    assert [record.number for record in records] == [1], f"not one record: {context}"
    (record,) = records
    assert record.argv[2:] == (str(_number(job)), "7" if is_broken else "0"), context
    assert (record.failure is not None) == is_broken, context
    if record.failure is not None:
        assert record.failure.blame == "job", context
    assert lab.state.stored_runs.get(job.run) is not None, context


def _check_index(lab: ChaosLab, runs: dict[int, list[Path]]) -> None:
    """The index that the hosts share has each finished run once."""
    for host in lab.hosts.values():
        RunRepository(host.root / "runs").refresh()
    listed = RunRepository(lab.root / "desk" / "runs").query()
    finished = Counter(one.run.id for one in listed if one.run.state == "finished")
    there = (path for paths in runs.values() for path in paths if _state(path) == "finished")
    assert finished == Counter(path.name for path in there), lab.said()


def _asked(job: NewJob) -> int:
    return int(job.request["recipe"]["parameters"]["number"])


def _number(job: Job) -> int:
    return int(job.id.rpartition("-")[2])


def _state(run: Path) -> str | None:
    path = run / "end.json"
    return json.loads(path.read_text())["state"] if path.exists() else None


def _records(run: Path) -> list[TrialRecord]:
    path = run / "records.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [TrialRecord.model_validate_json(line) for line in lines]
