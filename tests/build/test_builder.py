import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from labctl.build.artifact import find_artifact, list_artifacts
from labctl.build.builder import build
from labctl.build.plan import BuildRequest
from labctl.build.progress import BuildProgress, Step
from labctl.build.spec import GitSource
from labctl.errors import (
    CompileError,
    ConfigError,
    HostError,
    IntegrityError,
    LabctlError,
    ProgramFailed,
    ToolMissing,
)
from labctl.retry import wait_until

pytestmark = pytest.mark.usefixtures("own_cache")


class Seen:
    """What a build said about itself."""

    def __init__(self) -> None:
        self.events: list[BuildProgress] = []

    def __call__(self, event: BuildProgress) -> None:
        self.events.append(event)

    @property
    def steps(self) -> list[Step]:
        return list(dict.fromkeys(event.step for event in self.events))

    def compiled(self) -> str:
        return "\n".join(e.message for e in self.events if e.step is Step.COMPILE)


def refused(request: BuildRequest, kind: type[LabctlError]) -> LabctlError:
    with pytest.raises(kind) as caught:
        build(request)
    return caught.value


def test_a_product_becomes_static_stripped_and_proven_tools(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    seen = Seen()
    artifact = build(tiny_lab.request(), on_progress=seen)
    assert seen.steps == [Step.RUNTIME, Step.CONFIGURE, Step.COMPILE, Step.COLLECT, Step.CHECK]
    assert (seen.events[-5].done, seen.events[-5].total) == (6, 6)
    assert sorted(artifact.manifest.tools) == ["one", "two"]
    for name, tool in artifact.manifest.tools.items():
        path = artifact.tool(name)
        assert os.access(path, os.X_OK)
        assert tool.size_bytes == path.stat().st_size
        assert (tool.elf.machine, tool.elf.bits) == ("EM_AARCH64", 64)
        assert tool.elf.stripped
        assert not tool.elf.dynamic
    artifact.verify()
    assert json.loads((artifact.path / "manifest.json").read_text())["target"] == "rk3568"
    assert find_artifact("rk3568", "tiny", lab_root=tiny_lab.root) == artifact
    assert list_artifacts() == [artifact]


def test_a_tool_that_is_not_built_by_default_has_to_be_named(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    tiny_lab.change_spec("two: {", "two: {by_default: false, ")
    assert sorted(build(tiny_lab.request()).manifest.tools) == ["one"]
    assert sorted(build(tiny_lab.request("two")).manifest.tools) == ["one", "two"]


def test_the_smoke_run_is_recorded_or_why_there_was_none(tiny_lab, monkeypatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    smoke = build(tiny_lab.request("one")).manifest.tools["one"].smoke
    if smoke.done:
        assert smoke.exit_status == 0
        assert "one 3 folder-" in smoke.output
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    smoke = build(tiny_lab.request("two")).manifest.tools["two"].smoke
    assert not smoke.done
    assert smoke.reason == "this host is x86_64, and qemu-aarch64-static is not installed"
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr("labctl.build.smoke.host_features", lambda: frozenset({"fp", "asimd"}))
    shutil.rmtree(tmp_path / "cache" / "artifacts")
    smoke = build(tiny_lab.request("two")).manifest.tools["two"].smoke
    assert (smoke.reason or "").startswith("this host's CPU does not have asimddp, asimdhp, ")


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ('__asm__(".inst 0x00000000");', ConfigError, "uses instructions that"),
        ("return 7;", ProgramFailed, "one does not start: it ended with status 7"),
    ],
)
def test_a_tool_that_does_not_start_is_refused(  # type: ignore[no-untyped-def]
    tiny_lab, body: str, kind: type[LabctlError], message: str
) -> None:
    if shutil.which("qemu-aarch64-static") is None and platform.machine() != "aarch64":
        pytest.skip("qemu-aarch64-static is not installed")
    (tiny_lab.source / "one.c").write_text(f"int main(void) {{ {body} return 0; }}\n")
    assert message in refused(tiny_lab.request("one"), kind).message
    assert list_artifacts() == []


def test_nothing_changed_is_no_work(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    first = build(tiny_lab.request())
    seen = Seen()
    assert build(tiny_lab.request(), on_progress=seen) == first
    assert seen.events == []


def test_a_further_tool_compiles_only_itself(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    first = build(tiny_lab.request("one"))
    before = first.tool("one").stat()
    seen = Seen()
    both = build(tiny_lab.request("one", "two"), on_progress=seen)
    assert both.path == first.path
    assert sorted(both.manifest.tools) == ["one", "two"]
    assert both.tool("one").stat().st_mtime_ns == before.st_mtime_ns
    assert "two.c" in seen.compiled()
    assert "one.c" not in seen.compiled()
    assert "shared.c" not in seen.compiled()


def test_a_damaged_tool_is_built_again(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    artifact = build(tiny_lab.request("one"))
    good = artifact.tool("one").read_bytes()
    file = artifact.tool("one")
    for bad in (good[:100], good[:-1] + bytes([good[-1] ^ 1])):
        file.write_bytes(bad)
        with pytest.raises(IntegrityError, match="one is gone or damaged"):
            artifact.tool("one")
        assert build(tiny_lab.request("one")).tool("one").read_bytes() == good


def test_another_source_or_definition_is_another_artifact(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    first = build(tiny_lab.request("one"))
    tiny_lab.change_spec("TINY_REVISION:", "TINY_OTHER: true\n  TINY_REVISION:")
    second = build(tiny_lab.request("one"))
    (tiny_lab.source / "shared.c").write_text("int add(int a, int b) { return b + a; }\n")
    third = build(tiny_lab.request("one"))
    assert len({first.path, second.path, third.path}) == 3
    assert find_artifact("rk3568", "tiny", lab_root=tiny_lab.root) == third
    tiny_lab.change_spec("TINY_OTHER: true\n  ", "")
    (tiny_lab.source / "shared.c").write_text("int add(int a, int b) { return a + b; }\n")
    assert build(tiny_lab.request("one")) == first
    assert find_artifact("rk3568", "tiny", lab_root=tiny_lab.root) == first


def test_the_same_bytes_from_another_folder(tiny_lab, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    first = build(tiny_lab.request())
    moved = tmp_path / "elsewhere"
    tiny_lab.root.rename(moved)
    other = tmp_path / "other-cache"
    other.mkdir()
    (other / "zig").symlink_to(first.path.parents[2] / "zig")
    monkeypatch.setenv("LABCTL_CACHE", str(other))
    monkeypatch.setenv("CFLAGS", "-O0 -DREVISION=wrong")
    second = build(BuildRequest(target="rk3568", product="tiny", lab_root=moved))
    assert second.path != first.path
    assert second.manifest.key == first.manifest.key
    for name in ("one", "two"):
        assert second.tool(name).read_bytes() == first.tool(name).read_bytes()
        assert str(tmp_path).encode() not in first.tool(name).read_bytes()


def test_a_compile_error_shows_the_compilers_first_errors(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    (tiny_lab.source / "one.c").write_text("int main(void) { return nonsense; }\n")
    error = refused(tiny_lab.request(), CompileError)
    assert error.message == "tiny for rk3568 does not compile"
    assert "one.c:1:25: error: use of undeclared identifier 'nonsense'" in (error.details or "")
    log = Path((error.hint or "").rpartition(" ")[2])
    assert "nonsense" in log.read_text()
    assert list_artifacts() == []


@pytest.mark.parametrize(
    ("name", "what"),
    [("table.inc", "these files are pointers of git LFS"), ("inner", "these submodules are empty")],
)
def test_what_a_source_lacks_is_no_fault_of_its_commit(tiny_lab, name: str, what: str) -> None:  # type: ignore[no-untyped-def]
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    (tiny_lab.source / "table.inc").write_text(pointer)
    (tiny_lab.source / "inner").mkdir()
    (tiny_lab.source / ".gitmodules").write_text('[submodule "inner"]\n\tpath = inner\n')
    program = tiny_lab.source / "one.c"
    program.write_text(f"{program.read_text()}int wrong(;\n")
    error = refused(tiny_lab.request("one"), CompileError)  # whatever else it has
    included = "inner/a.h" if name == "inner" else name
    program.write_text(f'#include "{included}"\n{program.read_text()}')
    error = refused(tiny_lab.request("one"), ConfigError)
    assert f"does not compile: {what}" in error.message
    assert error.message.endswith(f": {name}")
    assert name in (error.details or "")


def test_a_broken_cmake_file_is_the_sources_fault(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    (tiny_lab.source / "CMakeLists.txt").write_text("project(tiny C)\nnonsense()\n")
    error = refused(tiny_lab.request(), CompileError)
    assert "nonsense" in (error.details or "")
    (tiny_lab.source / "CMakeLists.txt").unlink()
    assert "no CMakeLists.txt" in refused(tiny_lab.request(), ConfigError).message


def test_a_tool_that_the_source_does_not_have(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    tiny_lab.change_spec("  two:", "  three:")
    error = refused(tiny_lab.request(), ConfigError)
    assert error.message == "tiny for rk3568: the source has no tool 'three'"


def test_a_dynamic_program_is_refused(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    text = (tiny_lab.source / "CMakeLists.txt").read_text()
    (tiny_lab.source / "CMakeLists.txt").write_text(
        text + "target_link_options(one PRIVATE -dynamic)\n"
    )
    error = refused(tiny_lab.request("one"), ConfigError)
    assert "one is not a static executable for target rk3568" in error.message
    assert "it asks for the dynamic linker /lib/ld-musl-aarch64.so.1" in error.message
    assert list_artifacts() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "rk3569"}, "no target 'rk3569' (did you mean 'rk3568'?)"),
        ({"product": "tini"}, "no product 'tini' for target rk3568 (did you mean 'tiny'?)"),
        ({"tools": ("twoo",)}, "no tool 'twoo' of tiny (did you mean 'two'?)"),
        ({"version": "frist"}, "no version 'frist' of tiny (did you mean 'first'?)"),
        ({"source": Path("/no/such/folder")}, "no source folder /no/such/folder"),
    ],
)
def test_names_that_are_not_known(tiny_lab, change: dict[str, object], message: str) -> None:  # type: ignore[no-untyped-def]
    asked: dict[str, object] = {"target": "rk3568", "product": "tiny", "lab_root": tiny_lab.root}
    assert refused(BuildRequest(**{**asked, **change}), ConfigError).message == message  # type: ignore[arg-type]


def test_what_is_not_built_is_said_with_the_command_that_builds_it(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(
        ConfigError, match=r"no tiny \(first\) is built for target rk3568"
    ) as caught:
        find_artifact("rk3568", "tiny", lab_root=tiny_lab.root)
    assert caught.value.hint == "labctl build --target rk3568 --product tiny"
    artifact = build(tiny_lab.request("one"))
    with pytest.raises(ConfigError, match=r"no tool 'two' in tiny-first-") as caught:
        artifact.tool("two")
    assert (caught.value.hint or "").endswith("--product tiny --version first --tool two")


def test_a_missing_build_program(tiny_lab, monkeypatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    from importlib import metadata

    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", absent)
    monkeypatch.setenv("PATH", str(tmp_path))  # no GCC either
    error = refused(tiny_lab.request(), ToolMissing)
    assert error.message == "no builder can build this here"
    assert "pip install 'labctl-boards[build]'" in (error.hint or "")
    reasons = (error.details or "").splitlines()
    assert reasons[0].startswith("local: the Python package 'ziglang' is not installed")
    assert reasons[1].startswith("container: neither podman nor docker is installed")


def test_a_cache_that_cannot_be_written(tiny_lab, monkeypatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("LABCTL_CACHE", str(blocked))
    assert refused(tiny_lab.request(), HostError).message.startswith("cannot write")


def test_a_source_edited_during_the_build_is_refused(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    def edit(event: BuildProgress) -> None:
        if event.step is Step.COMPILE:
            (tiny_lab.source / "two.c").write_text("int main(void) { return 1; }\n")

    with pytest.raises(ConfigError, match="was changed while it was being built"):
        build(tiny_lab.request("one"), on_progress=edit)
    assert list_artifacts() == []


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_edited_during_a_build_is_in_no_later_one(tiny_lab, own_cache, fails) -> None:  # type: ignore[no-untyped-def]
    shared, one = tiny_lab.source / "shared.c", tiny_lab.source / "one.c"
    originals = [(path, path.read_text(), path.stat()) for path in (shared, one)]

    def edit(event: BuildProgress) -> None:
        if event.step is Step.CONFIGURE:
            shared.write_text("int add(int a, int b) { return a - b; }\n")
            if fails:
                one.write_text("int main(void) { return wrong; }\n")

    with pytest.raises(ConfigError, match="was changed while it was being built"):
        build(tiny_lab.request("one"), on_progress=edit)
    for path, text, status in originals:  # as `mv one.c.orig one.c` does
        path.write_text(text)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = build(tiny_lab.request("one")).manifest.tools["one"]
    shutil.rmtree(own_cache / "artifacts")
    shutil.rmtree(own_cache / "build")
    assert build(tiny_lab.request("one")).manifest.tools["one"].sha256 == after.sha256


def test_own_sources_get_labels_of_their_own(tiny_lab, tmp_path) -> None:  # type: ignore[no-untyped-def]
    artifact = build(tiny_lab.request("one", source=tiny_lab.source))
    assert artifact.manifest.version == "folder"

    def git(*words: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        argv = ["git", "-C", str(tiny_lab.source), *identity, *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    git("tag", "b7348")
    commit = git("rev-parse", "HEAD")
    (tiny_lab.source / "one.c").write_text("broken")  # the tag is what is built
    source = GitSource(git=f"file://{tiny_lab.source}", ref="b7348")
    artifact = build(tiny_lab.request("one", source=source))
    assert artifact.manifest.version == "b7348"
    assert artifact.manifest.commit == commit
    assert find_artifact("rk3568", "tiny", "b7348", lab_root=tiny_lab.root) == artifact
    seen = Seen()
    assert build(tiny_lab.request("one", source=source), on_progress=seen) == artifact
    assert seen.events == []


_BUILD = """
import sys
from contextlib import suppress
from pathlib import Path
from labctl.build.builder import build
from labctl.build.plan import BuildRequest
def say(event): print(event.step, event.message, flush=True)
request = BuildRequest(target="rk3568", product="tiny", lab_root=Path(sys.argv[1]))
print("artifact", build(request, on_progress=say).path, flush=True)
"""


def start(root: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _BUILD, str(root)], stdout=subprocess.PIPE, text=True
    )


def slow_down(source: Path) -> None:
    """Make one file take some seconds to compile."""
    body = "".join(
        f"int f{i}(int x) {{ return x * {i} + f{i - 1}(x ^ {i}); }}\n" for i in range(1, 1200)
    )
    (source / "shared.c").write_text(
        "int f0(int x) { return x; }\n" + body + "int add(int a, int b) { return a + b; }\n"
    )


def test_two_builds_at_once_share_one(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    running = [start(tiny_lab.root) for _ in range(2)]
    said = [process.communicate(timeout=200)[0].splitlines() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert said[0][-1] == said[1][-1]
    assert sum(any(line.startswith("compile") for line in lines) for lines in said) == 1


def test_a_killed_build_leaves_no_artifact_and_the_next_one_works(tiny_lab, own_cache) -> None:  # type: ignore[no-untyped-def]
    slow_down(tiny_lab.source)
    process = start(tiny_lab.root)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("compile"):
            break
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=120)
    process.stdout.close()
    assert list_artifacts() == []
    artifact = build(tiny_lab.request())
    artifact.verify()


def test_an_interrupt_ends_a_build_that_makes_its_runtime(tiny_lab, own_cache) -> None:  # type: ignore[no-untyped-def]
    zig_cache = own_cache / "zig"
    zig_cache.unlink()
    zig_cache.mkdir()  # empty: the runtime takes minutes
    process = start(tiny_lab.root)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("runtime ")
    assert wait_until(lambda: any(zig_cache.rglob("*.o*")), timeout=120, interval=0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert works_in(own_cache) == []


def works_in(folder: Path) -> list[str]:
    """Find the processes whose working directory lies there."""
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):  # it has ended meanwhile
            if cwd.readlink().is_relative_to(folder):
                found.append(cwd.parent.name)
    return found


def test_the_tree_stays_locked_while_compilers_of_a_killed_build_live(tiny_lab, own_cache) -> None:  # type: ignore[no-untyped-def]
    import fcntl

    slow_down(tiny_lab.source)
    process = start(tiny_lab.root)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("compile tiny"):
            break
    (lock,) = (own_cache / "locks").glob("build-*.lock")
    log = next((own_cache / "build").rglob("build.log"))
    assert wait_until(lambda: " -j " in log.read_text(), timeout=120, interval=0.02)
    process.kill()
    process.wait(timeout=120)
    process.stdout.close()

    def free() -> bool:
        with lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    held = not free()
    assert wait_until(free, timeout=120, interval=0.1)
    assert held
