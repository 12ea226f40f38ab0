"""The plan of a deploy, before the first byte is sent: files that a board needs, and obstacles."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from labctl.board.store import BoardStore, StoredObject
from labctl.board.workdir_check import Survey
from labctl.build.artifact import Artifact, find_artifact
from labctl.config.target import DEFAULT_TARGET, Target, load_target, target_of
from labctl.errors import (
    BoardError,
    BoardNoSpace,
    BoardPermission,
    ConfigError,
    IntegrityError,
    LabctlError,
)
from labctl.file_hashes import sha256_file
from labctl.records.board import BoardFacts, Execution
from labctl.transport.base import Transport, require
from labctl.transport.file_transfer import BoardHash
from labctl.units import size


@dataclass(frozen=True)
class Object:
    """A file of this host that a board must have. ``name``: for messages and look-ups."""

    sha256: str
    size_bytes: int
    local: Path
    name: str
    executable: bool = False

    def document(self) -> dict[str, object]:
        """Return name, hash and size as JSON."""
        return {"name": self.name, "sha256": self.sha256, "size_bytes": self.size_bytes}

    @property
    def stored(self) -> StoredObject:
        """The same object in the form of the board store."""
        return StoredObject(self.sha256, self.size_bytes, self.name)


@dataclass(frozen=True)
class DeployPlan:
    """All objects that the board needs, and those to send.

    ``arrived_bytes``: bytes of the missing ones on the board from an earlier attempt.
    """

    objects: tuple[Object, ...]
    missing: tuple[Object, ...]
    arrived_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the missing objects."""
        return sum(item.size_bytes for item in self.missing)

    @property
    def bytes_to_send(self) -> int:
        """Number of bytes to send over the link."""
        return max(0, self.bytes - self.arrived_bytes)

    def of(self, objects: Collection[Object]) -> "DeployPlan":
        """Return the part of the plan for some of its objects."""
        hashes = {item.sha256 for item in objects}
        missing = (item for item in self.missing if item.sha256 in hashes)
        return DeployPlan(tuple(objects), tuple(missing))


def describe(local: Path, *, name: str | None = None, executable: bool = False) -> Object:
    """Return the object of a file, with its SHA-256. Raises ConfigError if it cannot be read."""
    try:
        return Object(
            sha256=sha256_file(local),
            size_bytes=local.stat().st_size,
            local=local,
            name=name or local.name,
            executable=executable,
        )
    except OSError as error:
        raise ConfigError(f"cannot read {local}: {error.strerror}") from error


def agent_object(facts: BoardFacts, agent_for: Callable[[str], Path]) -> Object:
    """Return the agent for the machine that the board natively runs.

    ``agent_for`` returns the file for a machine as named by ``uname -m``; it raises ConfigError if
    there is none. A virtual board on a PC gets a PC's agent, whatever its programs are built for.
    """
    return describe(agent_for(facts.machine), name="agent", executable=True)


def plan(
    store: BoardStore,
    objects: Iterable[Object],
    *,
    also: str = "",
    on_answers: Callable[[Mapping[str, str]], None] = lambda _answers: None,
) -> DeployPlan:
    """Plan the objects to send, from those on the board; see :meth:`BoardStore.missing`."""
    wanted = tuple(objects)
    lacking = store.missing((item.stored for item in wanted), also=also, on_answers=on_answers)
    absent = {item.sha256 for item in lacking}
    missing = {item.sha256: item for item in wanted if item.sha256 in absent}
    return DeployPlan(wanted, tuple(missing.values()))


AGENT_PRODUCT = "agent"
#: Output of ``uname -m`` for 32-bit programs on a 64-bit kernel.
_COMPATIBLE = {"aarch64": "armv8l"}
#: Far above an agent's own size, far below the size of files that take long to hash.
_PART_BYTES = 4 << 20
#: Timeout (s) of small queries, including the hash of the agent.
_ANSWER_SECONDS = 20.0


