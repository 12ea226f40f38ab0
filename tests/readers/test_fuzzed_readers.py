"""Every reader of what strangers made: damage ends in an answer or a typed error, and costs little.

Each seed is a small true file. It is damaged as an attacker would: numbers that lie, depth, length,
halves of characters, other bytes, a cut. The limits are of memory and processor time.
"""

import gzip
import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
import records_made
from bounded import bounded
from hypothesis import given, settings
from hypothesis import strategies as st

from labctl.board.job import JobProgress
from labctl.build.functions import read_functions
from labctl.build.source_archive import unpack
from labctl.bundle.form import BundleManifest
from labctl.bundle.make import write_zip
from labctl.bundle.reader import open_bundle
from labctl.config.printed import read_json, text_at
from labctl.config.yaml.document import read_text
from labctl.config.yaml.loader import NotYaml, read_yaml
from labctl.engines.base import RawOutput
from labctl.engines.llama_cpp.bench import LlamaBench
from labctl.engines.llama_cpp.bench_reading import read_bench
from labctl.engines.llama_cpp.perf_lines import parse_perf
from labctl.engines.timeline import parse_timeline
from labctl.errors import Blame, LabctlError
from labctl.evaluation.datasets.rows import read_rows
from labctl.evaluation.datasets.source import DatasetSource
from labctl.evaluation.endpoints import openai_format
from labctl.evaluation.endpoints.answers import read as read_answer
from labctl.evaluation.endpoints.events import EventReader
from labctl.farm.run_archives import unpack as unpack_run
from labctl.gguf.inspect import inspect
from labctl.gguf.tiny import write_tiny_gguf
from labctl.hdc.wire import Command, PacketDecoder, encode_packet
from labctl.records.trial import TrialRecord
from labctl.results.telemetry import read_telemetry
from labctl.runs.record.disk import read_file
from labctl.transport.base import last_object

RECORDED = Path(__file__).parents[1] / "fixtures" / "llama_cpp"
BENCH = (RECORDED / "bench" / "new.jsonl").read_bytes()
PERF = (RECORDED / "perf-common.txt").read_bytes()
Read = Callable[[Path], object]


@dataclass(frozen=True)
class Reader:
    """A reader with its true files; ``blame``: of what is damaged. ``also``: its other error."""

    seeds: Callable[[Path], list[bytes]]
    read: Read
    blame: tuple[Blame, ...]
    also: tuple[type[Exception], ...] = ()


def _written(make: Callable[[Path], object]) -> Callable[[Path], list[bytes]]:
    def seeds(folder: Path) -> list[bytes]:
        make(folder / "seed")
        return [(folder / "seed").read_bytes()]

    return seeds


def _tar(*names: str) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz", format=tarfile.GNU_FORMAT) as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 5
            tar.addfile(member, io.BytesIO(b"bytes"))
    return raw.getvalue()


def _plain_tar(*names: str) -> bytes:
    return gzip.decompress(_tar(*names))


def _zip(*names: str) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.writestr(name, b"bytes " * 20)
    return raw.getvalue()


def _bundle(path: Path) -> None:
    said: Any = {"labctl_bundle": 1, "run": "r", "recipe": "q", "target": "t"}
    said |= {"labctl_version": "0", "with_identity": False}
    files = [("run/run.json", b'{"a": 1}'), ("run/trials/001-a/stdout", b"once upon")]
    write_zip(path, files, lambda entries: BundleManifest(**said, entries=entries))


def _verify(path: Path) -> None:
    with open_bundle(path) as bundle:
        bundle.verify()


def _unpacked(read: Callable[[Path, Path], object]) -> Read:
    def check(path: Path) -> None:
        folder = path.with_name("unpacked")
        try:
            read(path, folder)
        finally:
            outside = {one.name for one in path.parent.iterdir()} - {path.name, folder.name, "seed"}
            assert not outside
            for one in sorted(folder.rglob("*"), reverse=True) if folder.exists() else ():
                one.rmdir() if one.is_dir() and not one.is_symlink() else one.unlink()
            if folder.exists():
                folder.rmdir()

    return check


