"""Check a built file: static, stripped, right machine, no instruction missing on the target."""

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime

from labctl.build import a64
from labctl.build.artifact import Artifact
from labctl.build.elf import prove, read_elf, read_sections
from labctl.build.functions import read_functions
from labctl.build.isa import LIBRARIES, prove_isa
from labctl.build.job import Made
from labctl.build.manifest import SmokeRun, ToolRecord
from labctl.build.plan import Plan
from labctl.build.smoke import infer, read_options, smoke_run, starter
from labctl.build.untrusted import NOT_STARTED
from labctl.errors import CompileError, ConfigError
from labctl.file_hashes import sha256_file


def examine(plan: Plan, name: str, made: Made) -> ToolRecord:
    """Check a built file against the spec, and start it.

    Raises ConfigError, CompileError, HostError, HostTimeout, ProgramFailed.
    """
    try:
        return _examined(plan, name, made)
    except ConfigError as error:
        if not plan.untrusted:
            raise
        # The lab's spec and target are known to be good, so the source is to blame.
        raise CompileError(error.message, details=error.details) from error


def _examined(plan: Plan, name: str, made: Made) -> ToolRecord:
    tool, path = plan.spec.tools[name], made.file
    facts = read_elf(path)
    prove(name, facts, tool, plan.target)
    isa = None
    if facts.machine == "EM_AARCH64":
        functions = read_functions(made.symbols or (None if facts.stripped else path))
        compiler = plan.order.toolchain.identity.compiler
        isa = prove_isa(
            path,
            functions,
            allowed=plan.spec.dispatched,
            target=plan.target,
            compiler=compiler,
        )
    words = plan.infer_words(name)
    not_started = SmokeRun(done=False, reason=NOT_STARTED)
    ran: SmokeRun | None = None
    if words is not None:
        ran = not_started if plan.untrusted else infer(name, words, path, plan.target)
    return ToolRecord(
        sha256=sha256_file(path),
        size_bytes=path.stat().st_size,
        elf=facts,
        isa=isa,
        sections=read_sections(path),
        smoke=not_started if plan.untrusted else smoke_run(name, tool, path, plan.target),
        infer=ran,
        options=None if plan.untrusted else read_options(name, tool, path, plan.target),
        built=datetime.now(UTC),
        rules=rules(plan, name),
    )


def is_proven(plan: Plan, artifact: Artifact, names: Iterable[str]) -> bool:
    """Return True if the artifact has these tools, checked by the present rules.

    The key identifies what determines a build's bytes. The rules (features of the target, guards,
    first start) can change while the key stays the same.
    """
    kept = artifact.manifest.tools
    return all(artifact.has([name]) and kept[name].rules == rules(plan, name) for name in names)


def rules(plan: Plan, name: str) -> str:
    """SHA-256 of all rules of :func:`examine` for a tool."""
    spec, target = plan.spec, plan.target
    tool = spec.tools[name]
    guards = (*spec.dispatched, *LIBRARIES[plan.order.toolchain.identity.compiler])
    held_against = [
        [target.elf_machine, target.elf_bits, sorted(target.features)],
        [tool.elf, tool.stripped, tool.smoke, tool.smoke_status, tool.help, plan.infer_words(name)],
        NOT_STARTED if plan.untrusted else starter(target),
        [guard.model_dump(mode="json") for guard in guards],
        a64.TABLE,
    ]
    return hashlib.sha256(json.dumps(held_against).encode()).hexdigest()
