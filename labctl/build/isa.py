"""The proof that a program uses no instruction missing on its target.

An extension that the target does not have may occur only in functions guarded by run-time dispatch.
These are listed with the reason, in a build spec or here. A name alone is weak evidence: names of
library functions apply only to the libraries of their compiler, and are as narrow as possible.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from labctl.build import a64
from labctl.build.elf_file import open_elf
from labctl.build.functions import Functions
from labctl.build.manifest import CompilerKind, DispatchedUse, IsaFacts
from labctl.build.spec import Dispatched
from labctl.config.target import Target
from labctl.errors import CompileError, ConfigError

#: Functions in every compiler's runtime.
_RUNTIME = (
    Dispatched(
        functions=tuple(
            f"__aarch64_{operation}[1-8]*_*"
            for operation in ("cas", "swp", "ldadd", "ldclr", "ldeor", "ldset")
        ),
        extensions=("atomics",),
        reason="outline atomics of the compiler's runtime: they ask the kernel for LSE first",
    ),
    Dispatched(
        functions=(
            *("__arm_sme_state", "__arm_tpidr2_*", "__arm_za_disable", "__arm_get_current_vg"),
            *("__arm_sc_memcpy", "__arm_sc_memmove", "__arm_sc_memset", "__arm_sc_memchr"),
        ),
        extensions=("sme", "sve"),
        reason="SME support of the compiler's runtime: called only by code that uses SME",
    ),
)
_GLIBC = (
    Dispatched(
        functions=("__memcpy_sve", "__memmove_sve", "__memset_sve_zva64"),
        extensions=("sve",),
        reason="a string function of glibc that its ifunc resolver takes on CPUs with SVE only",
    ),
    Dispatched(
        functions=("__memcpy_a64fx", "__memmove_a64fx", "__memset_a64fx"),
        extensions=("sve",),
        reason="a string function of glibc that its ifunc resolver takes on A64FX only",
    ),
    Dispatched(
        functions=("__memcpy_mops", "__memmove_mops", "__memset_mops"),
        extensions=("mops",),
        reason="a string function of glibc that its ifunc resolver takes on CPUs with MOPS only",
    ),
    Dispatched(
        functions=(
            *("malloc", "calloc", "realloc", "free", "memalign", "*_memalign*", "_int_*"),
            *("__libc_*", "__malloc*", "__realloc", "__calloc", "__free", "malloc_usable_size"),
        ),
        extensions=("mte",),
        reason="memory tagging in glibc's malloc, behind a flag that is off unless the kernel "
        "offers it and a tunable asks for it",
    ),
)
_GCC_UNWINDER = (
    Dispatched(
        functions=(
            *("uw_update_context*", "uw_init_context*", "uw_install_context*"),
            *("uw_frame_state_for*", "execute_stack_op*", "_Unwind_GetGR", "_Unwind_SetGR"),
        ),
        extensions=("sve",),
        reason="GCC's unwinder: it asks for the vector length (CNTD) only where the table of a "
        "frame names register 46, VG, as that of SVE code does",
    ),
)
_LLVM_UNWINDER = (
    Dispatched(
        functions=("libunwind::*libunwind::Registers_arm64*", "__libunwind_Registers_arm64_*"),
        extensions=("sve", "sme", "mte"),
        reason="LLVM's unwinder: it asks for the state of SVE, SME and tags only where code that "
        "uses them left some",
    ),
)
#: Functions of C libraries and compiler runtimes that check the CPU before they use an extension,
#: by the compiler that links them. An SDK's runtime is unknown: any of them.
LIBRARIES: Mapping[CompilerKind, tuple[Dispatched, ...]] = {
    CompilerKind.ZIG: _RUNTIME + _LLVM_UNWINDER,
    CompilerKind.GCC: _RUNTIME + _GLIBC + _GCC_UNWINDER,
    CompilerKind.SDK: _RUNTIME + _GLIBC + _GCC_UNWINDER + _LLVM_UNWINDER,
}

_MOST_NAMES = 3
_INSTRUCTION_BYTES = 4
#: Words per step: the table's intermediate results stay in the CPU cache.
_PIECE_WORDS = 1 << 16
#: Maximum pairs of a function and an extension; llama.cpp has 900.
_MOST_HITS = 1 << 18
_UNNAMED = "no function is known there"


@dataclass(frozen=True)
class Hit:
    """Instructions of one extension in one function."""

    extension: str
    function: str
    address: int
    count: int


def read_isa(path: Path, functions: Functions) -> tuple[IsaFacts, list[Hit]]:
    """Find the instructions of an A64 program.

    Raises ConfigError if it has no code section, CompileError if it is damaged or has too many
    pairs of a function and an extension.
    """
    import numpy as np

    found: dict[tuple[str, str], tuple[int, int]] = {}
    with open_elf(path) as elf:
        sections = elf.code()
        if not sections:
            raise ConfigError(
                f"{path.name} has no sections of code: its code cannot be checked",
                hint="strip it with the toolchain's own strip, which keeps the table of sections",
            )
        for section in sections:
            raw = elf.read(section.offset, section.size, section.name)
            words = np.frombuffer(raw, dtype="<u4", count=len(raw) // _INSTRUCTION_BYTES)
            start = section.address
            for first, end in functions.data_ranges(start, start + len(raw)):
                words[_index(first - start) : _index(end - start + 3)] = 0
            for at in range(0, len(words), _PIECE_WORDS):
                begin = np.uint64(start + at * _INSTRUCTION_BYTES)
                for extension, positions in a64.find(words[at : at + _PIECE_WORDS]):
                    addresses = begin + positions.astype(np.uint64) * np.uint64(_INSTRUCTION_BYTES)
                    for name, address, count in functions.group(addresses):
                        key = (extension, name or _UNNAMED)
                        earliest, total = found.get(key, (address, 0))
                        found[key] = (earliest, total + count)
                if len(found) > _MOST_HITS:
                    raise CompileError(
                        f"{path.name} has optional instructions in more than {_MOST_HITS:,}"
                        " functions"
                    )
    used = dict.fromkeys(sorted(extension for extension, _ in found), 0)
    for (extension, _), (_, count) in found.items():
        used[extension] += count
    hits = [Hit(*key, *found[key]) for key in sorted(found)]
    return IsaFacts(used=used, named=functions.known), hits


def _index(offset: int) -> int:
    return offset // _INSTRUCTION_BYTES


def prove_isa(
    path: Path,
    functions: Functions,
    *,
    allowed: Sequence[Dispatched],
    target: Target,
    compiler: CompilerKind,
) -> IsaFacts:
    """Return a program's instructions; refuse unguarded instructions missing on the target.

    ``allowed``: the build spec's guards; guards of the compiler's own libraries are known here.
    Raises ConfigError that names the functions.
    """
    facts, hits = read_isa(path, functions)
    lacking = [hit for hit in hits if hit.extension not in target.features]
    guarded: dict[Dispatched, list[Hit]] = {}
    bare: list[Hit] = []
    rules = (*allowed, *LIBRARIES[compiler])
    for hit in lacking:
        guard = next((rule for rule in rules if _covers(rule, hit)), None)
        if guard is None:
            bare.append(hit)
        else:
            guarded.setdefault(guard, []).append(hit)
    if bare:
        raise _refusal(path.name, bare, target)
    uses = tuple(
        DispatchedUse(
            extensions=tuple(sorted({hit.extension for hit in found})),
            functions=tuple(sorted({hit.function for hit in found})),
            reason=rule.reason,
        )
        for rule, found in guarded.items()
    )
    return facts.model_copy(update={"dispatched": uses})


def _covers(rule: Dispatched, hit: Hit) -> bool:
    return hit.extension in rule.extensions and any(
        fnmatchcase(hit.function, pattern) for pattern in rule.functions
    )


def _refusal(name: str, bare: Sequence[Hit], target: Target) -> ConfigError:
    most = sorted(bare, key=lambda hit: -hit.count)
    shown = "; ".join(
        f"{hit.extension} in {hit.function} ({hit.count} at {hit.address:#x} and on)"
        for hit in most[:_MOST_NAMES]
    )
    more = f"; and {len(bare) - _MOST_NAMES} more" if len(bare) > _MOST_NAMES else ""
    lines = [f"{hit.extension:10} {hit.count:6} {hit.address:#10x} {hit.function}" for hit in most]
    return ConfigError(
        f"{name} uses instructions that target {target.name} does not have: {shown}{more}",
        hint="build it with the target's own flags (GGML_NATIVE=OFF for llama.cpp); code that asks "
        "the CPU first is named under 'dispatched' in the build spec",
        details="\n".join(lines[:40]),
    )
