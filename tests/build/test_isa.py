"""Programs with instructions that their target lacks are refused, by the function's name."""

from pathlib import Path

import pytest

from labctl.build.artifact import list_artifacts
from labctl.build.builder import build
from labctl.build.functions import Functions
from labctl.build.isa import prove_isa
from labctl.build.manifest import CompilerKind, ToolRecord
from labctl.build.plan import BuildRequest
from labctl.config.target import load_target
from labctl.errors import ConfigError
from labctl.package_data import TOOLCHAINS

pytestmark = pytest.mark.usefixtures("own_cache")

SPEC = """\
product: probe
description: One small program
builder: compile
default_version: first
versions:
  first: {source: {folder: ../../probe}}
tools:
  probe: {sources: [main.c, kernel.c], flags: [-O2, -static]}
"""
MAIN = "int kernel(int *a, int n); int main(int c, char **v) { return kernel((int *)v, c & 0); }\n"
SUM = "int kernel(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i]; return s; }\n"
#: A guard as ggml and crypto libraries have it.
DISPATCHED = """\
dispatched:
  - functions: ["*_with_sve"]
    extensions: [sve]
    reason: called only where HWCAP_SVE is set
tools:
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    root = tmp_path / "lab"
    (root / "toolchains" / "products").mkdir(parents=True)
    (root / "toolchains" / "products" / "probe.yaml").write_text(SPEC)
    (root / "probe").mkdir()
    (root / "probe" / "main.c").write_text(MAIN)
    return root


def built(lab: Path, kernel: str, target: str = "rk3568") -> ToolRecord:
    (lab / "probe" / "kernel.c").write_text(kernel)
    request = BuildRequest(target=target, product="probe", lab_root=lab)
    return build(request).manifest.tools["probe"]


def refused(lab: Path, kernel: str, target: str = "rk3568") -> str:
    with pytest.raises(ConfigError) as caught:
        built(lab, kernel, target)
    assert list_artifacts() == []
    return caught.value.message


def instruction(extension: str, text: str, function: str = "kernel") -> str:
    asm = f'__asm__(".arch_extension {extension}\\n{text}");'
    return f"int {function}(int *a, int n) {{ {asm} return n; }}\n"


def test_a_plain_program_uses_nothing_that_the_target_lacks(lab: Path) -> None:
    facts = built(lab, SUM).isa
    assert facts is not None
    assert facts.named
    assert facts.dispatched == ()
    assert set(facts.used) <= {"atomics", "lrcpc", "asimddp"}


@pytest.mark.parametrize(
    ("extension", "text"),
    [
        ("sve", "add z0.s, z1.s, z2.s"),
        ("i8mm", "smmla v0.4s, v1.16b, v2.16b"),
        ("bf16", "bfdot v0.4s, v1.8h, v2.8h"),
        ("sme", "zero {za}"),
    ],
)
def test_what_a_cortex_a55_lacks_is_refused(lab: Path, extension: str, text: str) -> None:
    message = refused(lab, instruction(extension, text))
    assert message.startswith("probe uses instructions that target rk3568 does not have: ")
    assert f"{extension} in kernel (1 at 0x" in message


def test_flags_of_a_bigger_machine_are_refused(lab: Path) -> None:
    """What a build on an ARM server does when it takes that server's own CPU."""
    spec = lab / "toolchains" / "products" / "probe.yaml"
    spec.write_text(SPEC.replace("-static]", "-static, -Xclang, -target-feature, -Xclang, +sve]"))
    message = refused(lab, SUM)
    assert "sve in kernel (" in message


def test_a_static_function_in_another_file_is_named(lab: Path) -> None:
    body = instruction("sve", "cntd x0", "deep_inside").replace(
        "int deep", "static __attribute__((noinline)) int deep"
    )
    message = refused(lab, f"{body}int kernel(int *a, int n) {{ return deep_inside(a, n); }}\n")
    assert "sve in deep_inside (1 at 0x" in message


