"""What users get wrong: one clear message, the right blame, and nothing done or written.

No board is needed, and no process of its own: these are the words of the command line, from the
place where ``labctl`` takes them to its exit status.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from labs import RECIPE
from tiny_gguf import write_tiny_gguf

from labctl.cli.root import run_cli

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]

DEVICES = """\
boards:
  rk1:
    target: rk3568
    transport: {kind: hdc, link: tcp, address: "127.0.0.1:1"}
"""
TWO_BOARDS = DEVICES + (
    "  rk2:\n    target: rk3568\n"
    '    transport: {kind: hdc, link: tcp, address: "127.0.0.1:2"}\n'
)  # fmt: skip
LONG = "x" * 300


@dataclass(frozen=True)
class Refusal:
    """What a command said before it gave up."""

    status: int
    said: str

    @property
    def problems(self) -> list[str]:
        """Lines that say that something is wrong."""
        return [
            line for line in self.said.splitlines() if re.match(r"error \(|Error: |bug: ", line)
        ]


class Lab:
    """A lab in a folder of the test's own."""

    def __init__(self, root: Path, capture: pytest.CaptureFixture[str]):
        self.root = root
        self._capture = capture
        for folder in ("models", "recipes"):
            (root / folder).mkdir(parents=True)
        self.write("devices.yaml", DEVICES)
        self.write("recipes/tiny.yaml", RECIPE)
        write_tiny_gguf(root / "models" / "tiny.gguf")

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def files(self) -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in self.root.rglob("*")}

    def refuses(self, *words: str) -> Refusal:
        """The command fails with one message, and changes nothing in the lab."""
        before = self.files()
        status = run_cli(list(words))
        captured = self._capture.readouterr()
        assert captured.out == ""
        refusal = Refusal(status, captured.err)
        assert len(refusal.problems) == 1, captured.err
        assert "Traceback" not in captured.err
        assert self.files() == before
        return refusal

    def refuses_as_config(self, *words: str, because: str) -> None:
        """... and the message says that the user's words are wrong, and why."""
        refusal = self.refuses(*words)
        assert refusal.problems[0].startswith("error (config): "), refusal.said
        assert because in refusal.said
        assert refusal.status == (255 if words[0] == "shell" else 2)


