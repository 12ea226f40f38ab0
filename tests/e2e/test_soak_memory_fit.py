"""What is predicted of a model that fits in memory, of one that does not, and of one that nearly
does, against booted ARM64 Linuxes of five sizes.

Everything is emulated: a machine's CPU takes 2 ns for each instruction, and its kernel lets it read
20 MB/s. The rates that the predictions stand on are measured in such a machine.
"""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agent_builds
import pytest
from booted_arm64 import boot

from labctl.build.builder import build
from labctl.build.plan import BuildRequest
from labctl.config.lab import Board
from labctl.engines.base import Inputs, RawOutput
from labctl.package_data import RECIPES
from labctl.performance.prediction import Rate, Rates
from labctl.records.board import BoardFacts, Execution
from labctl.records.timing import TimingRecord
from labctl.records.trial import ModelIdentity, TrialPrediction
from labctl.results.telemetry import read_telemetry
from labctl.runs.inputs.prepare import Prepared, prepare, read_recipe
from labctl.runs.planning.forecast import make_forecast
from labctl.runs.planning.trials import PlannedTrial
from labctl.stats.roofline import near_border
from labctl.transport.hdc import HdcTcpConfig

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(7200)]

READ_BYTES_PER_SECOND = 20_000_000
TOKENS = 6
#: Of RAM: two that are too little, two near the border, one that is enough.
SIZES_MB = (176, 196, 216, 240, 320)
PROBE_MB = 512
MAY_DIFFER = 0.15

BEGIN = f"""\
R=/data/results
mv /program /data/program
mount -t cgroup2 none /sys/fs/cgroup
cd /sys/fs/cgroup
echo +io >cgroup.subtree_control
mkdir slow
disk=$(sed -n 's|^/dev/\\([a-z]*\\) /data .*|\\1|p' /proc/mounts)
echo "$(cat /sys/class/block/$disk/dev) rbps={READ_BYTES_PER_SECOND}" >slow/io.max
cat slow/io.max >$R/limit
echo $$ >slow/cgroup.procs
cd /data
echo 3 >/proc/sys/vm/drop_caches
/agent facts >$R/facts
"""
MEASURE = """\
/agent bench-storage --file /data/bench --threads 1 --bytes 67108864 --seconds 60 >$R/storage
/data/program -m /data/model -t 1 -p 8 -n 8 -r 2 --repack 0 -o jsonl >$R/rates 2>$R/rates.err
"""
RUN = """\
/agent run --dir /data/job --timeout 3000 --epoch 1 --sample-ms 1000 -- {command} >$R/run
/agent wait --dir /data/job --seconds 3000 >$R/wait
cp -r /data/job $R/
"""


@dataclass(frozen=True)
class Seen:
    """One size of memory: what was predicted and what was measured."""

    facts: BoardFacts
    need_bytes: int
    notes: list[str]
    predicted: TrialPrediction
    timing: TimingRecord
    read_bytes: int

    @property
    def near(self) -> bool:
        assert self.facts.memory_available_bytes
        return near_border(self.need_bytes, self.facts.memory_available_bytes)

    @property
    def token_ns(self) -> float:
        assert self.timing.mean_ns
        return self.timing.mean_ns


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, rk3568: None) -> Prepared:
    recipe = read_recipe(
        RECIPES / "q8_latency.yaml", (f"tokens={TOKENS}", "parameters.threads=1", "min_tokens=2")
    )
    board = Board(target="rk3568", transport=HdcTcpConfig(address="127.0.0.1:1"))
    return prepare(recipe, board, tmp_path_factory.mktemp("lab"), lambda *_: None)


def booted(folder: Path, memory_mb: int, program: Path, model: Path | None, script: str) -> Path:
    return boot(
        folder,
        {"agent": agent_builds.agent("aarch64"), "program": program},
        BEGIN + script,
        memory_mb=memory_mb,
        timeout=3000,
        files={} if model is None else {"model": model},
        exact=True,
    )


def facts_of(results: Path) -> BoardFacts:
    assert f"rbps={READ_BYTES_PER_SECOND} " in (results / "limit").read_text()
    told: dict[str, Any] = json.loads((results / "facts").read_text())
    return BoardFacts(
        execution=Execution.BOARD,  # as if: what is emulated is never predicted
        machine="aarch64",
        kernel=told["kernel"],
        boot_id="b",
        memory_total_bytes=told["memory_total_bytes"],
        memory_available_bytes=told["memory_available_bytes"],
    )


