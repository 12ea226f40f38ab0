"""From what a program printed, as the recipe says to read it, to a record."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from statistics import median

from pydantic import JsonValue

from labctl.config.command import Reader, ReadValue, TokenStream
from labctl.config.printed import text_at
from labctl.engines.base import RawOutput
from labctl.engines.command.matching import find_all
from labctl.engines.command.numbers import FIELDS, UNITS, in_base_unit
from labctl.engines.timeline import STDERR, STDOUT, Chunk, parse_timeline
from labctl.engines.tokens import TokenTimes
from labctl.errors import OutputNotUnderstood
from labctl.records import Measure, TimingRecord

#: What one match, or one line, says: text by group or path.
Found = Mapping[str, str | None]


def read(
    raw: RawOutput, readers: Sequence[Reader], tokens: TokenStream | None, *, form: str
) -> TimingRecord:
    """The record of a program that ended well; ``form`` says who understood it.

    Raises OutputNotUnderstood when something that must be there is not, or cannot be true.
    """
    values = list(_values(raw, readers))
    fields: dict[str, object] = {}
    for target, numbers in values:
        if target.metric in FIELDS:
            name, dimension = FIELDS[target.metric]
            number = numbers[0]
            fields[name] = float(number) if dimension == "tokens/s" else round(number)
    measures = [_measure(t, numbers) for t, numbers in values if t.metric not in FIELDS]
    if tokens is not None:
        fields = {**_token_fields(raw, tokens, fields.get("generated_tokens")), **fields}
    return TimingRecord.model_validate({"perf_format": form, "measures": tuple(measures), **fields})


def stream_of(raw: RawOutput, name: str) -> bytes:
    """What the program printed on a stream."""
    return raw.stdout if name == "stdout" else raw.stderr


def _values(raw: RawOutput, readers: Sequence[Reader]) -> Iterator[tuple[ReadValue, list[Decimal]]]:
    patterned = [reader for reader in readers if reader.pattern is not None]
    searches = [(reader.pattern or "", stream_of(raw, reader.stream)) for reader in patterned]
    matches: dict[int, Sequence[Found]] = {
        id(reader): found for reader, found in zip(patterned, find_all(searches), strict=True)
    }
    for reader in readers:
        found = matches.get(id(reader))
        if found is None:
            found = list(_json_lines(stream_of(raw, reader.stream), reader.values))
        chosen = _chosen(reader, found)
        for name, target in reader.values.items():
            texts = [text for one in chosen if (text := one.get(name)) is not None]
            if texts:
                yield target, [in_base_unit(text, target.unit) for text in texts]
            elif not reader.optional:
                raise OutputNotUnderstood(f"{_what(reader)} matches without a value for {name}")


def _chosen(reader: Reader, found: Sequence[Found]) -> Sequence[Found]:
    if not found and not reader.optional:
        raise OutputNotUnderstood(
            f"{_what(reader)} is not in what the program printed on {reader.stream}",
            hint="correct the recipe's engine.output, or mark the reader optional",
        )
    if reader.occurs == "once" and len(found) > 1:
        raise OutputNotUnderstood(
            f"{_what(reader)} is {len(found)} times in what the program printed on {reader.stream}",
            hint="say which one counts: occurs: first, last or every",
        )
    if reader.occurs == "every":
        return found
    return found[-1:] if reader.occurs == "last" else found[:1]


def _what(reader: Reader) -> str:
    return (
        repr(reader.pattern)
        if reader.pattern
        else f"a line of JSON with {', '.join(reader.values)}"
    )


def _json_lines(text: bytes, paths: Iterable[str]) -> Iterator[Found]:
    """The objects that have one of the paths at least; other lines are not meant."""
    for line in text.splitlines():
        if not line.lstrip().startswith(b"{"):
            continue
        try:
            # Text of a model may be cut in the middle of a character.
            document: JsonValue = json.loads(line.decode(errors="replace"))
        except (ValueError, RecursionError) as error:
            raise OutputNotUnderstood(
                "a line that begins with { is not JSON",
                details=line[:2000].decode(errors="replace"),
            ) from error
        found = {path: text_at(document, path) for path in paths}
        if any(value is not None for value in found.values()):
            yield found


def _measure(target: ReadValue, numbers: Sequence[Decimal]) -> Measure:
    values = tuple(float(number) for number in numbers)
    return Measure(
        name=target.metric, unit=UNITS[target.unit][0], values=values, value=median(values)
    )


def _token_fields(raw: RawOutput, tokens: TokenStream, said: object) -> dict[str, object]:
    """Times of tokens by the board's clock; ``said``: how many the program says it made."""
    timeline = parse_timeline(raw.timeline)
    text = stream_of(raw, tokens.stream)
    chunks = timeline.of(STDOUT if tokens.stream == "stdout" else STDERR)
    if (chunks[-1].end if chunks else 0) != len(text):
        raise OutputNotUnderstood(f"the timeline does not cover what is on {tokens.stream}")
    if tokens.each == "chunk":
        times = [chunk.mono_ns for chunk in chunks]
        count = len(times)
        held = None
    else:
        ends = list(_line_times(text, chunks))
        count = len(ends)
        # Lines that came in one piece have one arrival.
        arrivals = [(time, len(list(lines))) for time, lines in groupby(ends)]
        times, held = [time for time, _ in arrivals], [lines for _, lines in arrivals]
    if not times:
        raise OutputNotUnderstood(f"no token was printed on {tokens.stream}")
    generated = said if isinstance(said, int) else count
    if generated < count:
        raise OutputNotUnderstood(
            f"{tokens.stream} shows {count} tokens, the program says that it made {generated}",
            hint="something else is printed there too",
        )
    found = TokenTimes.of(times, generated, held if generated == count else None)
    return {
        "generated_tokens": generated,
        "arrivals": len(times),
        "ttft_ns": times[0] - timeline.start_mono_ns,
        "token_ns": found.gaps_ns,
        "merged_chunks": found.merged,
        "p50_ns": found.p50_ns,
        "p90_ns": found.p90_ns,
        "p99_ns": found.p99_ns,
        "mean_ns": found.mean_ns,
        "tokens_per_second": found.per_second,
    }


def _line_times(text: bytes, chunks: Sequence[Chunk]) -> Iterator[int]:
    """When the end of each line arrived; what follows the last one is no line."""
    for chunk in chunks:
        for _ in range(text.count(b"\n", chunk.offset, chunk.end)):
            yield chunk.mono_ns