@pytest.fixture
def lab(
    tmp_path: Path,
    private_state: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Lab:
    monkeypatch.setenv("COLUMNS", "200")
    root = tmp_path / "lab"
    made = Lab(root, capsys)
    monkeypatch.chdir(root)
    return made


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("rnu tiny", "No such command 'rnu' (did you mean 'run'?)"),
        ("--nonsense", "No such option '--nonsense'"),
        ("run", "Missing argument 'RECIPE'"),
        ("run tiny --bord rk1", "No such option '--bord' (did you mean '--board'?)"),
        ("run tiny extra", "Got unexpected extra argument (extra)"),
        ("run tiny --board", "Option '--board' requires an argument"),
        ("build --target rk3568 --jobs many", "'many' is not a valid integer range"),
        ("build --target rk3568 --jobs 0", "0 is not in the range 1<=x<=512"),
        ("report --form pie", "'pie' is not one of 'table', 'experiment'"),
        (
            "schema recpe",
            "'recpe' is not one of 'recipe', 'evaluation', 'load-test', 'devices', 'models',",
        ),
        ("deploy --set repeats=2", "--set changes the recipes that are named"),
        ("virtual-board --port 70000", "70000 is not in the range 0<=x<=65535"),
        ("virtual-board --dir models/tiny.gguf", "'models/tiny.gguf' is a file"),
        ("init models/tiny.gguf", "'models/tiny.gguf' is a file"),
        ("--lab nowhere boards", "'nowhere' does not exist"),
        ("--lab models/tiny.gguf boards", "'models/tiny.gguf' is a file"),
        ("completion tcsh", "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    ],
)
def test_wrong_use(lab: Lab, line: str, because: str) -> None:
    refusal = lab.refuses(*line.split())
    assert refusal.status == 2
    assert refusal.problems[0].startswith("Error: ")
    assert because in refusal.said


@pytest.mark.parametrize("line", ["shell", "shell rk1", "shell rk1 --"])
def test_wrong_use_of_shell_is_no_status_of_the_board(lab: Lab, line: str) -> None:
    assert lab.refuses(*line.split()).status == 255


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (["run", "tiyn"], "no recipe 'tiyn' (did you mean 'tiny'?)"),
        (["run", "recipes/none.yaml"], "no recipe 'recipes/none.yaml'"),
        (["run", "models"], "no recipe 'models'"),
        (["run", ""], "no recipe ''"),
        (["run", LONG], f"cannot read {LONG}: File name too long"),
        (["run", "models/tiny.gguf"], "models/tiny.gguf:1: not UTF-8 text"),
        (["run", "tiny", "--board", "rk2"], "no board 'rk2' in devices.yaml (did you mean 'rk1'?)"),
        (["run", "tiny", "--board", ""], "no board ''"),
        (["deploy", "tiyn"], "no recipe 'tiyn' (did you mean 'tiny'?)"),
        (["shell", "rk2", "--", "ls"], "no board 'rk2' in devices.yaml (did you mean 'rk1'?)"),
        (["report"], "no runs in"),
        (["report", LONG], "File name too long"),
        (["build", "--target", "rk3569"], "no target 'rk3569' (did you mean 'rk3568'?)"),
        (["build", "--target", "../rk3568"], "no target '../rk3568'"),
        (["virtual-board", "--target", "rk3569"], "no target 'rk3569' (did you mean 'rk3568'?)"),
        (["virtual-board", "--target", "rk3568", "--emulator", "x"], "--target or --emulator"),
        (["init"], "devices.yaml exists already"),
        (["init", "new", "--target", "rk3569"], "no target 'rk3569' (did you mean 'rk3568'?)"),
        (["init", "new", "--address", "nope"], "--address nope: must be HOST:PORT"),
        (["init", "new", "--address", "a=h:99999"], "--address a=h:99999: must be HOST:PORT"),
        (["init", "new", "--address", "A B=h:1"], "a board's name must be a-z, 0-9"),
        (["init", "new", "--address", "a=h:1", "--address", "a=h:2"], "is called 'a' already"),
        (["init", "new", "--address", "a=h:1", "--address", "b=h:1"], "board 'a' has this address"),
    ],
)  # fmt: skip
def test_names_and_places_that_are_not_there(lab: Lab, words: list[str], because: str) -> None:
    lab.refuses_as_config(*words, because=because)


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (
            "--product lama.cpp",
            "no product 'lama.cpp' for target rk3568 (did you mean 'llama.cpp'?)",
        ),
        ("--tool llama-cly", "no tool 'llama-cly' of llama.cpp (did you mean 'llama-cli'?)"),
        ("--version clasic", "no version 'clasic' of llama.cpp (did you mean 'classic'?)"),
        ("--source nowhere", "no source folder nowhere"),
        ("--source models/tiny.gguf", "models/tiny.gguf is not a folder"),
        (f"--source {LONG}", "File name too long"),
        ("--git https://example.org/x.git", "--git and --ref belong together"),
        ("--git https://example.org/x.git --ref=", "--ref must be text"),
        ("--git x --ref y --source z", "--source and --git are both given"),
    ],
)
def test_builds_that_cannot_be(lab: Lab, words: str, because: str) -> None:
    lab.refuses_as_config("build", "--target", "rk3568", *words.split(), because=because)


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (("target", "taget"), "devices.yaml:3:5: boards.rk1.taget: unknown key (did you mean"),
        (("rk3568", "rk3569"), "devices.yaml:3:13: boards.rk1.target: no target 'rk3569' (did you"),
        (
            ("hdc", "usb"),
            "devices.yaml:4:23: boards.rk1.transport.kind: must be hdc, adb, ssh or local",
        ),
        (("tcp", "server"), "devices.yaml:4:42: boards.rk1.transport.address: unknown key; known"),
        (("tcp", "serial"), "devices.yaml:4:34: boards.rk1.transport.link: must be"),
        (("127.0.0.1:1", "127.0.0.1"), "devices.yaml:4:48: boards.rk1.transport.address: must be"),
        (("  rk1", "  RK 1"), "devices.yaml:2:3: boards.'RK 1': must be a-z, 0-9"),
        ((DEVICES, ""), "devices.yaml:1:1: the file is empty, expected a mapping"),
        ((DEVICES, "- rk1\n"), "devices.yaml:1:1: found a list, expected a mapping"),
        (("{kind", "[kind"), "devices.yaml:4:"),
        (("boards:", "\tboards:"), "devices.yaml:1:1: a tab is used for indentation"),
        ((DEVICES, DEVICES + DEVICES), "devices.yaml:5:1: boards: this key is given twice"),
        ((DEVICES, DEVICES + "default_board: rk2\n"), "default_board: no board 'rk2' (did you"),
        ((DEVICES, DEVICES + "    workdir: work\n"), ""),
    ],
)
def test_devices_yaml(lab: Lab, change: tuple[str, str], because: str) -> None:
    assert change[0] in DEVICES
    lab.write("devices.yaml", DEVICES.replace(*change))
    if not because:  # a relative workdir is fine where the board is on this host ...
        elsewhere = DEVICES.replace("127.0.0.1", "192.0.2.1")  # ... and nowhere else
        lab.write("devices.yaml", elsewhere + "    workdir: work\n")
        because = "devices.yaml:5:14: boards.rk1.workdir: must be an absolute path"
    lab.refuses_as_config("run", "tiny", because=because)