@pytest.fixture(scope="module")
def rates(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Rates:
    """What a probe measures: page faults on a mapping, and llama-bench with the same weights."""
    bench = build(
        BuildRequest(target="rk3568", product="llama.cpp", version="new", tools=("llama-bench",))
    ).tool("llama-bench")
    model = prepared.models["q8_0"]
    results = booted(tmp_path_factory.mktemp("rates"), PROBE_MB, bench, model.path, MEASURE)
    storage = json.loads((results / "storage").read_text())["results"]
    (mapping,) = [rate for rate in storage if rate["pattern"] == "mapping"]
    assert mapping["uncached"]
    weights = model.identity.bytes_per_token
    assert weights is not None
    tests = [json.loads(line) for line in (results / "rates").read_text().splitlines()]
    seconds = {
        bool(test["n_gen"]): min(test["samples_ns"]) / 1e9 / (test["n_gen"] or test["n_prompt"])
        for test in tests
    }
    print(
        f"EMULATED, measured: {mapping['bytes_per_second'] / 1e6:.2f} MB/s from storage;"
        f" {seconds[True] * 1e3:.1f} ms a token, {seconds[False] * 1e3:.1f} of a prompt"
    )
    key = ("Q8_0", 1)
    return Rates(
        storage=Rate(mapping["bytes_per_second"], "the probe"),
        decode={key: Rate(weights / seconds[True], "the probe")},
        prompt={key: Rate(weights / seconds[False], "the probe")},
    )


@pytest.fixture(scope="module")
def seen(
    prepared: Prepared, rates: Rates, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, Seen]:
    return {
        size: run(prepared, rates, size, tmp_path_factory.mktemp(str(size))) for size in SIZES_MB
    }


def run(prepared: Prepared, rates: Rates, size: int, folder: Path) -> Seen:
    """Predict for a machine of that size, as labctl does for a board; then run."""
    assert prepared.program is not None
    program, model = prepared.program.local, prepared.models["q8_0"]
    (folder / "before").mkdir()
    facts = facts_of(booted(folder / "before", size, program, None, ""))
    forecast = make_forecast(prepared, facts, rates)
    (variant,), notes = forecast.variants, list(forecast.notes)
    trial = PlannedTrial(1, variant, 1, TOKENS, warm_up_pass=True)
    predicted = forecast.of(trial)
    assert predicted is not None
    parameters = prepared.engine.parameters(trial.parameters)
    words = prepared.engine.command(
        prepared.tool, parameters, Inputs("/data/program", "/data/model", prepared.prompt)
    )
    results = booted(folder, size, program, model.path, RUN.format(command=shlex.join(words)))
    status = json.loads((results / "wait").read_text())["status"]
    assert (status["outcome"], status["exit_status"]) == ("exited", 0), results
    timing = prepared.engine.parse(RawOutput.read(results / "job"), parameters)
    samples = read_telemetry(results / "job" / "telemetry").samples
    work = forecast.workloads[variant.slug]
    found = Seen(
        facts,
        work.need.resident_bytes,
        notes,
        predicted,
        timing,
        samples[-1].read_bytes or 0,
    )
    told = [predicted.resident_token_ns, predicted.storage_token_ns, predicted.upper_token_ns]
    both = " or ".join(f"{ns / 1e6:.0f}" for ns in told if ns)
    print(
        f"EMULATED, {size} MB of RAM: {work.need.resident_bytes / 1e6:.1f} MB needed,"
        f" {(facts.memory_available_bytes or 0) / 1e6:.1f} MB available;"
        f" predicted {both or round(predicted.token_ns / 1e6)} ms a token, first after"
        f" {(predicted.ttft_ns or 0) / 1e9:.2f} s; measured {found.token_ns / 1e6:.0f} ms and"
        f" {(timing.ttft_ns or 0) / 1e9:.2f} s, {found.read_bytes / 1e6:.0f} MB read"
    )
    return found


def away(seen: dict[int, Seen]) -> Iterator[Seen]:
    yield from (one for one in seen.values() if not one.near)


def test_sizes_lie_on_both_sides_of_the_border_and_near_it(seen: dict[int, Seen]) -> None:
    assert [one.near for one in seen.values()] == [False, False, True, True, False]
    bounds = [one.predicted.bound for one in away(seen)]
    assert bounds == ["storage", "storage", "compute"]


def test_away_from_the_border_a_token_takes_what_was_predicted(seen: dict[int, Seen]) -> None:
    ratios = [one.token_ns / one.predicted.token_ns for one in away(seen)]
    assert ratios == [pytest.approx(1, abs=MAY_DIFFER)] * 3


def test_and_so_does_the_first_one(seen: dict[int, Seen]) -> None:
    """Loading reads the file whole; where it does not fit the prompt reads the weights again.

    What the program does before it loads is not predicted: where little else is done, the
    prediction is the least that is possible.
    """
    *paged, resident = [
        (one.timing.ttft_ns or 0) / (one.predicted.ttft_ns or 1) for one in away(seen)
    ]
    assert paged == [pytest.approx(1, abs=MAY_DIFFER)] * 2
    assert resident >= 1


def test_what_does_not_fit_is_read_once_for_loading_prompt_and_each_token(
    seen: dict[int, Seen], prepared: Prepared
) -> None:
    model: ModelIdentity = prepared.models["q8_0"].identity
    assert model.bytes_per_token is not None
    expected = model.size_bytes + TOKENS * model.bytes_per_token
    for one in away(seen):
        passes = expected if one.predicted.bound == "storage" else model.size_bytes
        assert one.read_bytes == pytest.approx(passes, rel=MAY_DIFFER)


def test_near_the_border_it_takes_something_between_both_times(seen: dict[int, Seen]) -> None:
    for one in seen.values():
        resident, paged = one.predicted.resident_token_ns, one.predicted.storage_token_ns
        assert (resident is not None) == (paged is not None) == one.near
        if resident is not None and paged is not None:
            assert resident * (1 - MAY_DIFFER) <= one.token_ns <= paged * (1 + MAY_DIFFER)
            assert one.token_ns <= (one.predicted.upper_token_ns or 0)


def test_near_the_border_the_settings_are_the_safe_ones(seen: dict[int, Seen]) -> None:
    for one in seen.values():
        told = [note for note in one.notes if "within 15% of what fits" in note]
        assert len(told) == one.near
        assert all("no repacking; no warm-up pass" in note for note in told)
