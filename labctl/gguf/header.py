"""The header of a GGUF file: key-value pairs and the list of tensors, without their data.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little endian.
The reader of the ``gguf`` package is not used: it makes numpy objects of every string of the
vocabulary (2.3 s for 49,000 tokens, 0.1 s here), and raises arbitrary numpy errors for a truncated
file. Only its table of tensor types is used. It is imported late because it imports numpy.
"""

import io
import re
import shlex
import stat
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO, TypeAlias

from labctl.errors import ConfigError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
#: A greater version number means a damaged file.
_MOST_VERSION = 1000
_DEFAULT_ALIGNMENT = 32
#: Types removed from llama.cpp -> their names, and the types to use in their place.
_REMOVED = {
    4: ("Q4_2", "Q4_K_M"),
    5: ("Q4_3", "Q4_K_M"),
    31: ("Q4_0_4_4", "Q4_0"),
    32: ("Q4_0_4_8", "Q4_0"),
    33: ("Q4_0_8_8", "Q4_0"),
    36: ("IQ4_NL_4_4", "IQ4_NL"),
    37: ("IQ4_NL_4_8", "IQ4_NL"),
    38: ("IQ4_NL_8_8", "IQ4_NL"),
}
#: Names of raw pieces of one file: ``x.gguf-split-a``, ``x.gguf.part1of2``, ``x.gguf.aa``.
_PIECE = re.compile(
    r"(?P<stem>(?P<whole>.+?)(?:[-._](?:split|part)[-._]?|(?<=\.gguf)[-._]))"
    r"(?:[a-z]{1,2}|[0-9]{1,3}(?P<of>-?of-?(?P<count>[0-9]{1,3}))?)(?P<end>(?:\.gguf)?)",
    re.IGNORECASE,
)
_MOST_PIECES_NAMED = 20


class ValueType(IntEnum):
    """Types of values in the header: ``gguf_metadata_value_type`` of the format."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


_SCALARS = {
    ValueType.UINT8: "<B",
    ValueType.INT8: "<b",
    ValueType.UINT16: "<H",
    ValueType.INT16: "<h",
    ValueType.UINT32: "<I",
    ValueType.INT32: "<i",
    ValueType.FLOAT32: "<f",
    ValueType.BOOL: "<?",
    ValueType.UINT64: "<Q",
    ValueType.INT64: "<q",
    ValueType.FLOAT64: "<d",
}
#: Longest array of numbers that is read: per-layer settings are shorter, vocabularies longer.
_LONGEST_KEPT_ARRAY = 1024
_MOST_DIMENSIONS = 4
#: Limits orders of magnitude above any model. A header above a limit is damaged; reading it would
#: take hours (a file of zeros is a long list of empty texts) or all memory.
_MOST_VALUES = 1 << 16
_MOST_TENSORS = 1 << 17
#: In all lists together. A vocabulary has about 250,000 tokens and as many merges.
_MOST_TEXTS = 1 << 22
_LONGEST_TEXT_BYTES = 1 << 24
#: All kept keys, texts, arrays and names together. A template has about 10 kB.
_MOST_KEPT_BYTES = 1 << 26
#: Minimum size of a kept value as a Python object.
_VALUE_BYTES = 32


@dataclass(frozen=True)
class Skipped:
    """A long array (the vocabulary) that was not kept."""

    length: int

    def __len__(self) -> int:
        return self.length


Value: TypeAlias = bool | int | float | str | list[int | float | bool] | Skipped


@dataclass(frozen=True)
class Tensor:
    """Place of one tensor in the file."""

    name: str
    shape: tuple[int, ...]
    type: str
    size_bytes: int
    offset: int  # in the file

    @property
    def elements(self) -> int:
        """Number of weights."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


@dataclass(frozen=True)
class Header:
    """Everything before the tensor data."""

    version: int
    values: dict[str, Value]
    tensors: tuple[Tensor, ...]


def read_header(path: Path) -> Header:
    """Read a header and check that the file holds all the tensor data it announces.

    Raises ConfigError that names the file and the problem.
    """
    try:
        # Check the type before opening: opening a pipe without a writer would block forever.
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise ConfigError(f"the model {path} is no file; a .gguf file is wanted")
        with path.open("rb") as file:
            return _Reader(path, file, path.stat().st_size).header()
    except FileNotFoundError:
        raise ConfigError(f"no model file {path}", hint="check the path") from None
    except IsADirectoryError:
        raise ConfigError(f"the model {path} is a directory; a .gguf file is wanted") from None
    except OSError as error:
        raise ConfigError(f"cannot read the model {path}: {error.strerror}") from error


