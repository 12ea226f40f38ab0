"""Optional instructions of A64 in a piece of code.

A table of encodings (Arm ARM, DDI 0487, chapter C4) over all words at once. Each instruction is one
32-bit word, so nothing has to be disassembled. Extensions have the names of /proc/cpuinfo (Linux,
Documentation/arch/arm64/elf_hwcaps.rst). The table leaves out what every ARMv8.0-A CPU has.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Row(NamedTuple):
    """Words ``w`` with ``w & mask == value`` belong to an extension."""

    extension: str
    mask: int
    value: int


#: FCVT from half precision looks like half-precision arithmetic, but is in ARMv8.0-A.
_FROM_HALF = (0xFFFF7C00, 0x1EE24000)

TABLE = tuple(
    Row(extension, mask, value)
    for extension, rows in {
        "sve": [(0x1E000000, 0x04000000)],
        "sme": [(0x9E000000, 0x80000000)],
        "asimddp": [  # SDOT, UDOT; by vector, by element
            (0x9FE0FC00, 0x0E809400),
            (0x9FC0F400, 0x0F80E000),
        ],
        "i8mm": [  # SMMLA, UMMLA, USMMLA; USDOT; USDOT and SUDOT by element
            (0xDFE0F400, 0x4E80A400),
            (0xBFE0FC00, 0x0E809C00),
            (0xBFC0F400, 0x0F80F000),
            (0xBFC0F400, 0x0F00F000),
        ],
        "bf16": [  # BFDOT, BFMLAL, BFMMLA; BFDOT and BFMLAL by element; BFCVTN, BFCVT
            (0xBFE0FC00, 0x2E40FC00),
            (0xBFE0FC00, 0x2EC0FC00),
            (0xFFE0FC00, 0x6E40EC00),
            (0xBFC0F400, 0x0F40F000),
            (0xBFC0F400, 0x0FC0F000),
            (0xBFFFFC00, 0x0EA16800),
            (0xFFFFFC00, 0x1E634000),
        ],
        "fphp": [  # scalar: all with the type field 11; fused multiply-add
            (0x7FC00000, 0x1EC00000),
            (0xFFC00000, 0x1FC00000),
            # AdvSIMD scalar: three same, two registers, pairwise, by element, fixed point
            (0xDF60C400, 0x5E400400),
            (0xDF7E0C00, 0x5E780800),
            (0xFF7FCC00, 0x5E30C800),
            (0xFFC0B400, 0x5F001000),
            (0xDFC0F400, 0x5F009000),
            (0xDFF0FC00, 0x5F10E400),
            (0xDFF0FC00, 0x5F10FC00),
        ],
        "asimdhp": [  # three same, two registers, across lanes, by element, immediate, fixed point
            (0x9F60C400, 0x0E400400),
            (0x9F7E0C00, 0x0E780800),
            (0xBF7FCC00, 0x0E30C800),
            (0xBFC0B400, 0x0F001000),
            (0x9FC0F400, 0x0F009000),
            (0xBFF8FC00, 0x0F00FC00),
            (0x9FF0FC00, 0x0F10E400),
            (0x9FF0FC00, 0x0F10FC00),
        ],
        "asimdfhm": [  # FMLAL, FMLSL and their second halves; by element
            (0xBF60FC00, 0x0E20EC00),
            (0xBF60FC00, 0x2E20CC00),
            (0xBFC0B400, 0x0F800000),
            (0xBFC0B400, 0x2F808000),
        ],
        "asimdrdm": [  # SQRDMLAH, SQRDMLSH: vector, scalar; by element
            (0xBF20F400, 0x2E008400),
            (0xFF20F400, 0x7E008400),
            (0xBF00D400, 0x2F00D000),
            (0xFF00D400, 0x7F00D000),
        ],
        "fcma": [  # FCMLA, FCADD; FCMLA by element
            (0xBF20E400, 0x2E00C400),
            (0xBF20EC00, 0x2E00E400),
            (0xBF009400, 0x2F001000),
        ],
        "jscvt": [(0xFFFFFC00, 0x1E7E0000)],
        "frint": [(0xFFBE7C00, 0x1E284000), (0x9FBFEC00, 0x0E21E800)],
        "crc32": [(0x7FE0E000, 0x1AC04000)],
        "aes": [(0xFFFFCC00, 0x4E284800)],
        "pmull": [(0xBFE0FC00, 0x0EE0E000)],
        "sha1": [(0xFFE0CC00, 0x5E000000), (0xFFFFEC00, 0x5E280800)],
        "sha2": [(0xFFE0CC00, 0x5E004000), (0xFFFFFC00, 0x5E282800)],
        "sha3": [
            (0xFFE0FC00, 0xCE608C00),
            (0xFFE08000, 0xCE000000),
            (0xFFE08000, 0xCE200000),
            (0xFFE00000, 0xCE800000),
        ],
        "sha512": [
            (0xFFE0FC00, 0xCE608000),
            (0xFFE0FC00, 0xCE608400),
            (0xFFE0FC00, 0xCE608800),
            (0xFFFFFC00, 0xCEC08000),
        ],
        "sm3": [(0xFFE0C000, 0xCE408000), (0xFFE08000, 0xCE400000), (0xFFE0F800, 0xCE60C000)],
        "sm4": [(0xFFE0FC00, 0xCE60C800), (0xFFFFFC00, 0xCEC08400)],
        "atomics": [  # LD<op>, SWP; CAS, CASP
            (0x3F208C00, 0x38200000),
            (0x3F20FC00, 0x38208000),
            (0x3FA07C00, 0x08A07C00),
            (0xBFA07C00, 0x08207C00),
        ],
        "lor": [(0x3FA08000, 0x08800000)],  # LDLAR, STLLR; /proc/cpuinfo has no name for them
        "lrcpc": [(0x3FFFFC00, 0x38BFC000)],
        "ilrcpc": [(0x3F200C00, 0x19000000)],
        "paca": [  # PAC*, AUT* of registers; BRAA, BLRAA; RETAA; LDRAA. Hints run on every CPU.
            (0xFFFF0000, 0xDAC10000),
            (0xFEDFF800, 0xD61F0800),
            (0xFFFFFBFF, 0xD65F0BFF),
            (0xFF200400, 0xF8200400),
        ],
        "pacg": [(0xFFE0FC00, 0x9AC03000)],
        "flagm": [
            (0xFFFFFFFF, 0xD500401F),
            (0xFFE07C10, 0xBA000400),
            (0xFFFFBC1F, 0x3A00080D),
        ],
        "flagm2": [(0xFFFFFFFF, 0xD500403F), (0xFFFFFFFF, 0xD500405F)],
        "mte": [
            (0xFFE0FC00, 0x9AC01000),
            (0xFFE0FC00, 0x9AC01400),
            (0xDFE0FC00, 0x9AC00000),
            (0xBFC0C000, 0x91800000),
            (0xFF200000, 0xD9200000),
            (0xFE400000, 0x68000000),
        ],
        "mops": [(0x3B200C00, 0x19000400)],
        "cssc": [
            (0x7FFFFC00, 0x5AC02000),
            (0x7FFFF800, 0x5AC01800),
            (0x7FF00000, 0x11C00000),
            (0x7FE0F000, 0x1AC06000),
        ],
        "ls64": [(0xFFFFDC00, 0xF83F9000), (0xFFE0DC00, 0xF8209000), (0xFFE0FC00, 0xF820A000)],
        "hbc": [(0xFF000010, 0x54000010)],
        "dcpop": [(0xFFFFFFE0, 0xD50B7C20)],
        "rng": [(0xFFFFFFC0, 0xD53B2400)],
        "sb": [(0xFFFFFFFF, 0xD50330FF)],
        "wfxt": [(0xFFFFFFC0, 0xD5031000)],
    }.items()
    for mask, value in rows
)

EXTENSIONS = tuple(dict.fromkeys(row.extension for row in TABLE))


def find(words: "NDArray[np.uint32]") -> Iterator[tuple[str, "NDArray[np.intp]"]]:
    """Yield each extension that occurs, with the ascending positions of its words."""
    import numpy as np  # checking that a tool is already proven needs only the table, not numpy

    from_half = words & np.uint32(_FROM_HALF[0]) == np.uint32(_FROM_HALF[1])
    for extension in EXTENSIONS:
        hits = np.zeros(len(words), dtype=bool)
        for row in TABLE:
            if row.extension == extension:
                hits |= words & np.uint32(row.mask) == np.uint32(row.value)
        if extension == "fphp":
            hits &= ~from_half
        if hits.any():
            yield extension, np.flatnonzero(hits)
