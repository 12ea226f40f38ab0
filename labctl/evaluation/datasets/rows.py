"""Questions in a file: JSON Lines, or Parquet. Each problem names the file and the line or row."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NoReturn

from labctl.config.printed import NUMBER
from labctl.distribution import install_extra
from labctl.errors import ConfigError
from labctl.evaluation.datasets.source import DatasetSource
from labctl.evaluation.question import Question
from labctl.file_hashes import sha256_file
from labctl.files import host_reads
from labctl.suggestions import did_you_mean

#: Limits for the input, since a data set is not trusted.
MOST_LINE_BYTES = 1_000_000
MOST_QUESTIONS = 1_000_000
MOST_CHOICES = 26
#: Number of rows of a Parquet file in memory at once.
_PARQUET_ROWS = 256
_SPACES = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
#: ``#### 1,080`` at the end of a derivation (openai/grade-school-math, ``dataset.py``).
_GSM8K_ANSWER = re.compile(r"\n?####[ \t]*\$?([-+]?[0-9][0-9,]*(?:\.[0-9]+)?)\s*", re.ASCII)
#: ``<<48/2=24>>``: a note for a calculator, not part of the text.
_CALCULATOR = re.compile(r"<<[^<>\n]*>>")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class _WrongRow(Exception):
    """A line that is not a question; the text is for people."""


@dataclass(frozen=True)
class Rows:
    """All questions of a file, in its order; ``lines`` holds their line numbers."""

    questions: tuple[Question, ...]
    lines: tuple[int, ...]
    sha256: str


def read_rows(path: Path, source: DatasetSource, shown: str | None = None) -> Rows:
    """Read every question of a file. ``shown`` is the file's name in error messages.

    Raises ConfigError with file and line.
    """
    shown = shown or str(path)
    read = _parquet_rows if path.suffix == ".parquet" else _json_rows
    questions: list[Question] = []
    lines: list[int] = []
    with host_reads(shown):
        digest = sha256_file(path)
    for number, row in read(path, shown):
        try:
            questions.append(_question(row, source, len(questions) + 1))
        except _WrongRow as wrong:
            _refuse(shown, number, str(wrong))
        lines.append(number)
        if len(questions) > MOST_QUESTIONS:
            _refuse(shown, number, f"more than {MOST_QUESTIONS} questions")
    if not questions:
        raise ConfigError(f"{shown}: no question in this file").at(shown)
    if sha256_file(path) != digest:
        raise ConfigError(f"{shown} changed while it was read", hint="wait until it is written")
    return Rows(tuple(questions), tuple(lines), digest)


def _json_rows(path: Path, shown: str) -> Iterator[tuple[int, dict[str, object]]]:
    for number, raw in _raw_lines(path, shown):
        if text := (raw.removeprefix(_BOM) if number == 1 else raw).strip(_SPACES):
            try:
                row = _row(text)
            except _WrongRow as wrong:
                _refuse(shown, number, str(wrong))
            yield number, row


def _parquet_rows(path: Path, shown: str) -> Iterator[tuple[int, dict[str, object]]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(
            f"{shown} needs pyarrow, which is not installed",
            hint=f"{install_extra('parquet')}; or give the data set as JSON Lines",
        ) from error
    number = 0
    with host_reads(shown):
        try:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
        except (pyarrow.ArrowException, ValueError, OverflowError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError(f"{shown}: not a Parquet file: {reason}").at(shown) from error


def _raw_lines(path: Path, shown: str) -> Iterator[tuple[int, bytes]]:
    with host_reads(shown), path.open("rb") as file:
        number = 0
        while raw := file.readline(MOST_LINE_BYTES + 1):
            number += 1
            if len(raw) > MOST_LINE_BYTES:
                _refuse(
                    shown,
                    number,
                    f"longer than {MOST_LINE_BYTES:,} bytes: is this JSON Lines, with one object"
                    " on each line?",
                )
            yield number, raw


def _refuse(shown: str, number: int, what: str) -> NoReturn:
    raise ConfigError(f"{shown}:{number}: {what}").at(shown, number)


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _decimal(word: str) -> Decimal:
    if NUMBER.fullmatch(word) is None:
        raise ValueError(f"the number {word[:40]} is too long")
    return Decimal(word)


def _row(text: bytes) -> dict[str, object]:
    try:
        row = json.loads(text.decode(), parse_float=_decimal, parse_constant=_constant)
    except UnicodeDecodeError as error:
        raise _WrongRow(f"not UTF-8 text (byte 0x{text[error.start]:02x})") from error
    except json.JSONDecodeError as error:
        raise _WrongRow(
            f"not JSON: {error.msg} at column {error.colno}; each line is one JSON object"
        ) from error
    except (ValueError, RecursionError) as error:
        raise _WrongRow(f"not JSON that can be read: {error}") from error
    if not isinstance(row, dict):
        raise _WrongRow("not a JSON object: each line must be one, with the fields of a question")
    return row


def _question(row: dict[str, object], source: DatasetSource, position: int) -> Question:
    text = _text(row, source.question)
    choices: tuple[str, ...] = ()
    solution = None if source.solution is None else _text(row, source.solution)
    if source.format == "choice":
        choices = _texts(row, source.choices)
        labels = None if source.labels is None else _texts(row, source.labels)
        answer = _letter(_field(row, source.answer), choices, labels)
    elif source.format == "gsm8k":
        solution, answer = split_gsm8k(_text(row, source.answer))
    else:
        answer = _plain(_field(row, source.answer), source.answer)
    content = json.dumps([text, *choices, answer], ensure_ascii=True)
    mark = hashlib.sha256(content.encode()).hexdigest()[:8]
    return Question(f"{source.label}-{position:04}-{mark}", text, answer, choices, solution)


def split_gsm8k(text: str) -> tuple[str, str]:
    """Return derivation and answer of GSM8K's format; the answer without thousands separators."""
    found = list(_GSM8K_ANSWER.finditer(text))
    if not found or text[found[-1].end() :].strip():
        raise _WrongRow(
            "the answer does not end with `#### ` and a number; to take it unchanged use format:"
            " plain"
        )
    last = found[-1]
    derivation = _CALCULATOR.sub("", text[: last.start()]).strip()
    return derivation, last[1].replace(",", "").removeprefix("+")


