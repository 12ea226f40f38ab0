"""Facts of a built file, read from its ELF header (System V ABI, chapter 4 and 5)."""

from collections.abc import Iterator
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

from labctl.build.manifest import ElfFacts
from labctl.build.spec import ElfKind, ToolSpec
from labctl.config.target import Target
from labctl.errors import ConfigError, HostError


def read_elf(path: Path) -> ElfFacts:
    """Read the facts of a file. Raises ConfigError when it is not ELF, or HostError."""
    try:
        with path.open("rb") as file:
            return _facts(ELFFile(file))
    except ELFError as error:
        raise ConfigError(f"{path} is not an ELF file: {error}") from error
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from error


def read_sections(path: Path) -> dict[str, int]:
    """Size of each named section in bytes; ``.bss`` and its like take memory only."""
    with path.open("rb") as file:
        sizes: dict[str, int] = {}
        for section in ELFFile(file).iter_sections():
            if section.name:
                sizes[section.name] = sizes.get(section.name, 0) + int(section["sh_size"])
        return sizes


def _facts(elf: ELFFile) -> ElfFacts:
    interpreter: str | None = None
    dynamic = False
    needed: tuple[str, ...] = ()
    for segment in elf.iter_segments():
        if isinstance(segment, InterpSegment):
            interpreter = str(segment.get_interp_name())
        elif isinstance(segment, DynamicSegment):
            dynamic = True
            needed = tuple(str(vars(tag)["needed"]) for tag in segment.iter_tags("DT_NEEDED"))
    symbols = any(
        section["sh_type"] == "SHT_SYMTAB" or section.name.startswith((".debug_", ".zdebug_"))
        for section in elf.iter_sections()
    )
    return ElfFacts(
        machine=str(elf["e_machine"]),
        bits=elf.elfclass,
        type=str(elf["e_type"]),
        interpreter=interpreter,
        dynamic=dynamic,
        needed=needed,
        stripped=not symbols,
    )


def prove(name: str, facts: ElfFacts, tool: ToolSpec, target: Target) -> None:
    """Refuse a file that the target could not run as it is.

    Raises ConfigError that says everything that is wrong with it: the spec or the target cannot be.
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
