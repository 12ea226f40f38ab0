"""What labctl's own work costs beside CMake and Ninja's."""

import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from labctl import process
from labctl.build.builder import build
from labctl.build.dry_run import explain_build
from labctl.build.manifest import CompilerKind
from labctl.build.plan import BuildRequest
from labctl.build.script import make_script
from labctl.build.workspace import Folders
from labctl.errors import ToolMissing
from labctl.folders import cache_dir

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

MOST_OVERHEAD = 1.05
MOST_WARM_SECONDS = 2.0
ROUNDS = 2
REQUEST = BuildRequest(target="rk3568", product="gguf-tools", compiler=CompilerKind.GCC)


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of CPU time with that of all programs started and ended."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)

    def used() -> float:
        return sum(r.ru_utime + r.ru_stime for r in map(resource.getrusage, who))

    began, before = time.monotonic(), used()
    work()
    return time.monotonic() - began, used() - before


def test_a_build_costs_little_more_than_cmake_and_ninja(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both in turns, twice; of each the least counts, what another program took is not labctl's."""
    shared = (cache_dir() / "sources").resolve()
    shared.mkdir(parents=True, exist_ok=True)
    plain: list[tuple[float, float]] = []
    cold: list[tuple[float, float]] = []
    for number in range(ROUNDS):
        cache = tmp_path / str(number)
        cache.mkdir()
        (cache / "sources").symlink_to(shared)
        monkeypatch.setenv("LABCTL_CACHE", str(cache))
        plain.append(cost(partial(by_hand, cache / "by-hand")))
        cold.append(cost(lambda: build(REQUEST)))
    warm_wall, _ = cost(lambda: build(REQUEST))
    ratio = min(cpu for _, cpu in cold) / min(cpu for _, cpu in plain)
    shown = [" ".join(f"{wall:.1f}/{cpu:.1f}" for wall, cpu in runs) for runs in (plain, cold)]
    print(
        f"\nseconds by the clock/of CPU time: cmake+ninja {shown[0]}, labctl cold {shown[1]}: "
        f"{ratio:.3f} of it; warm {warm_wall:.2f} s"
    )
    assert ratio <= MOST_OVERHEAD
    assert warm_wall <= MOST_WARM_SECONDS


def by_hand(tree: Path) -> None:
    """What somebody without labctl would type: the same commands, in another folder."""
    try:
        found = explain_build(REQUEST)
    except ToolMissing as error:
        pytest.skip(error.message)
    found.plan.source.fetch(lambda _progress: None)
    script = make_script(
        found.plan.order, Folders(found.folders.source, str(tree)), found.plan.tools
    )
    tree.mkdir()
    for name, text in script.files.items():
        (tree / name).write_text(text)
    for command in script.commands:
        done = process.run(command.words, timeout=1800, cwd=tree)
        assert done.exit_status == 0, done.tail()
