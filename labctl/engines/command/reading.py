"""Read a program's output into a record by the recipe's rules."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from statistics import median

from pydantic import JsonValue

from labctl.config.printed import read_json, text_at
from labctl.engines.base import RawOutput, lines_of
from labctl.engines.command.matching import find_all
from labctl.engines.command.numbers import FIELDS, UNITS, in_base_unit
from labctl.engines.command.schema import Reader, ReadValue, TokenStream
from labctl.engines.timeline import (
    MOST_PIECES,
    MOST_UNSEEN,
    STDERR,
    STDOUT,
    Chunk,
    TokenTimes,
    parse_timeline,
)
from labctl.errors import OutputNotUnderstood
from labctl.records.timing import Measure, TimingRecord, TokenClock

#: Content of one match, or one line: text by group or path.
Found = Mapping[str, str | None]


def read(
    raw: RawOutput,
    readers: Sequence[Reader],
    tokens: TokenStream | None,
    *,
    expected: int | None = None,
    form: str,
) -> TimingRecord:
    """Return the record of a program that succeeded; ``form`` names the reader.

    ``expected``: number of tokens by the recipe's parameter, used if the output does not report it.

    Raises OutputNotUnderstood if a required value is missing or impossible.
    """
    values = list(_values(raw, readers))
    fields: dict[str, object] = {}
    for target, numbers in values:
        if target.metric in FIELDS:
            name, dimension = FIELDS[target.metric]
            number = numbers[0]
            fields[name] = float(number) if dimension == "tokens/s" else round(number)
    measures = [_measure(t, numbers) for t, numbers in values if t.metric not in FIELDS]
    if "generated_tokens" in fields:
        fields["counted_by"] = "program"
    elif expected is not None:
        fields |= {"generated_tokens": expected, "counted_by": "recipe"}
    seen: dict[str, object] = {}
    if tokens is not None:
        found = _token_fields(raw, tokens, fields.get("generated_tokens"))
        seen = {name: value for name, value in found.items() if value is not None}
    fields["token_clock"] = _clock(fields, seen)
    fields |= seen  # use the program's own times if the board's clock saw none
    return TimingRecord.model_validate({"perf_format": form, "measures": tuple(measures), **fields})


def _clock(reported: Mapping[str, object], seen: Mapping[str, object]) -> TokenClock | None:
    """Return the clock of the token times: the program's, the agent's, or both."""
    is_reported = any(
        name in reported and name not in seen for name in ("ttft_ns", "tokens_per_second")
    )
    if "ttft_ns" in seen or seen.get("token_ns"):
        return "both" if is_reported else "agent"
    return "program" if is_reported else None


def stream_of(raw: RawOutput, name: str) -> bytes:
    """Return the program's output on a stream."""
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
            f"{_what(reader)} is missing in the program's output on {reader.stream}",
            hint="correct the recipe's engine.output, or mark the reader optional",
        )
    if reader.occurs == "once" and len(found) > 1:
        raise OutputNotUnderstood(
            f"{_what(reader)} is {len(found)} times in the program's output on {reader.stream}",
            hint="choose one: occurs: first, last or every",
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
    """Yield the objects with at least one of the paths; skip other lines."""
    for line in lines_of(text, most=MOST_PIECES):
        if not line.lstrip().startswith(b"{"):
            continue
        try:
            # Text of a model may be cut inside a character.
            document: JsonValue = read_json(line.decode(errors="replace"))
        except ValueError as error:
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


def _token_fields(raw: RawOutput, tokens: TokenStream, generated: object) -> dict[str, object]:
    """Return times of tokens by the board's clock, if pieces of output are tokens.

    ``generated``: number of tokens. Without it, the meaning of a piece is unknown and no token
    times are reported. The same holds if there are more pieces than tokens.
    """
    timeline = parse_timeline(raw.timeline)
    text = stream_of(raw, tokens.stream)
    chunks = timeline.of(STDOUT if tokens.stream == "stdout" else STDERR)
    if (chunks[-1].end if chunks else 0) != len(text):
        raise OutputNotUnderstood(f"the timeline does not cover {tokens.stream}")
    if text.count(b"\n") > MOST_PIECES:
        raise OutputNotUnderstood(f"more than {MOST_PIECES:,} lines on {tokens.stream}")
    # Lines in one piece arrive together.
    ends = (
        [chunk.mono_ns for chunk in chunks]
        if tokens.each == "chunk"
        else list(_line_times(text, chunks))
    )
    arrivals = [(time, len(list(lines))) for time, lines in groupby(ends)]
    if not arrivals:
        raise OutputNotUnderstood(f"no token was printed on {tokens.stream}")
    seen: dict[str, object] = {
        "arrivals": len(arrivals),
        "token_lines": len(ends) if tokens.each == "line" else None,
    }
    if not isinstance(generated, int) or len(ends) > generated:
        return seen
    if tokens.each == "line" and len(ends) == generated:
        found = _of_lines(arrivals, generated)
    else:
        found = TokenTimes.of([time for time, _ in arrivals], generated)
    seen["unseen_first"] = found.first
    if found.first == 0:
        seen["ttft_ns"] = arrivals[0][0] - timeline.start_mono_ns
    if len(arrivals) < generated * (1 - MOST_UNSEEN):
        # The arrivals are times of buffer writes, not of tokens.
        return seen
    return {
        **seen,
        "unseen_last": found.last,
        "token_ns": found.gaps_ns,
        "merged_chunks": found.merged,
        "p50_ns": found.p50_ns,
        "p90_ns": found.p90_ns,
        "p99_ns": found.p99_ns,
        "mean_ns": found.mean_ns,
        "tokens_per_second": found.per_second,
    }


def _of_lines(arrivals: Sequence[tuple[int, int]], generated: int) -> TokenTimes:
    """Return the times of tokens that each end a line: the number in each piece is known.

    Several lines at the end may have waited in a buffer until the program ended, so they do not
    count as an arrival.
    """
    last = arrivals[-1][1] if arrivals[-1][1] > 1 and len(arrivals) > 1 else 0
    timed = arrivals[:-1] if last else arrivals
    return TokenTimes.of(
        [time for time, _ in timed],
        generated,
        first=timed[0][1] - 1,
        last=last,
        held={i: lines for i, (_, lines) in enumerate(timed[1:]) if lines > 1},
    )


def _line_times(text: bytes, chunks: Sequence[Chunk]) -> Iterator[int]:
    """Return the arrival time of each line's end; ignore bytes after the last line end."""
    for chunk in chunks:
        for _ in range(text.count(b"\n", chunk.offset, chunk.end)):
            yield chunk.mono_ns
