"""Problems that would stop a deploy halfway, found before the first byte is sent: all at once."""

import math
from collections.abc import Iterator, Sequence

from labctl.board import Survey
from labctl.deploy.plan import DeployPlan
from labctl.errors import BoardNoSpace, BoardPermission, ConfigError, LabctlError
from labctl.records import BoardFacts
from labctl.units import size

#: Left free on the board: file systems need room for their own, and jobs for their output.
SPARE_BYTES = 32 << 20
#: The most that one file may have, by type of file system. FAT keeps sizes in 32 bits.
LARGEST_FILE_BYTES = {"vfat": (1 << 32) - 1, "msdos": (1 << 32) - 1, "fat": (1 << 32) - 1}


def problems(
    plan: DeployPlan, survey: Survey, facts: BoardFacts, *, limit_bytes: int | None = None
) -> list[LabctlError]:
    """Everything that keeps this plan from being carried out; nothing when there is nothing to do.

    ``limit_bytes`` is the most that the workdir may hold afterwards. What a board does not tell is
    no problem: it is tried.
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
    """Raise what was found, as one error with the blame of the first; nothing for nothing."""
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
            hint="is it mounted noexec? Set another workdir for the board in devices.yaml",
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
    """Bytes of storage that the plan still needs: what was begun has its room already."""
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