def test_no_devices_yaml(lab: Lab) -> None:
    (lab.root / "devices.yaml").unlink()
    lab.refuses_as_config("boards", because=f"no devices.yaml in {lab.root} or a folder above it")


def test_several_boards_and_no_default(lab: Lab) -> None:
    lab.write("devices.yaml", TWO_BOARDS)
    lab.refuses_as_config("run", "tiny", because="name one with --board: rk1 or rk2")


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (("name: tiny", "name: ../tiny"), "tiny.yaml:1:7: name: must be a-z, 0-9"),
        (("target: rk3568", "target: rk3569"), "tiny.yaml:2:9: target: no target 'rk3569' (did"),
        (("llama_cpp", "llama_ccp"), "tiny.yaml:3:16: engine.name: no engine 'llama_ccp' (did"),
        (("llama_cpp", "llama_cpp, task: chat"), "tiny.yaml:3:33: engine.task: no llama_cpp task"),
        (
            ("{file:", "{fil:"),
            "tiny.yaml:5:10: models.tiny.fil: unknown key (did you mean 'file'?)",
        ),
        (("{file: models/tiny.gguf}", "{}"), "tiny.yaml:5:9: models.tiny: a model comes from"),
        (("prompt: once upon\n", ""), "tiny.yaml:1:1: a prompt or a prompt_file is required"),
        (("tokens: 24", "tokenz: 24"), "parameters.tokenz: unknown key (did you mean 'tokens'?)"),
        (("tokens: 24", "tokens: many"), "tiny.yaml:7:22: parameters.tokens: must be a whole"),
        (("tokens: 24", 'tokens: "24"'), "tiny.yaml:7:22: parameters.tokens: must be a whole"),
        (("tokens: 24", "tokens: 0"), "tiny.yaml:7:22: parameters.tokens: must be at least 1"),
        (("tokens: 24", "tokens: 999"), "context 128 is too small for 999 tokens"),
        (("max_time: 10m", "max_time: ten"), "tiny.yaml:8:11: max_time: must be a duration such"),
        (("max_time: 10m", "max_time: 10"), "tiny.yaml:8:11: max_time: a duration needs a unit"),
        (("max_time: 10m\n", ""), "max_time: this key is required"),
        (("max_time: 10m", "repeats: -1"), "tiny.yaml:8:10: repeats: must be at least 1, not -1"),
        (("max_time", "max_tme"), "tiny.yaml:8:1: max_tme: unknown key (did you mean 'max_time'?)"),
        (("tiny: {", "tiny: {{"), "tiny.yaml:6:1: a ',' or '}' is missing"),
        (("prompt: once", "prompt: &p once: "), "tiny.yaml:6:"),
        (("prompt: once upon", "prompt: !!binary x"), "tiny.yaml:6:9: prompt: the tag"),
        ((RECIPE, RECIPE + "model: tinny\n"), "tiny.yaml:9:8: model: no model 'tinny' (did you"),
        ((RECIPE, RECIPE + "matrix: {model: [tinny]}\n"), "matrix.model[0]: no model 'tinny' (did"),
        ((RECIPE, RECIPE + "max_time: 1m\n"), "tiny.yaml:9:1: max_time: this key is given twice"),
        (
            (RECIPE, RECIPE + "gates: [{metric: tpot_p50, min: 1}]\n"),
            "tiny.yaml:9:18: gates[0].metric: no metric 'tpot_p50' (did you mean 'tpot_p50_ms'?)",
        ),
        ((RECIPE, RECIPE + "gates: [{metric: ratio, min: 2, max: 1}]\n"), "min 2 is above max 1"),
        ((RECIPE, RECIPE + "gates: [{metric: ratio, min: 2, where: {thread: 1}}]\n"), "threads"),
        ((RECIPE, "\0"), "tiny.yaml:1:1: a character that text files do not have"),
        ((RECIPE, "[" * 5000), "tiny.yaml:1:"),
        ((RECIPE, "x" * 1_100_000), "larger than 1000 kB"),
    ],
)
def test_recipes(lab: Lab, change: tuple[str, str], because: str) -> None:
    assert change[0] in RECIPE
    lab.write("recipes/tiny.yaml", RECIPE.replace(*change, 1))
    lab.refuses_as_config("run", "tiny", because=because)


