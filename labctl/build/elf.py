"""Facts of a built file from its ELF header, and a target's requirements for them."""

from collections.abc import Iterator
from pathlib import Path

from labctl.build.elf_file import open_elf
from labctl.build.manifest import ElfFacts
from labctl.build.spec import ElfKind, ToolSpec
from labctl.config.target import Target
from labctl.errors import ConfigError


def read_elf(path: Path) -> ElfFacts:
    """Read the facts of a file.

    Raises ConfigError if it is not ELF, CompileError if it is damaged, HostError.
    """
    with open_elf(path) as elf:
        return ElfFacts(
            machine=elf.machine,
            bits=elf.bits,
            type=elf.type,
            interpreter=elf.interpreter(),
            dynamic=elf.is_dynamic,
            needed=elf.needed(),
            stripped=not any(section.tells_source for section in elf.sections),
        )


def read_sections(path: Path) -> dict[str, int]:
    """Size of each named section in bytes; ``.bss`` and similar ones take only memory."""
    sizes: dict[str, int] = {}
    with open_elf(path) as elf:
        for section in elf.sections:
            if section.name:
                sizes[section.name] = sizes.get(section.name, 0) + section.size
    return sizes


def prove(name: str, facts: ElfFacts, tool: ToolSpec, target: Target) -> None:
    """Refuse a file that the target could not run unchanged.

    Raises ConfigError with all reasons: the spec or the target may be wrong.
    """
    wrong: list[str] = []
    if facts.machine != target.elf_machine:
        wrong.append(f"it is for {facts.machine}, not {target.elf_machine}")
    if facts.bits != target.elf_bits:
        wrong.append(f"it has {facts.bits} bits, not {target.elf_bits}")
    wrong += _wrong_kind(facts, tool.elf)
    if tool.stripped and not facts.stripped:
        wrong.append("it is not stripped")
    if wrong:
        raise ConfigError(
            f"{name} is not a {tool.elf.value.replace('-', ' ')} for target {target.name}: "
            + "; ".join(wrong),
            hint="the build spec's definitions or flags, or the target's, have to change",
        )


def _wrong_kind(facts: ElfFacts, kind: ElfKind) -> Iterator[str]:
    match kind:
        case ElfKind.STATIC_EXECUTABLE:
            if facts.type != "ET_EXEC":
                yield f"its type is {facts.type}, not ET_EXEC"
            if facts.interpreter is not None:
                yield f"it asks for the dynamic linker {facts.interpreter}"
            elif facts.dynamic:
                yield "it has a dynamic section"
        case ElfKind.DYNAMIC_EXECUTABLE:
            if facts.interpreter is None or not facts.dynamic:
                yield "it asks for no dynamic linker"
        case ElfKind.SHARED_OBJECT:
            if facts.type != "ET_DYN" or not facts.dynamic or facts.interpreter is not None:
                yield "it is not a shared object"