EVENTS = (
    b'data: {"choices":[{"delta":{"content":"a"},"logprobs":{"content":[]}}]}\n\ndata: [DONE]\n\n'
)


def _events(path: Path) -> None:
    found: list[bytes] = []
    reader = EventReader(lambda _stamp, data: found.append(data))
    reader.feed(path.read_bytes(), 1)
    reader.close()
    for data in found:
        if data != b"[DONE]":
            read_answer(openai_format.Event, data)


PARAMETERS = {"threads": 2, "prompt_tokens": 16, "tokens": 8, "repetitions": 3}
BENCHES = LlamaBench()


def _bench(path: Path) -> None:
    asked = BENCHES.parameters(PARAMETERS)
    BENCHES.parse(RawOutput(path.read_bytes(), b"", b""), asked)


def _questions(path: Path) -> None:
    read_rows(path, DatasetSource.model_validate({"file": str(path)}))


def _progress(path: Path) -> None:
    found = last_object(path.read_text(errors="replace"))
    if found is not None:
        JobProgress.model_validate(found, extra="ignore")


PROGRESS = json.dumps(
    {"state": "running", "boot_id": "b", "mono_ns": 5, "stdout_bytes": 1, "stderr_bytes": 2,
     "status": None,
     "sample": {"mono_ns": 3, "threads": {"1": [2, 3]}}}
).encode()  # fmt: skip
TELEMETRY = b'{"mono_ns":1,"rss_bytes":5,"threads":{"7":[1,2]},"freq_khz":{"0":1}}\n' * 3
MAP = b"         1010000          1010000       40     4                 main\n" * 3
PACKETS = encode_packet(3, Command.SHELL_DATA, b"words") * 3
ROWS = b'{"question": "How many?", "answer": 1.5}\n{"question": "Who?", "answer": "me"}\n'
TIMELINE = b"labctl-timeline 1 5\n6 1 0 4\n9 2 0 1\n"
YAML = b"a: [1, {b: c}]\nd: &x {e: 1.5}\nf: *x\n"
JOB, CONFIG, INFRA = (Blame.JOB,), (Blame.CONFIG,), (Blame.INFRA,)

LONG = f"a/{'n' * 80}/{'n' * 80}/b"

READERS = {
    "gguf": Reader(_written(write_tiny_gguf), inspect, CONFIG),
    "bundle": Reader(_written(_bundle), _verify, CONFIG),
    "tar": Reader(
        lambda _: [_tar("a/b", LONG), _plain_tar("a/b", LONG)],
        _unpacked(unpack), (*INFRA, *CONFIG),
    ),
    "zip": Reader(lambda _: [_zip("a/b", "a/c")], _unpacked(unpack), (*INFRA, *CONFIG)),
    "stored run": Reader(lambda _: [_tar("run.json", "trials/a")], _unpacked(unpack_run), INFRA),
    "record": Reader(
        lambda _: [records_made.trial().model_dump_json().encode()],
        lambda path: read_file(path, TrialRecord), CONFIG,
    ),
    "telemetry": Reader(lambda _: [TELEMETRY], read_telemetry, CONFIG),
    "timeline": Reader(lambda _: [TIMELINE], lambda path: parse_timeline(path.read_bytes()), JOB),
    "progress of a job": Reader(lambda _: [PROGRESS], _progress, INFRA, (ValueError,)),
    "llama-bench": Reader(lambda _: [BENCH], _bench, JOB),
    "bench import": Reader(lambda _: [BENCH], lambda p: read_bench(p.read_bytes()), CONFIG),
    "performance lines": Reader(
        lambda _: [PERF], lambda path: parse_perf(path.read_bytes(), limit=16), JOB
    ),
    "events of a server": Reader(lambda _: [EVENTS], _events, JOB),
    "questions": Reader(
        lambda _: [ROWS], _questions, CONFIG
    ),
    "yaml": Reader(lambda _: [YAML], lambda p: read_yaml(read_text(p)), CONFIG, (NotYaml,)),
    "map of a linker": Reader(lambda _: [MAP], lambda path: read_functions(path).known, JOB),
    "packets": Reader(
        lambda _: [PACKETS], lambda path: PacketDecoder().feed(path.read_bytes()), INFRA
    ),
    "meter": Reader(
        lambda _: [b'{"a": [{"power": 5.5}]}'],
        lambda path: text_at(read_json(path.read_bytes()), "a.0.power"), INFRA, (ValueError,),
    ),
}  # fmt: skip

