"""Products that an SDK of the user's builds by its own steps."""

import os
import sys
from pathlib import Path

import pytest

from labctl.build.artifact import find_artifact, list_artifacts
from labctl.build.builder import build
from labctl.build.dry_run import explain_build
from labctl.build.plan import BuildRequest
from labctl.build.spec import find_spec
from labctl.build.zig import locate
from labctl.errors import CompileError, ConfigError, HostTimeout, LabctlError

pytestmark = pytest.mark.usefixtures("own_cache")

LIBRARIES = ("libmindir.z.so", "libmindspore-lite.huawei.so")
#: What OpenHarmony's build.sh leaves, made in a second: arguments are kept to be looked at.
BUILD_SH = """\
#!/bin/sh
printf '%s\\n' "$@" > arguments
mkdir -p out/rk3568/thirdparty/mindspore
for name in libmindir.z.so libmindspore-lite.huawei.so; do
    "{zig}" cc -target arm-linux-musleabihf -nostdlib -shared -s -O2 lib.c \\
        -o out/rk3568/thirdparty/mindspore/$name || exit 1
done
"""
#: The demo's, which takes the SDK's toolchain file and arm32 or arm64.
DEMO_SH = """\
test -f "$1" || exit 1
case $2 in
    arm32) triple=arm-linux-musleabihf ;;
    arm64) triple=aarch64-linux-musl ;;
esac
quiet="-fno-unwind-tables -fno-asynchronous-unwind-tables"
cc() { "{zig}" cc -target $triple -nostdlib $quiet "$@"; }
mkdir -p build
cc -shared b.c -o build/libb.so && cc -dynamic -fPIE -pie a.c build/libb.so -o build/demo
"""


@pytest.fixture
def openharmony(tmp_path: Path) -> Path:
    """A tree whose build.sh really makes 32-bit ARM libraries."""
    tree = tmp_path / "open harmony"  # a word with a space stays one word
    tree.mkdir()
    (tree / "lib.c").write_text("int answer(void) { return 42; }\n")
    script = tree / "build.sh"
    script.write_text(BUILD_SH.replace("{zig}", str(locate().zig)))
    script.chmod(0o755)
    return tree


def request(tree: Path, product: str = "mindspore-lite", **options: object) -> BuildRequest:
    given = {"parameters": {"openharmony": str(tree)}, **options}
    return BuildRequest(target="rk3568", product=product, **given)  # type: ignore[arg-type]


def refused(asked: BuildRequest, kind: type[LabctlError] = ConfigError) -> LabctlError:
    with pytest.raises(kind) as caught:
        build(asked)
    assert list_artifacts() == []
    return caught.value


def test_the_kits_libraries_become_an_artifact(openharmony: Path) -> None:
    artifact = build(request(openharmony))
    words = (openharmony / "arguments").read_text().split()
    assert words[:4] == ["--product-name", "rk3568", "--target-cpu", "arm"]
    assert words[4:] == ["-T", "mindspore_lib", "--ccache"]
    for name in LIBRARIES:
        facts = artifact.manifest.tools[name].elf
        assert (facts.machine, facts.bits, facts.type) == ("EM_ARM", 32, "ET_DYN")
    assert artifact.manifest.source.location == str(openharmony)
    (kit, *_) = artifact.manifest.materials
    assert (kit.kind, kit.name, kit.licence) == ("kit", str(openharmony), "Apache-2.0")
    assert find_artifact("rk3568", "mindspore-lite") == artifact


def test_what_a_kit_holds_is_not_known_so_it_is_built_every_time(openharmony: Path) -> None:
    first = build(request(openharmony))
    (openharmony / "lib.c").write_text("int answer(void) { return 43; }\n")
    second = build(request(openharmony))
    assert second.path == first.path
    name = LIBRARIES[0]
    assert second.manifest.tools[name].sha256 != first.manifest.tools[name].sha256
    second.verify()


def test_a_kit_that_is_not_named() -> None:
    error = refused(BuildRequest(target="rk3568", product="mindspore-lite"))
    assert error.message.startswith("mindspore-lite needs the parameter 'openharmony': the root of")
    assert error.hint == "--param openharmony=PATH"


