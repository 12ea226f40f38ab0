"""Packages that bring engines: looked at by name, imported when asked for, told when broken."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from third_party import SOURCE, write_package

import labctl
from labctl.cli.root import run_cli
from labctl.config.recipe import EngineChoice
from labctl.config.recipe_parts import Variant
from labctl.engines.base import Engine, EngineBase, Roles
from labctl.engines.registry import engine_names, engine_tasks, make_engine
from labctl.errors import ConfigError
from labctl.records.trial import Workload
from labctl.runs.planning.trials import cut

GOOD = (SOURCE / "abacus_engine.py").read_text()
NAMED_OTHER = GOOD.replace('name = "abacus"', 'name = "other"')
PACKAGE = Path(labctl.__file__).parent
#: Names of parameters that mean something to the lab itself, too.
SHARED_NAMES = {*Workload.model_fields, "temperature", "warmup"}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


BROKEN = {
    "it cannot be imported": ("import nothing_like_it", "ModuleNotFoundError: No module named"),
    "it raises anything": ("raise KeyboardInterruptish", "NameError"),
    "it ends the interpreter's trust": ("1 / 0", "ZeroDivisionError: division by zero"),
    "it ends the program": ("raise SystemExit(0)", "SystemExit: 0"),
    "it lacks what is named": ("", "AttributeError: module 'broken_one' has no attribute"),
    "it is no tuple": ("ENGINES = 3", "is not a tuple of engine classes"),
    "it has no engine": ("ENGINES = ()", "is not a tuple of engine classes"),
    "it is no engine": ("ENGINES = (int,)", "is not a tuple of engine classes"),
    "a method is missing": (
        NAMED_OTHER.replace("def parse(", "def parse_it("), "Abacus does not define parse",
    ),
    "another name": (GOOD, "Abacus calls itself 'abacus'"),
    "no task": (NAMED_OTHER.replace('    task = "count"\n', ""), "Abacus.task is no text"),
    "two of one task": (
        NAMED_OTHER.replace("(Abacus,)", "(Abacus, Abacus)"), "have the same task",
    ),
    "a role of nothing": (
        NAMED_OTHER.replace('threads="n_workers"', 'threads="n_hands"'),
        "gives a role to 'n_hands', which is not a parameter",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("code", "why"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_package_is_one_error_that_names_it(
    code: str, why: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(site, "broken-one", code)
    monkeypatch.delitem(sys.modules, "broken_one", raising=False)
    assert "other" in engine_names()
    assert make_engine(EngineChoice(name="llama_cpp")).task == "completion"
    with pytest.raises(ConfigError) as refused:
        make_engine(EngineChoice(name="other"))
    message = str(refused.value)
    assert message.startswith("the engine 'other' of broken-one 0.1 cannot be used: ")
    assert why in message
    assert refused.value.hint is not None
    monkeypatch.delitem(sys.modules, "broken_one", raising=False)


def test_a_name_that_two_packages_offer_is_nobodys(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_package(site, "one-engine", GOOD)
    write_package(site, "two-engine", GOOD, version="3.4")
    write_package(site, "rogue", GOOD, name="nnrt")
    for name, owners in [
        ("other", "one-engine 0.1 and two-engine 3.4"),
        ("nnrt", "labctl itself and rogue 0.1"),
    ]:
        with pytest.raises(ConfigError) as refused:
            engine_tasks(name)
        assert str(refused.value) == f"several packages provide the engine '{name}': {owners}"
    assert list(engine_tasks("command")) == ["run"]
    assert run_cli(["schema", "recipe"]) == 0
    told = capsys.readouterr()
    assert "llama_cpp_bench" in told.out
    assert told.err.count("left out: several packages provide") == 2


def test_only_names_are_looked_at_until_an_engine_is_used(site: Path) -> None:
    """By a process of its own: what is imported here, other tests decide."""
    write_package(site, "slow-one", "raise SystemExit('imported')")
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "import labctl.engines, labctl.runs.inputs.prepare\n"
        "assert 'other' in labctl.engines.registry.engine_names()\n"
        "kinds = ('llama_cpp', 'command', 'openharmony')\n"
        "assert not [m for m in sys.modules if m.startswith(tuple(\n"
        "    f'labctl.engines.{kind}' for kind in kinds))], sys.modules\n"
        "labctl.engines.registry.engine_tasks('command')\n"
        "assert 'labctl.engines.llama_cpp' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_plan_changes_what_the_engine_calls_its_tokens_and_its_warm_up() -> None:
    variant = Variant("v", "m", {"tokens": 3, "warmup": 1, "n_beads": 9, "prime": True})
    roles = Roles(tokens="n_beads", warm_up="prime", threads="tokens")
    assert cut(variant, 4, False, roles).parameters == {
        "tokens": 3, "warmup": 1, "n_beads": 4, "prime": False,
    }  # fmt: skip
    assert cut(variant, None, False, Roles()) == variant
    assert roles.workload(variant.parameters).model_dump(exclude_none=True) == {
        "threads": 3, "tokens": 9,
    }  # fmt: skip


def test_the_page_about_engines_names_what_there_is() -> None:
    text = (PACKAGE.parent / "docs" / "building.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", text, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"\w+", row)}
    assert {"keys_model", "roles", "parse"} <= named
    known = {*vars(Engine), *vars(EngineBase), *EngineBase.__annotations__}
    assert named - known == set()
    needed = Engine.__abstractmethods__
    assert needed - named == set()


@cache
def own_parameters() -> set[str]:
    """Names of parameters that only an engine of labctl may know."""
    names = {
        name
        for engine in engine_tasks("llama_cpp").values()
        for name in engine.parameters_model.model_fields
    }
    return names - SHARED_NAMES


def engine_words(path: Path) -> list[str]:
    """What a module says that only an engine may know: in text, comments and imports."""
    text = path.read_text()
    names = engine_names()
    programs = ("llama-bench", "llama-cli", "llama-completion", "llama-perplexity", "llama-server")
    found = [w for w in (*names, *programs) if w != "command" and re.search(rf"\b{w}\b", text)]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and re.match(
            r"labctl\.engines\.(llama_cpp|command|openharmony)", node.module or ""
        ):
            found.append(node.module or "")
        if isinstance(node, ast.Constant) and node.value in own_parameters():
            found.append(str(node.value))
        if isinstance(node, ast.Compare) and re.search(
            r"\bengine\.(name|task)|['\"]command['\"]", ast.unparse(node)
        ):
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    "folder", ["config", "runs", "performance", "results", "report", "compare"]
)
def test_nothing_but_the_engines_knows_an_engine(folder: str) -> None:
    modules = sorted((PACKAGE / folder).rglob("*.py"))
    assert modules
    found = {str(path): words for path in modules if (words := engine_words(path))}
    assert found == {}


def test_an_engines_name_would_be_seen(tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    for line in (
        'if recipe.engine.name == "other": pass',
        'wanted = {"name": "llama_cpp"}',
        "from labctl.engines.command import Command",
        'x = kind in ("command", "run")',
        "# as llama-bench does",
        'cache = parameters.get("cache_type_k")',
    ):
        module.write_text(line + "\n")
        assert engine_words(module), line