def is_machine(target: Target, machine: str) -> bool:
    """Return True if ``uname -m`` fits the target, also with a 32-bit userland on a 64-bit kernel.

    The agent proves that such a board can run the target's programs.
    """
    return machine in (target.machine, _COMPATIBLE.get(target.machine))


def check_machine(target: Target, facts: BoardFacts) -> None:
    """Refuse a target for another machine, before anything is sent. Raises ConfigError."""
    if facts.execution is not Execution.EMULATED and not is_machine(target, facts.machine):
        android = facts.phone is not None
        fitting = target_of(facts.machine, facts.compatible, DEFAULT_TARGET, None, android=android)
        hint = f"set the board's real target in devices.yaml: {fitting or 'there is none yet'}"
        if facts.execution is Execution.NATIVE_HOST:
            hint += f"; or restart it: labctl virtual-board --target {target.name}"
        raise ConfigError(
            f"target {target.name} is {target.machine}, the board is {facts.machine}", hint=hint
        )


def check_features(target: Target, facts: BoardFacts) -> None:
    """Refuse a target with instructions missing on the CPUs, as shell or agent see them.

    Raises ConfigError.
    """
    if facts.execution is Execution.EMULATED:
        return
    for cpu in facts.cpus:
        lacking = sorted(set(target.features) - set(cpu.features)) if cpu.features else []
        if lacking:
            raise ConfigError(
                f"target {target.name} uses instructions that the board's CPU does not have: "
                f"{', '.join(lacking)}",
                hint="build for a target that fits, and name it in devices.yaml",
            )


def agent_target(machine: str, target: Target) -> str:
    """Return the name of the agent's target on a board; ``machine`` is its ``uname -m``."""
    return target.name if is_machine(target, machine) else f"host-{machine}"


def agent_artifact(machine: str, target: Target, lab_root: Path) -> Artifact:
    """Find the agent for a machine as named by ``uname -m``.

    Raises ConfigError if this host has not built it yet.
    """
    try:
        return find_artifact(agent_target(machine, target), AGENT_PRODUCT, lab_root=lab_root)
    except ConfigError as error:
        error.of_host()
        raise


def agents_in(store: BoardStore) -> list[StoredObject]:
    """Return the agents of all versions that are complete in a board's store."""
    named = [item for item in store.contents() if item.name == AGENT_PRODUCT]
    absent = store.missing(named)
    return [item for item in named if item not in absent]


def agent_hash(transport: Transport, workdir: str, target: str, lab_root: Path) -> BoardHash | None:
    """Return the agent's hash command on a board; None if it lacks this labctl's agent.

    It hashes parts with all CPUs. The agent's own bytes are hashed twice: by the board's
    ``sha256sum``, to compare them with the build, then by the agent itself. Raises LinkError.
    """
    try:
        asked = transport.run("uname -m", timeout=_ANSWER_SECONDS)
        machine = require(asked, f"{transport.label}: cannot ask for its machine").text.strip()
        built = agent_artifact(machine, load_target(target, lab_root), lab_root).manifest
        own = built.tools[AGENT_PRODUCT]
        path = BoardStore(transport, workdir).path(own.sha256)
        seen = BoardHash("sha256", ("sha256sum",)).ask(
            transport, path, own.size_bytes, _ANSWER_SECONDS
        )
        if seen.hexadecimal != own.sha256:
            return None
        found = BoardHash("sha256", (path, "hash", "--parts", str(_PART_BYTES)), _PART_BYTES)
        # The agent's file is one part; this proves that the agent runs there and can hash parts.
        of_one_part = sha256(bytes.fromhex(own.sha256)).hexdigest()
        seen = found.ask(transport, path, own.size_bytes, _ANSWER_SECONDS)
    except (ConfigError, BoardError, IntegrityError):
        return None  # it was not built here, is not on the board, or does not run there
    return found if seen.hexadecimal == of_one_part else None


#: Reserve on the board: file systems need space themselves, and jobs need it for their output.
SPARE_BYTES = 32 << 20
#: Maximum size of a file, by type of file system. FAT stores sizes in 32 bits.
LARGEST_FILE_BYTES = {"vfat": (1 << 32) - 1, "msdos": (1 << 32) - 1, "fat": (1 << 32) - 1}