def test_a_kit_that_is_not_there_or_another(openharmony: Path, tmp_path: Path) -> None:
    error = refused(request(tmp_path / "nowhere"))
    assert error.message.endswith(f"there is no {tmp_path}/nowhere")
    (openharmony / "build.sh").unlink()
    error = refused(request(openharmony))
    assert error.message.endswith(f"{openharmony} has no build.sh")
    assert "OpenHarmony source tree" in (error.hint or "")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"openharmony": "/x", "jobbs": "4"}, "no parameter 'jobbs' of mindspore-lite"),
        ({"openharmony": ""}, "'' is not a path"),
        ({"openharmony": "/x\n"}, "is not a path"),
    ],
)
def test_parameters_that_cannot_be(parameters: dict[str, str], message: str) -> None:
    asked = BuildRequest(target="rk3568", product="mindspore-lite", parameters=parameters)
    assert message in refused(asked).message


def test_a_step_that_fails_shows_what_it_said(openharmony: Path) -> None:
    (openharmony / "build.sh").write_text("#!/bin/sh\necho 'x.cpp:1:2: error: no' >&2\nexit 1\n")
    error = refused(request(openharmony), CompileError)
    assert error.message == "mindspore-lite for rk3568 does not compile"
    assert "x.cpp:1:2: error: no" in (error.details or "")


def test_steps_that_leave_nothing(openharmony: Path) -> None:
    (openharmony / "build.sh").write_text("#!/bin/sh\nexit 0\n")
    error = refused(request(openharmony))
    assert "the steps succeeded but did not produce libmindir.z.so" in error.message


def test_a_library_of_another_machine_is_refused(openharmony: Path) -> None:
    script = openharmony / "build.sh"
    script.write_text(script.read_text().replace("arm-linux-musleabihf", "aarch64-linux-musl"))
    message = refused(request(openharmony)).message
    assert "it is for EM_AARCH64, not EM_ARM; it has 64 bits, not 32" in message


def own_spec(lab: Path, steps: str) -> None:
    folder = lab / "toolchains" / "rk3568"
    folder.mkdir(parents=True)
    (folder / "own.yaml").write_text(
        "product: own\ndescription: own\nbuilder: steps\ndefault_version: tree\n"
        "versions: {tree: {source: {kit: sdk}}}\n"
        "parameters:\n  sdk: {description: a kit}\n"
        "  level: {description: a level, kind: word, default: O2}\n"
        f"steps:\n{steps}\n"
        "tools:\n  lib.so: {elf: shared-object, output: '{tree}/lib.so'}\n"
    )


def own(lab: Path, kit: Path, **words: str) -> BuildRequest:
    return BuildRequest(
        target="rk3568",
        product="own",
        lab_root=lab,
        parameters={"sdk": str(kit), **words},
        jobs=3,
    )


def test_what_goes_in_with_a_kit_is_not_known_even_of_a_source_that_is(
    tmp_path: Path, openharmony: Path
) -> None:
    """The source is labctl's to know, the SDK that compiles it is not."""
    own_spec(tmp_path, "  - run: ['{sdk}/compile', '{tree}/lib.so']")
    spec = tmp_path / "toolchains" / "rk3568" / "own.yaml"
    spec.write_text(spec.read_text().replace("{kit: sdk}", "{folder: source}"))
    (spec.parent / "source").mkdir()
    (spec.parent / "source" / "lib.c").write_text("int answer(void) { return 42; }\n")
    compiler = openharmony / "compile"
    call = (
        f'"{locate().zig}" cc -target aarch64-linux-musl -nostdlib -shared -s LEVEL lib.c -o "$1"'
    )
    hashes = []
    for level in ("-O2", "-DX=1 -O2 -Wl,-soname,other"):
        compiler.write_text(f"#!/bin/sh\n{call.replace('LEVEL', level)}\n")
        compiler.chmod(0o755)
        hashes.append(build(own(tmp_path, openharmony)).manifest.tools["lib.so"].sha256)
    assert hashes[0] != hashes[1]