def _field(row: dict[str, object], name: str) -> object:
    value: object = row
    for step in (name,) if name in row else name.split("."):
        if not isinstance(value, dict) or step not in value:
            near = did_you_mean(name, row)
            has = "" if near else f"; it has {', '.join(map(repr, list(row)[:8])) or 'none'}"
            raise _WrongRow(f"no field {name!r}{near}{has}")
        value = value[step]
    return value


def _text(row: dict[str, object], name: str) -> str:
    return _checked_text(_field(row, name), f"the field {name!r}")


def _checked_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise _WrongRow(f"{what} must be text, not {_kind(value)}")
    if not value.strip():
        raise _WrongRow(f"{what} is empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _WrongRow(f"{what} holds half of a character (a lone surrogate)") from None
    return value


def _plain(value: object, name: str) -> str:
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return f"{value:f}" if isinstance(value, Decimal) else str(value)
    if isinstance(value, str):
        return _checked_text(value, f"the field {name!r}").strip()
    raise _WrongRow(f"the field {name!r} must be text or a number, not {_kind(value)}")


def _texts(row: dict[str, object], name: str) -> tuple[str, ...]:
    value = _field(row, name)
    if not isinstance(value, list) or not 2 <= len(value) <= MOST_CHOICES:
        raise _WrongRow(f"the field {name!r} must be a list of 2 to {MOST_CHOICES} texts")
    return tuple(_plain(one, f"{name}[{index}]") for index, one in enumerate(value))


def _letter(answer: object, choices: tuple[str, ...], labels: tuple[str, ...] | None) -> str:
    letters = _LETTERS[: len(choices)]
    if labels is not None:
        if len(labels) != len(choices) or len(set(labels)) != len(labels):
            raise _WrongRow(f"{len(choices)} choices need {len(choices)} different labels")
        if (text := _plain(answer, "answer")) in labels:
            return letters[labels.index(text)]
    elif isinstance(answer, int) and not isinstance(answer, bool):
        if 0 <= answer < len(choices):
            return letters[answer]
    elif isinstance(answer, str):
        letter = answer.strip().strip("().").upper()
        if len(letter) == 1 and letter in letters:
            return letter
    among = f"one of the labels {', '.join(labels)}" if labels else f"0 to {len(choices) - 1}"
    or_letter = "" if labels else f", or a letter A to {letters[-1]}"
    raise _WrongRow(f"the answer must be {among}{or_letter}, not {answer!r:.60}")


def _kind(value: object) -> str:
    names = {bool: "true or false", type(None): "null", dict: "an object", list: "a list"}
    return names.get(type(value), "a number")