@pytest.mark.parametrize(
    ("setting", "because"),
    [
        ("tokens", "--set tokens: must be KEY=VALUE"),
        ("=8", "--set =8: must be KEY=VALUE"),
        ("tokns=8", "--set tokns=8: the recipe has no 'tokns' (did you mean 'tokens'?)"),
        ("tokens=x", "--set tokens=x: parameters.tokens: must be a whole number, not 'x'"),
        ("engine.name=x", "--set engine.name=x: engine.name: no engine 'x'"),
        ("matrix.threads=[1", "--set matrix.threads=[1: a ',' or ']' is missing"),
        ("name.x=1", "--set name.x=1: name is not a mapping"),
        ("max_time=", "--set max_time=: max_time: this key is required"),
        ("prompt=\udcff", "--set 'prompt'=…: not UTF-8 text"),
        ("timeouts.trial=2", "--set timeouts.trial=2: timeouts.trial: a duration needs a unit"),
        ("model=tinny", "--set model=tinny: model: no model 'tinny' (did you mean 'tiny'?)"),
    ],
)
def test_settings(lab: Lab, setting: str, because: str) -> None:
    lab.refuses_as_config("run", "tiny", "--set", setting, because=because)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


@pytest.mark.parametrize(
    ("spoil", "because"),
    [
        (Path.unlink, "no model file {model}"),
        (cut, "{model}: the GGUF file is truncated: "),
        (lambda path: path.write_bytes(b""), "{model}: the file is empty"),
        (lambda path: path.write_bytes(b"GGUF"), "{model}: the GGUF file is truncated"),
        (lambda path: path.write_bytes(b"<!DOCTYPE html>"), "{model}: not a GGUF file: it begins"),
        (lambda path: (path.unlink(), path.mkdir()), "the model {model} is a directory"),
        (
            lambda path: write_tiny_gguf(path, weights=False),
            "{model}: a vocabulary without weights",
        ),
    ],
    ids=["missing", "cut short", "empty", "magic alone", "web page", "folder", "vocabulary"],
)
def test_models(lab: Lab, rk3568: None, spoil: Callable[[Path], object], because: str) -> None:
    model = lab.root / "models" / "tiny.gguf"
    spoil(model)
    lab.refuses_as_config("run", "tiny", because=because.format(model=model))


@pytest.mark.parametrize(
    ("setting", "because"),
    [
        ("prompt_file=none.txt", "none.txt: no such file"),
        ("prompt_file=models", "models: this is a directory, not a file"),
        ("prompt_file=models/tiny.gguf", "models/tiny.gguf:1: not UTF-8 text"),
        (f"prompt_file={LONG}", "cannot be read: File name too long"),
        ("prompt_file=empty.txt", "empty.txt: the prompt is empty"),
    ],
)
def test_prompt_files(lab: Lab, rk3568: None, setting: str, because: str) -> None:
    lab.write("empty.txt", "")
    lab.refuses_as_config("run", "tiny", "--set", "prompt=", "--set", setting, because=because)


def test_a_version_that_nobody_built(lab: Lab, rk3568: None) -> None:
    because = "no llama.cpp (nwe) is built for target rk3568; there is"
    lab.refuses_as_config("run", "tiny", "--set", "engine.version=nwe", because=because)


@pytest.mark.parametrize("command", ["run", "deploy"])
def test_a_recipe_for_other_boards(lab: Lab, command: str) -> None:
    lab.write("devices.yaml", DEVICES.replace("rk3568", "host-x86_64"))
    because = "recipe tiny is for target rk3568, board rk1 is a host-x86_64"
    lab.refuses_as_config(command, "tiny", because=because)


def test_a_cache_that_is_no_folder(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(lab.root / "devices.yaml"))
    lab.refuses_as_config("run", "tiny", because="no llama.cpp (new) is built")


RUNS = ("20260101T000000Z-tiny-aaaaaa", "20260102T000000Z-tiny-bbbbba")


@pytest.fixture
def damaged_runs(lab: Lab) -> None:
    for name in RUNS:
        (lab.root / "runs" / name).mkdir(parents=True)
        lab.write(f"runs/{name}/run.json", "{}")


@pytest.mark.parametrize(
    ("name", "because"),
    [
        ("2026", f"'2026' is the name of 2 runs: {', '.join(RUNS)}"),
        ("tiny-cccccc", f"the newest is {RUNS[1]}"),
        ("latest", f"{RUNS[1]}/run.json is not a record that this labctl knows"),
    ],
)
def test_runs(lab: Lab, damaged_runs: None, name: str, because: str) -> None:
    lab.refuses_as_config("report", name, because=because)


def test_damaged_runs_do_not_hide_the_others(
    lab: Lab, damaged_runs: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["runs"]) == 0
    listed, err = capsys.readouterr()
    said = err.splitlines()
    assert [line for line in said if line.startswith("damaged: ")] == said[:2]
    assert all(name in line for name, line in zip(reversed(RUNS), said, strict=False))
    assert sum(line.split()[4] == "damaged" for line in listed.splitlines()) == len(RUNS)