def test_words_stay_words(tmp_path: Path, openharmony: Path) -> None:
    own_spec(tmp_path, '  - run: [./tool, "-{level}", "{jobs}", "{tree}/x y", "$(id); {version}"]')
    (command,) = explain_build(own(tmp_path, openharmony, level="O3")).script.commands
    assert command.words[:3] == ("./tool", "-O3", "3")
    assert command.words[3].endswith("/tree/x y")
    assert command.words[4] == "$(id); tree"
    assert command.cwd == str(openharmony)
    with pytest.raises(ConfigError, match="'O3 -x' is not one plain word"):
        explain_build(own(tmp_path, openharmony, level="O3 -x"))


def test_a_step_whose_program_the_kit_lacks(tmp_path: Path, openharmony: Path) -> None:
    own_spec(tmp_path, "  - run: [./compile-all.sh]")
    message = refused(own(tmp_path, openharmony)).message
    assert message == (
        f"own for rk3568, step 1 of 1: there is no ./compile-all.sh in {openharmony}"
    )


def test_a_step_has_its_own_time_out(tmp_path: Path, openharmony: Path) -> None:
    own_spec(
        tmp_path,
        f"  - run: [{sys.executable}, -c, 'import time; time.sleep(60)']\n    timeout: 300ms",
    )
    assert "within 0.3 s" in refused(own(tmp_path, openharmony), HostTimeout).message


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("  - run: [make, '{jbos}']", "no placeholder 'jbos' (did you mean 'jobs'?)"),
        ("  - run: []", "steps[0].run"),
        ("  - {}", "steps[0].run"),
        ("  - run: [make]\n    timeout: 5", "a duration needs a unit"),
    ],
)
def test_a_bad_step_is_refused_with_its_place(
    tmp_path: Path, openharmony: Path, steps: str, message: str
) -> None:
    own_spec(tmp_path, steps)
    said = refused(own(tmp_path, openharmony)).message
    assert message in said
    assert "own.yaml:" in said


def test_the_demo_takes_the_sdks_toolchain_file(tmp_path: Path) -> None:
    demo, sdk = tmp_path / "demo", tmp_path / "native"
    (sdk / "build" / "cmake").mkdir(parents=True)
    (sdk / "build" / "cmake" / "ohos.toolchain.cmake").write_text("")
    demo.mkdir()
    (demo / "b.c").write_text("int b(void) { return 1; }\n")
    (demo / "a.c").write_text("int b(void);\nvoid _start(void) { b(); for (;;) {} }\n")
    (demo / "build.sh").write_text(DEMO_SH.replace("{zig}", str(locate().zig)))
    given = {"demo": str(demo), "sdk": str(sdk)}
    asked = BuildRequest(target="rk3568", product="mindspore-lite-demo", parameters=given)
    facts = build(asked).manifest.tools["demo"].elf
    assert (facts.machine, facts.dynamic) == ("EM_ARM", True)
    wide = BuildRequest(
        target="rk3568", product="mindspore-lite-demo", version="arm64", parameters=given
    )
    tool = build(wide).manifest.tools["demo"]
    assert tool.elf.machine == "EM_AARCH64"
    assert tool.isa is not None
    (sdk / "build" / "cmake" / "ohos.toolchain.cmake").unlink()
    with pytest.raises(ConfigError, match=r"has no build/cmake/ohos\.toolchain\.cmake"):
        build(asked)


def test_nnrt_is_built_as_its_guide_says(openharmony: Path) -> None:
    plan = explain_build(request(openharmony, "nnrt", jobs=4))
    (command,) = plan.script.commands
    assert list(command.words) == [
        *("./build.sh", "--product-name", "rk3568", "--ccache"),
        *("--build-target", "neural_network_runtime", "--jobs", "4"),
    ]
    assert command.cwd == str(openharmony)
    assert not os.path.lexists(plan.folders.tree)  # nothing was done
    assert find_spec("rk3568", "nnrt", None)[0].licence == "Apache-2.0"
