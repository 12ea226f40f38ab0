"""Samples of Neural Network Runtime: programs with their model inside.

Each author chooses a sample's output, so the recipe says how to read it. labctl knows the runtime's
names of failures: ``OH_NN_ReturnCode`` in ``neural_network_runtime_type.h``.
"""

import re
from typing import ClassVar, Self

from labctl.engines.base import EngineKeys, RawOutput
from labctl.engines.command import Command
from labctl.engines.command.keys import SampleKeys
from labctl.errors import LabctlError, ProgramFailed
from labctl.records.trial import JobStatus

_FAILURE = re.compile(
    rb"OH_NN_(?:FAILED|INVALID_PARAMETER|MEMORY_ERROR|OPERATION_FORBIDDEN|NULL_PTR|INVALID_FILE"
    rb"|UNAVALIDABLE_DEVICE|UNAVAILABLE_DEVICE|INVALID_PATH|TIMEOUT|UNSUPPORTED)\b"
)
_NO_DEVICE = (b"OH_NN_UNAVALIDABLE_DEVICE", b"OH_NN_UNAVAILABLE_DEVICE")


class NnrtSample(Command):
    """A program that builds its model with the runtime's calls."""

    name = "nnrt"
    task = "sample"
    keys_model: ClassVar[type[EngineKeys]] = SampleKeys

    @classmethod
    def chosen(cls, keys: SampleKeys) -> Self:  # type: ignore[override]
        """Make the engine of a recipe."""
        return cls(keys.program, keys.arguments, keys.output, success=keys.success)

    def diagnose(self, job: JobStatus, raw: RawOutput) -> LabctlError | None:
        """Return a failure that the runtime reports, with any exit status."""
        found = _FAILURE.search(raw.stdout + b"\n" + raw.stderr)
        if found is None or job.outcome != "exited":
            return super().diagnose(job, raw)
        hint = "check that the board has a driver for an accelerator"
        return ProgramFailed(
            f"Neural Network Runtime failed: {found[0].decode()}",
            hint=hint if found[0] in _NO_DEVICE else None,
            details=(raw.stdout + b"\n" + raw.stderr)[-2000:].decode(errors="replace"),
        )
