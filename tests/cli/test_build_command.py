import json
from pathlib import Path

import pytest

from labctl.cli.root import run_cli
from labctl.folders import cache_dir

SPEC = """\
product: tiny
description: one small program
builder: compile
default_version: first
versions:
  first: {source: {folder: ../../tiny}}
tools:
  hello: {sources: [hello.c], flags: [-O2, -static], smoke: [now]}
  other: {sources: [hello.c], flags: [-O1, -static], smoke: [now]}
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    zig = cache_dir() / "zig"
    zig.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "zig").symlink_to(zig)
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "lab"
    (root / "toolchains" / "rk3568").mkdir(parents=True)
    (root / "toolchains" / "rk3568" / "tiny.yaml").write_text(SPEC)
    (root / "tiny").mkdir()
    (root / "tiny" / "hello.c").write_text("int main(void) { return 0; }\n")
    return root


def labctl(lab: Path, *words: str) -> int:
    given = ["--target", "rk3568", "--product", "tiny", *words]
    return run_cli(["--lab", str(lab), "build", *given])


def test_a_build_says_where_what_and_how_proven(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert labctl(lab, "--tool", "hello") == 0
    said = capsys.readouterr()
    assert "tiny (first) for rk3568: folder-" in said.out
    assert f"in        {lab.parent / 'cache' / 'artifacts' / 'rk3568' / 'tiny-first-'}" in said.out
    assert "AARCH64 64-bit, static, stripped" in said.out
    assert "-mcpu=cortex_a55" in said.out
    assert "other" not in said.out
    assert "built in" in said.err
    assert "\x1b" not in said.err  # plain lines where there is no terminal
    assert labctl(lab, "--tool", "hello") == 0
    assert "nothing to do" in capsys.readouterr().err


def test_json_is_the_manifest_alone(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert labctl(lab, "--json") == 0
    manifest = json.loads(capsys.readouterr().out)
    assert sorted(manifest["tools"]) == ["hello", "other"]
    assert (Path(manifest["path"]) / "bin" / "hello").is_file()
    assert manifest["tools"]["hello"]["elf"]["machine"] == "EM_AARCH64"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tool", "helo"], "no tool 'helo' of tiny (did you mean 'hello'?)"),
        (["--version", "frist"], "no version 'frist' of tiny (did you mean 'first'?)"),
        (["--target", "rk3569"], "no target 'rk3569' (did you mean 'rk3568'?)"),
        (["--source", ".", "--git", "x"], "--source and --git are both given"),
        (["--git", "https://example.org/x.git"], "--git and --ref belong together"),
        (["--source", "/no/such"], "no source folder /no/such"),
    ],
)
def test_wrong_use_is_exit_2_and_one_sentence(
    lab: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert labctl(lab, *words) == 2
    assert f"error (config): {message}" in capsys.readouterr().err


def test_a_compile_error_is_exit_1_with_the_compilers_words(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab / "tiny" / "hello.c").write_text("int main(void) { return x; }\n")
    assert labctl(lab) == 1
    said = capsys.readouterr().err
    assert "error (job): tiny for rk3568 does not compile" in said
    assert "use of undeclared identifier 'x'" in said
    assert "build.log" in said


def test_explain_prints_every_command_and_runs_none(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert labctl(lab, "--explain", "--tool", "hello") == 0
    said = capsys.readouterr().out
    assert "# tiny for rk3568: first, folder-" in said
    assert "local (this host, " in said
    assert f" {lab}/tiny/hello.c " in said
    assert "-O2" in said
    assert "other" not in said
    assert not (lab.parent / "cache" / "build").exists()
    assert not (lab.parent / "cache" / "artifacts").exists()
    assert labctl(lab, "--explain", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert [command["step"] for command in plan["commands"]] == ["compile", "compile"]
    assert plan["environment"]["SOURCE_DATE_EPOCH"].isdigit()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--param", "sdk"], "--param sdk: must be NAME=VALUE"),
        (["--param", "a=1", "--param", "a=2"], "--param a is given twice"),
        (["--param", "a=1"], "no parameter 'a' of tiny"),
        (["--builder", "local", "--host", "pi"], "the local builder has none"),
    ],
)
def test_what_cannot_be_asked_for(
    lab: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert labctl(lab, *words) == 2
    assert message in capsys.readouterr().err
