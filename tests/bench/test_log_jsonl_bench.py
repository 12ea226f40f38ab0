"""What a token costs more when llama.cpp stamps it itself, with --log-jsonl."""

import platform
import statistics
from pathlib import Path

import agent_builds
import pytest
from interleaved import median_interval
from jobs import Job
from tiny_gguf import write_tiny_gguf

from labctl.build.artifact import list_artifacts
from labctl.build.builder import build
from labctl.build.plan import BuildRequest
from labctl.engines.base import Inputs, RawOutput
from labctl.engines.llama_cpp.arrivals import as_text
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.llama_cpp.perf_lines import has_total, parse_perf

pytestmark = pytest.mark.bench

ROUNDS = 12
TOKENS = 200
PROGRAM = "llama-completion"
EMULATOR = ("qemu-aarch64-static", "-cpu", "cortex-a76")
#: Faster tokens are not timed one by one.
FAST_TOKEN_NS = 5_000_000


def _program() -> tuple[tuple[str, ...], Path, str]:
    """The emulator, the program, and what that is: this host's own build where there is one."""
    for own in list_artifacts():
        built = own.manifest
        label = (built.product, built.version, built.target)
        if label == ("llama.cpp", "new", agent_builds.HOST) and PROGRAM in built.tools:
            return (), own.tool(PROGRAM), f"native {platform.machine()}"
    found = build(BuildRequest(target="rk3568", version="new", tools=(PROGRAM,)))
    return EMULATOR, found.tool(PROGRAM), "emulated ARM64"


def test_what_the_programs_own_stamps_cost(tmp_path: Path) -> None:
    emulator, program, what = _program()
    model = tmp_path / "tiny.gguf"
    write_tiny_gguf(model)
    engine, agent = LlamaCpp(), agent_builds.native_agent()

    def token_ns(name: str, *, log_jsonl: bool) -> tuple[float, float]:
        """Time and CPU time of a token."""
        parameters = engine.parameters(
            {"tokens": TOKENS, "context": 256, "threads": 1, "log_jsonl": log_jsonl}
        )
        tool = engine.tool([PROGRAM], offered=[PROGRAM])
        argv = engine.command(tool, parameters, Inputs(str(program), str(model), "hello"))
        # It does not wait for its log; what it ends with is lost at times.
        for attempt in range(9):
            job = Job(agent, tmp_path / f"{name}-{attempt}")
            job.start(*emulator, *argv, timeout=300)
            status = job.finish(300)
            assert status["exit_status"] == 0, status
            printed = as_text(RawOutput.read(job.directory)).stderr
            if has_total(printed):
                break
        perf = parse_perf(printed, limit=TOKENS)
        took = perf.after_prompt_ns(warmup=True) / TOKENS
        return took, (status["user_ns"] + status["system_ns"]) / TOKENS

    pairs = []
    for number in range(ROUNDS):
        # Each of them first as often as second: a drift meets both alike.
        both = {
            asked: token_ns(f"{number}-{asked}", log_jsonl=asked)
            for asked in ((True, False) if number % 2 else (False, True))
        }
        pairs.append((both[False], both[True]))
    print(
        f"\n{what}, {ROUNDS} pairs of {TOKENS} tokens of a tiny model, with --log-jsonl / without"
    )
    for index, name in enumerate(("time (total - prompt eval)", "CPU time, loading included")):
        plain = statistics.median(pair[0][index] for pair in pairs)
        ratios = [pair[1][index] / pair[0][index] for pair in pairs]
        extra = [pair[1][index] - pair[0][index] for pair in pairs]
        low, high = median_interval(ratios)
        print(f"  {name}: a token {plain / 1e3:.0f} us; ratio {statistics.median(ratios):.4f}")
        print(f"    95 % interval {low:.4f} to {high:.4f}")
        low, high = median_interval(extra)
        print(f"    a token costs {statistics.median(extra) / 1e3:+.1f} us more,", end="")
        print(f" {low / 1e3:+.1f} to {high / 1e3:+.1f}", end="")
        if not emulator:
            print(f"; of one of 5 ms at most {high / FAST_TOKEN_NS:+.2%}", end="")
        print()