ODD = (
    *(
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"9" * 5000,
        b"1e400",
        b"1e99",
        b"-1.5E+30",
        b"123456789012345678e5",
        b"NaN",
        b"-Infinity",
        b"1e999999999",
    ),
    *(b'"\\ud800"', b"\xff\xfe", b"\0" * 600, b"\n" * 100_000, b"0," * 100_000, b"\x1b[31m"),
    *(struct.pack("<Q", n) for n in ((1 << 64) - 1, 1 << 63, 1 << 40)),
    *(struct.pack("<I", n) for n in ((1 << 32) - 1, 1 << 31)),
    *(
        b"99999999999",
        b"-1",
        b"\x80\0\0\0\0\xff\0\0\0\0\0\0",
        b"*x\n",
        b"../../x",
        b"true",
        b"null",
    ),
)
CHANGE = st.tuples(
    st.floats(0, 1),
    st.sampled_from(["replace", "insert", "cut", "repeat", "flip"]),
    st.integers(0, len(ODD) - 1),
)


def damaged(seed: bytes, changes: list[tuple[float, str, int]]) -> bytes:
    content = seed
    for share, kind, which in changes:
        odd = ODD[which]
        at = int(share * len(content))
        if kind == "cut":
            content = content[:at]
        elif kind == "repeat":
            content = content[:at] * 2 + content[at:]
        elif kind == "flip":
            content = (
                content[:at] + bytes(255 - one for one in content[at : at + 1]) + content[at + 1 :]
            )
        else:
            rest = at if kind == "insert" else at + len(odd)
            content = content[:at] + odd + content[rest:]
    return content


def _try(reader: Reader, folder: Path, content: bytes) -> None:
    path = folder / "file"
    path.write_bytes(content)
    with bounded(megabytes=96, cpu_seconds=5):
        try:
            reader.read(path)
        except LabctlError as error:
            blame = error.blame
        except reader.also:
            return
        else:
            return
    assert blame in reader.blame