def problems(
    plan: DeployPlan, survey: Survey, facts: BoardFacts, *, limit_bytes: int | None = None
) -> list[LabctlError]:
    """Return all obstacles of this plan; an empty list if nothing has to be sent.

    ``limit_bytes``: maximum size of the workdir afterwards. Unknown facts of a board are not
    obstacles: the deploy is tried.
    """
    if not plan.missing:
        return []
    return [
        *_access(survey),
        *_file_sizes(plan, survey, facts),
        *_space(plan, survey, facts),
        *_limit(plan, survey, limit_bytes),
    ]


def refuse(found: Sequence[LabctlError], board: str) -> None:
    """Raise all problems as one error with the blame of the first; do nothing without problems."""
    if not found:
        return
    if len(found) == 1:
        raise found[0]
    lines = [
        f"{number}. {problem.message}" + (f"\n   hint: {problem.hint}" if problem.hint else "")
        for number, problem in enumerate(found, start=1)
    ]
    raise type(found[0])(
        f"{board} cannot take these files, for {len(found)} reasons; nothing was sent",
        hint="each reason has its own remedy",
        details="\n".join(lines),
    )


def _access(survey: Survey) -> Iterator[LabctlError]:
    where = survey.directory
    if survey.why_not_written is not None:
        yield BoardPermission(
            f"the board's shell user cannot write to {where}: {survey.why_not_written}",
            hint="set another workdir for the board in devices.yaml",
        )
    elif survey.why_not_executed is not None:
        yield BoardPermission(
            f"the board executes no program in {where}: {survey.why_not_executed}",
            hint="is it mounted noexec (as /sdcard is), or does SELinux forbid it? Set another"
            " workdir for the board in devices.yaml: phones execute programs below /data/local/tmp",
        )


def _file_sizes(plan: DeployPlan, survey: Survey, facts: BoardFacts) -> Iterator[LabctlError]:
    kind = facts.storage_kind or ""
    limits = (
        (LARGEST_FILE_BYTES.get(kind), f"a file on {kind}", "set a workdir on another file system"),
        (
            survey.largest_file_bytes,
            "a file of the board's shell user (ulimit -f)",
            "raise the limit on the board",
        ),
    )
    for item in plan.missing:
        for most, what, hint in limits:
            if most is not None and item.size_bytes > most:
                yield ConfigError(
                    f"{item.name} has {size(item.size_bytes)}, {what} at most {size(most)}",
                    hint=hint,
                )


def _coming(plan: DeployPlan, survey: Survey) -> int:
    """Return the storage (bytes) that the plan still needs; partial files already have a part."""
    return sum(
        max(0, item.size_bytes - survey.reserved_bytes.get(item.sha256, 0)) for item in plan.missing
    )


def _space(plan: DeployPlan, survey: Survey, facts: BoardFacts) -> Iterator[LabctlError]:
    coming, free = _coming(plan, survey), facts.storage_free_bytes
    if free is not None and free < coming + SPARE_BYTES:
        yield BoardNoSpace(
            f"not enough space on the board: {size(coming + SPARE_BYTES)} needed"
            f" ({size(coming)} + {size(SPARE_BYTES)} reserve), {size(free)} free",
            hint=f"`labctl store prune --free {math.ceil((coming + SPARE_BYTES) / 1e6)}MB`"
            " removes the least recently used files",
            details="\n".join(f"{item.name}: {size(item.size_bytes)}" for item in plan.missing),
        )


def _limit(plan: DeployPlan, survey: Survey, limit_bytes: int | None) -> Iterator[LabctlError]:
    coming = _coming(plan, survey)
    if limit_bytes is not None and survey.used_bytes + coming > limit_bytes:
        yield ConfigError(
            f"the board's limits.storage is {size(limit_bytes)}: {size(survey.used_bytes)} are"
            f" used and {size(coming)} more needed",
            hint="raise the limit in devices.yaml, or `labctl store prune`",
        )