def test_dotprod_is_the_boards_but_not_everybodys(lab: Path) -> None:
    kernel = instruction("dotprod", "sdot v0.4s, v1.16b, v2.16b")
    facts = built(lab, kernel).isa
    assert facts is not None
    assert facts.used["asimddp"] == 1
    with pytest.raises(ConfigError, match="target generic-armv8-a does not have: asimddp in kern"):
        built(lab, kernel, "generic-armv8-a")


def test_data_among_the_code_is_no_instruction(lab: Path) -> None:
    table = '__asm__(".text\\n.balign 4\\ntable: .word 0x04e0e3e0, 0x04e0e3e0\\n");\n'
    facts = built(lab, table + SUM).isa
    assert facts is not None
    assert "sve" not in facts.used


def test_a_guarded_function_may_and_the_manifest_says_why(lab: Path) -> None:
    spec = lab / "toolchains" / "products" / "probe.yaml"
    kernel = instruction("sve", "cntd x0", "sum_with_sve").replace(
        "int sum", "__attribute__((noinline)) int sum"
    )
    kernel += "int kernel(int *a, int n) { return n > 1 ? sum_with_sve(a, n) : 0; }\n"
    assert "sve in sum_with_sve" in refused(lab, kernel)
    spec.write_text(SPEC.replace("tools:\n", DISPATCHED))
    facts = built(lab, kernel).isa
    assert facts is not None
    (use,) = facts.dispatched
    assert use.functions == ("sum_with_sve",)
    assert use.reason == "called only where HWCAP_SVE is set"
    # What it is held against has changed, not what it is made of.
    spec.write_text(SPEC.replace("tools:\n", DISPATCHED.replace("[sve]", "[i8mm]")))
    with pytest.raises(ConfigError, match="sve in sum_with_sve"):
        built(lab, kernel)


def test_a_kept_tool_is_held_against_what_its_target_has_now(lab: Path) -> None:
    kernel = instruction("dotprod", "sdot v0.4s, v1.16b, v2.16b")
    before = built(lab, kernel)
    target = lab / "toolchains" / "rk3568" / "target.yaml"
    shipped = (TOOLCHAINS / "rk3568" / "target.yaml").read_text()
    target.parent.mkdir()
    target.write_text(shipped)
    assert built(lab, kernel) == before
    target.write_text(shipped.replace(", asimddp]", "]"))
    with pytest.raises(ConfigError, match="rk3568 does not have: asimddp in kernel"):
        built(lab, kernel)


@pytest.mark.parametrize(
    "function", ["__my_kernel_sve", "__arm_kernel", "__libc_kernel", "uw_kernel", "__memcpy_sve"]
)
def test_a_name_like_a_librarys_is_no_guard(lab: Path, function: str) -> None:
    body = instruction("sve", "cntd x0", function).replace(
        "int __", "int __attribute__((noinline)) __"
    )
    kernel = f"{body}int kernel(int *a, int n) {{ return {function}(a, n); }}\n"
    assert f"sve in {function} (1 at 0x" in refused(lab, kernel)


def test_a_name_like_a_mapping_symbol_hides_no_code(lab: Path) -> None:
    body = instruction("sve", "cntd x0", "$data").replace(
        "int $", "int __attribute__((noinline)) $"
    )
    kernel = f"{body}int kernel(int *a, int n) {{ return $data(a, n); }}\n"
    assert "sve in $data (1 at 0x" in refused(lab, kernel)


def test_code_without_a_table_of_sections_is_not_passed_over(lab: Path, tmp_path: Path) -> None:
    built(lab, SUM)
    (artifact,) = list_artifacts()
    headless = bytearray(artifact.tool("probe").read_bytes())
    headless[0x28:0x30] = bytes(8)  # e_shoff
    headless[0x3C:0x40] = bytes(4)  # e_shnum, e_shstrndx
    path = tmp_path / "headless"
    path.write_bytes(headless)
    with pytest.raises(ConfigError, match="headless has no sections of code"):
        prove_isa(
            path,
            Functions(()),
            allowed=(),
            target=load_target("rk3568"),
            compiler=CompilerKind.ZIG,
        )