@pytest.mark.parametrize("name", READERS)
def test_damage_ends_in_an_answer_or_a_typed_error(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    seeds = reader.seeds(tmp_path)
    for seed in seeds:
        (tmp_path / "file").write_bytes(seed)
        reader.read(tmp_path / "file")  # a true file raises nothing

    @settings(max_examples=25, database=None)
    @given(seed=st.sampled_from(seeds), changes=st.lists(CHANGE, min_size=1, max_size=3))
    def fuzz(seed: bytes, changes: list[tuple[float, str, int]]) -> None:
        _try(reader, tmp_path, damaged(seed, changes))

    fuzz()


@pytest.mark.soak
@pytest.mark.parametrize("name", READERS)
def test_much_damage(name: str, tmp_path: Path) -> None:
    reader, random = READERS[name], Random(name)
    seeds = reader.seeds(tmp_path)
    kinds = ("replace", "insert", "cut", "repeat", "flip", "flip", "flip")
    for _ in range(20_000):
        count = random.randint(1, 5)
        changes = [
            (random.random(), random.choice(kinds), random.randrange(len(ODD)))
            for _ in range(count)
        ]
        _try(reader, tmp_path, damaged(random.choice(seeds), changes))


LARGE = {
    "bench import": (b"[" + b"{}," * 1_000_000 + b"{}]", CONFIG),
    "llama-bench": (b'{"samples_ns":[' + b'"a",' * 2_000_000 + b"1]}\n", JOB),
    "events of a server": (b'data: {"choices":[' + b"0," * 500_000 + b"0]}\n\n", JOB),
    "record": (b'{"schema_version":1,"checks":[' + b"0," * 2_000_000 + b"0]}", CONFIG),
    "timeline": (b"labctl-timeline 1 5\n" + b"6 1 0 4\n" * 2_000_000, JOB),
    "questions": (b'{"question": "q", "answer": 1e999999999}\n', CONFIG),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_file_costs_no_more_than_it_has(name: str, tmp_path: Path) -> None:
    content, blame = LARGE[name]
    path = tmp_path / "large"
    path.write_bytes(content)
    with bounded(megabytes=400, cpu_seconds=10), pytest.raises(LabctlError) as caught:
        READERS[name].read(path)
    assert caught.value.blame in blame
    assert len(caught.value.message) < 1000


def test_lines_of_telemetry_are_counted_not_kept(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"x" * 1_000_000 + b"\n" + TELEMETRY)
    assert len(read_telemetry(tmp_path / "t").samples) == 3
    (tmp_path / "t").write_bytes(TELEMETRY + b"\n" * 100_000_000)
    with bounded(megabytes=64, cpu_seconds=10):
        found = read_telemetry(tmp_path / "t")
    assert len(found.samples) == 3
    assert found.unreadable_lines > 10_000


def test_a_model_of_four_billion_layers(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    raw = path.read_bytes()
    at = raw.index(b"llama.block_count") + len(b"llama.block_count") + 4
    nextn = b"llama.nextn_predict_layers"
    more = struct.pack("<Q", len(nextn)) + nextn + struct.pack("<II", 4, (1 << 32) - 1)
    values = struct.unpack_from("<Q", raw, 16)[0]
    made = raw[:16] + struct.pack("<Q", values + 1) + more + raw[24:at]
    path.write_bytes(made + struct.pack("<I", (1 << 32) - 1) + raw[at + 4 :] + bytes(64))
    with bounded(megabytes=64, cpu_seconds=5):
        inspect(path)


def _header(name: bytes, size: bytes, kind: bytes) -> bytes:
    raw = bytearray(512)
    raw[: len(name)], raw[124 : 124 + len(size)], raw[156:157] = name, size, kind
    raw[257:265] = b"ustar  \0"
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


@pytest.mark.parametrize("kind", [b"L", b"K", b"x", b"g"])
def test_a_name_of_gigabytes_in_an_archive(tmp_path: Path, kind: bytes) -> None:
    with gzip.open(tmp_path / "s.tar.gz", "wb", compresslevel=1) as file:
        file.write(_header(b"long", b"%011o" % (1 << 30), kind))
        for _ in range(256):
            file.write(bytes(1 << 20))
    with bounded(megabytes=64, cpu_seconds=10), pytest.raises(LabctlError) as caught:
        unpack(tmp_path / "s.tar.gz", tmp_path / "folder")
    assert caught.value.blame is Blame.INFRA


@pytest.mark.parametrize(
    ("size", "kind"),
    [
        pytest.param(b"\xff" + b"\xff" * 10 + b"\0", b"0", id="negative"),
        pytest.param(b"\x80" + b"\0" * 5 + b"\xff" * 6, b"0", id="terabytes"),
        pytest.param(b"%011o" % 0, b"3", id="device"),
        pytest.param(b"%011o" % 0, b"2", id="link"),
    ],
)
def test_members_that_no_source_has(tmp_path: Path, size: bytes, kind: bytes) -> None:
    head = bytearray(_header(b"../outside" if kind == b"0" else b"in", size, kind))
    head[157:170] = b"/etc/passwd\0\0"
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    (tmp_path / "s.tar").write_bytes(head + bytes(10240))
    with bounded(megabytes=64, cpu_seconds=5), pytest.raises(LabctlError) as caught:
        unpack(tmp_path / "s.tar", tmp_path / "folder")
    assert caught.value.blame is Blame.INFRA


@pytest.mark.parametrize(
    "odd",
    [
        b"[" * 100_000,
        b"9" * 5000,
        b"1e400",
        b"1e99",
        b"-1.5E+30",
        b"123456789012345678e5",
        b"NaN",
        b'"\\ud800"',
        b'"\xff"',
        b"9223372036854775808",
    ],
)
def test_json_that_no_program_needs(odd: bytes) -> None:
    for text in (odd, b'{"a": [' + odd + b"]}"):
        with pytest.raises(ValueError, match=r"."):
            read_json(text)
    assert read_json(b'{"id": "9223372036854775808", "a": 9223372036854775807}')
    assert read_json(b'["1e99", "a:1e99", 1e18, 9.2e18, 1e-99]')
