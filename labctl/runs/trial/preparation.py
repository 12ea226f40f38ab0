"""A board with everything on it that a recipe needs: where trials are run."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from labctl.board import LINK_LOSSES, Lease, probe
from labctl.board.job import DEFAULT_SAMPLE_MS
from labctl.board.meter import Meter, meter_of
from labctl.config.recipe import Recipe
from labctl.deploy import DeployOptions, Stopwatch
from labctl.errors import BoardError
from labctl.records import BoardFacts
from labctl.retry import RETRY_SECONDS, retry_infra
from labctl.runs.board.conditions import BoardConditions
from labctl.runs.board.deploy_preview import program_path, send, sending
from labctl.runs.board.held_board import PROBE_SECONDS, BoardMeeting, BoardSession
from labctl.runs.board.opening import OpenedBoard
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.observer import Observer
from labctl.runs.plan.forecast import Foresight
from labctl.runs.trial.context import Bench, DeployedModel
from labctl.runs.trial.energy import trouble
from labctl.transport import remote_words

_HASH_SECONDS = 60.0
#: Pages that the kernel keeps for itself differ a little from boot to boot.
_MEMORY_TOLERANCE = 0.02


@dataclass(frozen=True)
class Stand:
    """A board, a recipe, and where on the board its files are (by SHA-256)."""

    met: BoardMeeting
    session: BoardSession
    prepared: Prepared
    paths: Mapping[str, str]
    observer: Observer
    conditions: BoardConditions
    #: Of the program under test; None: the board does not tell that of its own program.
    program_sha256: str | None
    meter: Meter | None

    def bench(
        self, run_id: str, lease: Lease, foresight: Foresight | None, *, resumed: int = 0
    ) -> Bench:
        """What trials of a run need, under a lease."""
        session, prepared = self.session, self.prepared
        return Bench(
            board=session.board.name,
            target=session.board.target,
            facts=session.facts,
            agent=session.agent,
            epoch=lease.epoch,
            lease_path=session.leases.path,
            check_lease=partial(session.leases.check, lease),
            run_id=run_id,
            engine=prepared.engine,
            tool=prepared.tool,
            program=program_path(prepared, self.paths),
            prompt=prepared.prompt,
            models={
                key: DeployedModel(file.identity, self.paths[file.identity.sha256])
                for key, file in prepared.models.items()
            },
            reattach_seconds=prepared.recipe.timeouts.reattach or RETRY_SECONDS,
            on_link_loss=self.observer.link_lost,
            comparability={
                **prepared.comparability,
                "program_sha256": self.program_sha256,
                **self.conditions.unlike,
            },
            scheduling=prepared.recipe.scheduling,
            sample_ms=_sample_ms(prepared.recipe),
            ready=partial(self.conditions.ready, mine=partial(session.leases.check, lease)),
            files={name: self.paths[item.sha256] for name, item in prepared.files.items()},
            foresight=foresight,
            meter=self.meter,
            revision=prepared.revision,
            resumed=resumed,
        )

    def renewed(self, bench: Bench, lab_name: str, leased: Callable[[Lease], None]) -> Bench:
        """The bench once the board answers again.

        After a restart it is locked and taken anew, and ``leased`` is told. Raises LinkError (it
        does not answer), LeaseLost, BoardError (it is another board now, or another labctl of this
        host was faster).
        """

        def look() -> BoardFacts:
            met = self.met
            found = probe(met.transport, workdir=met.board.workdir, timeout=PROBE_SECONDS)
            found = bench.agent.refine(found)
            bench.check_lease()
            return found

        again = partial(
            retry_infra,
            on=LINK_LOSSES,
            timeout=bench.reattach_seconds,
            on_retry=bench.on_link_loss,
        )
        facts = again(look)
        if differing := differences(bench.facts, facts):
            raise BoardError(f"board {bench.board} is not the same any more: {differing[0]}")
        if facts.boot_id == bench.facts.boot_id:
            return replace(bench, facts=facts)
        self.met.lock_boot(facts.boot_id)
        lease = again(lambda: self.session.take_lease(lab_name))
        leased(lease)
        return self.under(lease, replace(bench, facts=facts))

    def under(self, lease: Lease, bench: Bench) -> Bench:
        """The same bench, as its board is by now, under another lease."""
        check = partial(self.session.leases.check, lease)
        return replace(
            bench,
            epoch=lease.epoch,
            check_lease=check,
            ready=partial(self.conditions.ready, mine=check),
        )


def bring(opened: OpenedBoard, observer: Observer, lab_name: str) -> Stand:
    """Send what the board lacks, and keep others out meanwhile.

    Raises what :func:`labctl.deploy.deploy` and :meth:`BoardSession.hold_to_send` raise.
    """
    met, session, prepared = opened.met, opened.session, opened.prepared
    paths = send(
        session,
        opened.offer.plan,
        DeployOptions(progress=sending(observer), on_loss=observer.link_lost),
        watch := Stopwatch(),
        lab_name,
    )
    watch.note(met.rate_file)
    conditions = BoardConditions(
        met.transport, met.board.workdir, prepared.recipe.conditions, observer.note
    )
    program_sha256 = _program_sha256(prepared, session)
    meter = meter_of(met.board.power) if met.board.power else None
    if meter and (why := trouble(meter)):
        observer.note(f"note: no energy, as it looks: {why}")
    return Stand(met, session, prepared, paths, observer, conditions, program_sha256, meter)


def _program_sha256(prepared: Prepared, session: BoardSession) -> str | None:
    """Of what is run, also where it is the board's own."""
    if prepared.program is not None:
        return prepared.program.sha256
    asked = remote_words(session.agent.path, "hash", prepared.tool.name)
    told = session.transport.run(asked, timeout=_HASH_SECONDS).text.partition(" ")[0].strip()
    return told if re.fullmatch("[0-9a-f]{64}", told) else None


def _sample_ms(recipe: Recipe) -> int:
    interval = recipe.sampling_interval
    return DEFAULT_SAMPLE_MS if interval is None else round(interval * 1000)


def differences(before: BoardFacts, now: BoardFacts) -> list[str]:
    """What tells two looks at a board apart so that their numbers must not be put together.

    How much is free, and which boot it is, may differ.
    """
    other = before.serial and now.serial and before.serial != now.serial
    told = [f"its serial number was {before.serial}, now it is {now.serial}"] if other else []
    return told + differences_in_kind(before, now)


def differences_in_kind(before: BoardFacts, now: BoardFacts) -> list[str]:
    """What tells boards apart that are not of one kind and one system."""
    found = []
    for name in ("execution", "machine", "kernel", "os_version", "storage_kind", "emulator"):
        was, is_now = getattr(before, name), getattr(now, name)
        if was != is_now:
            found.append(f"its {name.replace('_', ' ')} was {was}, now it is {is_now}")
    if before.cpus != now.cpus:
        found.append("its CPUs are others")
    was, is_now = before.memory_total_bytes or 0, now.memory_total_bytes or 0
    if abs(was - is_now) > _MEMORY_TOLERANCE * max(was, is_now):
        found.append(f"its memory was {was} bytes, now it is {is_now}")
    return found