class GoesOn(Exception):
    """The header continues beyond the given beginning of the file."""


class _Beginning(io.BytesIO):
    def read(self, count: int | None = -1, /) -> bytes:
        found = super().read(count)
        if count is not None and len(found) < count:
            raise GoesOn
        return found


def read_beginning(name: str, beginning: bytes, size_bytes: int) -> Header:
    """Read a header from the beginning of a file whose full size is ``size_bytes``.

    Raises GoesOn if the header is longer than the beginning, ConfigError as :func:`read_header`
    does.
    """
    return _Reader(Path(name), _Beginning(beginning), size_bytes).header()


class _Reader:
    def __init__(self, path: Path, file: BinaryIO, size: int):
        self.path = path
        self.file = file
        self.size = size
        self.kept_left = _MOST_KEPT_BYTES
        self.texts_left = _MOST_TEXTS

    def refuse(self, what: str, hint: str | None = None) -> ConfigError:
        return ConfigError(f"{self.path}: {what}", hint=hint)

    def refuse_bytes(self, what: str, hint: str) -> ConfigError:
        """Refuse a file that is not a whole model; say so if its name is that of a raw piece."""
        piece = _PIECE.fullmatch(self.path.name)
        if piece is None:
            return self.refuse(what, hint)
        stem = self.path.with_name(piece["stem"])
        pieces = f"{shlex.quote(str(stem))}*"
        if (count := int(piece["count"] or 0)) and count <= _MOST_PIECES_NAMED:
            numbers = (f"{number}{piece['of']}" for number in range(1, count + 1))
            pieces = shlex.join(f"{stem}{number}{piece['end']}" for number in numbers)
        whole = self.path.with_name(piece["whole"].removesuffix(".gguf") + ".gguf")
        return self.refuse(
            f"one of several raw pieces of a file, which llama-gguf-split did not make; {what}",
            hint=f"join all of them in their order: cat {pieces} > {shlex.quote(str(whole))}",
        )

    def cut_short(self, needed: int | None = None) -> ConfigError:
        why = (
            f"{self.size} of {needed} bytes"
            if needed
            else f"the header is longer than the file ({self.size} bytes)"
        )
        return self.refuse_bytes(f"the GGUF file is truncated: {why}", "copy or download it again")

    def header(self) -> Header:
        # Each announced entry takes bytes of the file, and counts are limited.
        if not self.size:
            raise self.refuse("the file is empty", hint="copy or download it again")
        magic = self.file.read(len(_MAGIC))
        if magic != _MAGIC:
            raise self.refuse_bytes(
                f"not a GGUF file: it begins with {magic!r} instead of {_MAGIC!r}",
                "is it a web page, a Git LFS pointer or another model format?",
            )
        version = self.number("<I")
        if version & 0xFFFF == 0:
            raise self.refuse("a big-endian GGUF file; the boards are little-endian")
        if max(_VERSIONS) < version <= _MOST_VERSION:
            raise self.refuse(
                f"GGUF version {version} is newer than this labctl (it reads 2 and 3)",
                hint="update labctl on this host, or convert the model to version 3",
            )
        if version not in _VERSIONS:
            raise self.refuse(
                f"GGUF version {version} is not supported (known: 2 and 3)",
                hint="convert the model again with a current converter",
            )
        tensor_count, value_count = self.number("<Q"), self.number("<Q")
        self.bound(value_count, _MOST_VALUES, "key-value pairs")
        self.bound(tensor_count, _MOST_TENSORS, "tensors")
        values: dict[str, Value] = {}
        for _ in range(value_count):
            key = self.text()
            if key in values:
                raise self.refuse(f"the key {key[:80]!r} comes twice")
            values[key] = self.value(key)
        alignment = values.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise self.refuse(f"general.alignment is {alignment!r}, not a power of two")
        announced = [self.tensor() for _ in range(tensor_count)]
        self.check_places(announced, alignment)
        data = -(-self.file.tell() // alignment) * alignment
        tensors = tuple(
            Tensor(name, shape, kind, size, data + offset)
            for name, shape, kind, size, offset in announced
        )
        end = max((tensor.offset + tensor.size_bytes for tensor in tensors), default=0)
        if end > self.size:
            raise self.cut_short(end)
        return Header(version, values, tensors)

    def check_places(
        self, announced: list[tuple[str, tuple[int, ...], str, int, int]], alignment: int
    ) -> None:
        """Check for unique names and no gaps between tensors, as llama.cpp requires."""
        names, end = set(), 0
        for name, _, _, size, offset in announced:
            if name in names:
                raise self.refuse(f"the tensor {name[:80]!r} comes twice")
            if offset != end:
                raise self.refuse(
                    f"tensor {name[:80]!r} begins at {offset} of the data, not behind the one"
                    f" before it, at {end}"
                )
            names.add(name)
            end = -(-(offset + size) // alignment) * alignment

    def bound(self, count: int, most: int, what: str) -> None:
        if count > most:
            raise self.refuse(f"the header announces {count} {what}: it is damaged")

    def keep(self, count: int) -> None:
        self.kept_left -= count
        if self.kept_left < 0:
            raise self.refuse(f"the header has more than {_MOST_KEPT_BYTES >> 20} MiB of texts")

    def take(self, count: int) -> bytes:
        # Compare first: a hostile length must not make Python reserve memory.
        if count > self.size - self.file.tell():
            raise self.cut_short()
        return self.file.read(count)

    def skip(self, count: int) -> None:
        if count > self.size - self.file.tell():
            raise self.cut_short()
        self.file.seek(count, 1)

    def skip_texts(self, count: int) -> None:
        self.bound(count, self.texts_left, "texts in one list")
        self.texts_left -= count
        # A vocabulary with its merges has hundreds of thousands of texts: keep this loop minimal.
        read, seek = self.file.read, self.file.seek
        for _ in range(count):
            raw = read(8)
            length = int.from_bytes(raw, "little")
            if len(raw) < 8 or length > self.size:
                raise self.cut_short()
            seek(length, 1)

    def number(self, form: str) -> int:
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(value)

    def text(self) -> str:
        length = self.number("<Q")
        if length > self.size:
            raise self.cut_short()
        self.bound(length, _LONGEST_TEXT_BYTES, "bytes of one text")
        self.keep(length + _VALUE_BYTES)
        return self.take(length).decode(errors="replace")

    def value(self, key: str) -> Value:
        kind = self.kind(key)
        if kind is ValueType.STRING:
            return self.text()
        if kind is ValueType.ARRAY:
            return self.array(key)
        form = _SCALARS[kind]
        scalar: bool | int | float = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return scalar

    def kind(self, key: str) -> ValueType:
        number = self.number("<I")
        try:
            return ValueType(number)
        except ValueError:
            raise self.refuse(f"the value of {key[:80]!r} has the unknown type {number}") from None

    def array(self, key: str) -> Value:
        kind = self.kind(key)
        length = self.number("<Q")
        if kind is ValueType.ARRAY:
            raise self.refuse(f"{key[:80]!r} is an array of arrays, which llama.cpp does not read")
        if kind is ValueType.STRING:
            self.skip_texts(length)
            return Skipped(length)
        form = _SCALARS[kind]
        width = struct.calcsize(form)
        if length > _LONGEST_KEPT_ARRAY:
            self.skip(length * width)
            return Skipped(length)
        self.keep(length * _VALUE_BYTES)
        raw = self.take(length * width)
        return [item for (item,) in struct.iter_unpack(form, raw)]

    def tensor(self) -> tuple[str, tuple[int, ...], str, int, int]:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        name = self.text()
        dimensions = self.number("<I")
        if dimensions > _MOST_DIMENSIONS:
            raise self.refuse(f"tensor {name[:80]!r} has {dimensions} dimensions")
        shape = tuple(self.number("<Q") for _ in range(dimensions))
        number = self.number("<I")
        offset = self.number("<Q")
        try:
            kind = GGMLQuantizationType(number)
            block, block_bytes = GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            if number in _REMOVED:
                removed, other = _REMOVED[number]
                raise self.refuse(
                    f"tensor {name[:80]!r} has type {removed} ({number}), which llama.cpp removed",
                    hint=f"quantize the model again, to {other}, or take such a file: llama.cpp"
                    " arranges its weights for the CPU when it loads them",
                ) from None
            raise self.refuse(
                f"tensor {name[:80]!r} has the unknown type {number}",
                hint="the file may be newer than labctl's gguf package",
            ) from None
        elements = 1
        for extent in shape:
            elements *= extent
        if not elements:
            raise self.refuse(f"tensor {name[:80]!r} is empty")
        if shape and shape[0] % block:
            raise self.refuse(
                f"tensor {name[:80]!r}: rows of {shape[0]} are no whole blocks of {kind.name}"
            )
        return name, shape, kind.name, elements // block * block_bytes, offset
