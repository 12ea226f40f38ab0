"""JSON Schemas: an editor and the loader say the same of a document."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from labctl import package_data
from labctl.cli.root import run_cli
from labctl.config.init_files import devices_yaml
from labctl.config.lab import lab_model
from labctl.config.recipe_parts import recipe_kind
from labctl.config.schema import KINDS, Kind, document_model
from labctl.config.schema import json_schema as schema_of
from labctl.config.yaml.document import Document
from labctl.config.yaml.loader import Value, read_yaml
from labctl.engines.registry import recipe_model
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.evaluation.serving.recipe import LoadTestRecipe
from labctl.farm.batch_plan import BatchPlan
from labctl.farm.nightly.plan_file import NightPlan
from labctl.transport.built_in import TRANSPORTS

Schema = dict[str, Any]

KEYWORDS = {
    *("$schema", "$defs", "$ref", "title", "description", "default", "examples", "discriminator"),
    *("type", "const", "enum", "pattern", "minimum", "maximum", "exclusiveMinimum"),
    "exclusiveMaximum",
    *("anyOf", "oneOf", "items", "minItems", "maxItems", "properties", "patternProperties"),
    *("additionalProperties", "required", "minProperties"),
}
_OPEN_ENDS = (("Minimum", -1), ("Maximum", 1))
_TYPES = {"string": str, "boolean": bool, "null": type(None), "object": dict, "array": list}


def json_schema(kind: Kind) -> Schema:
    """The schema as the command prints it."""
    models = {
        "recipe": lambda: recipe_model()[0],
        "evaluation": lambda: EvaluationRecipe,
        "load-test": lambda: LoadTestRecipe,
        "devices": lambda: lab_model(TRANSPORTS),
        "nightly": lambda: NightPlan,
        "batch": lambda: BatchPlan,
    }
    return schema_of(kind, models[kind]() if kind in models else None)


def accepts(value: Value, schema: Schema, root: Schema) -> bool:
    """The part of JSON Schema, draft 2020-12, that our schemas use; anything else is a failure."""
    unknown = set(schema) - KEYWORDS
    assert not unknown, f"teach this test {unknown}"
    if "$ref" in schema and not accepts(value, root["$defs"][schema["$ref"].split("/")[-1]], root):
        return False
    branches = [accepts(value, branch, root) for branch in schema.get("anyOf", [])]
    exactly = [accepts(value, branch, root) for branch in schema.get("oneOf", [])]
    if (branches and not any(branches)) or (exactly and sum(exactly) != 1):
        return False
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return False
    return _is_type(value, schema.get("type")) and _fits(value, schema, root)


def _is_type(value: Value, kind: str | None) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind in (None, "number"):
        return kind is None or number
    if kind == "integer":
        return number and int(value) == value  # type: ignore[arg-type]
    return isinstance(value, _TYPES[kind])


def _fits(value: Value, schema: Schema, root: Schema) -> bool:
    if isinstance(value, str):
        return re.search(schema.get("pattern", ""), value) is not None
    if isinstance(value, list):
        sized = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        return sized and all(accepts(v, schema.get("items", {}), root) for v in value)
    if isinstance(value, dict):
        enough = len(value) >= schema.get("minProperties", 0)
        complete = set(schema.get("required", ())) <= set(value)
        return (
            enough
            and complete
            and all(_property_fits(k, v, schema, root) for k, v in value.items())
        )
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        above, below = (schema.get(f"exclusive{end}", value + n) for end, n in _OPEN_ENDS)
        return low <= value <= high and above < value < below
    return True


def _property_fits(key: str, value: Value, schema: Schema, root: Schema) -> bool:
    if key in schema.get("properties", {}):
        return accepts(value, schema["properties"][key], root)
    for pattern, member in schema.get("patternProperties", {}).items():
        if re.search(pattern, key):
            return accepts(value, member, root)
    rest = schema.get("additionalProperties", True)
    return accepts(value, rest, root) if isinstance(rest, dict) else bool(rest)


def valid(text: str, kind: Kind) -> bool:
    schema = json_schema(kind)
    return accepts(read_yaml(text).value, schema, schema)


def _asks(path: Path) -> bool:
    """Evaluations and load tests have schemas of their own."""
    document = Document.read(path)
    return recipe_kind(document) != "timing"


SHIPPED = [
    *((path, "recipe") for path in sorted(package_data.RECIPES.glob("*.yaml")) if not _asks(path)),
    *((path, "target") for path in sorted(package_data.TOOLCHAINS.glob("*/target.yaml"))),
]


@pytest.mark.parametrize(
    ("path", "kind"),
    SHIPPED,
    ids=lambda p: f"{p.parent.name}/{p.name}" if isinstance(p, Path) else p,
)
def test_every_shipped_file_fits_its_schema(path: Path, kind: Kind) -> None:
    assert valid(path.read_text(), kind)


def test_the_first_devices_yaml_fits_its_schema() -> None:
    found = {
        "rk1": {"link": "tcp", "address": "192.168.1.20:5555"},
        "rk2": {"link": "server", "key": "7001005458323933328a01ce1c2f3900"},
    }
    assert valid(devices_yaml(found), "devices")


RECIPE = (package_data.RECIPES / "q8_q2_latency.yaml").read_text()
COMMAND = (package_data.RECIPES / "command_json_lines.yaml").read_text()
DEVICES = devices_yaml()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("recipe", RECIPE + "repeat: 3\n"),
        ("recipe", RECIPE.replace("max_time: 20m", "max_time: 20")),
        ("recipe", RECIPE.replace("max_time: 20m", "max_time: 20 minutes")),
        ("recipe", RECIPE.replace("max_time: 20m", "")),
        ("recipe", RECIPE.replace("repeats: 1", "repeats: 0")),
        ("recipe", RECIPE.replace("Q8_0", "Q8_O")),
        ("recipe", RECIPE.replace("requantize: true", "requantise: true")),
        ("recipe", RECIPE.replace("tokens: 32", "tokens: [32]")),
        ("recipe", RECIPE.replace("task: completion", "task: complete")),
        ("recipe", RECIPE.replace("task: completion", "tusk: completion")),
        ("recipe", RECIPE.replace("name: llama_cpp", "name: command")),
        ("recipe", COMMAND.replace("json_lines:", "json_line:")),
        ("recipe", RECIPE.replace("  q8_0:", "  Q8 0:")),
        ("recipe", RECIPE.replace("{from: base, quantization: Q8_0, requantize: true}", "{}")),
        ("devices", DEVICES.replace("kind: hdc", "kind: ssh")),
        ("devices", DEVICES.replace("link: tcp", "link: server")),
        ("devices", DEVICES.replace("127.0.0.1:5555", "127.0.0.1")),
        ("devices", DEVICES.replace("workdir: virtual-board/", "workdir: ../")),
        ("devices", DEVICES.replace("workdir:", "wrkdir:")),
        ("devices", DEVICES.replace("  virtual:", "  Virtual Board:")),
    ],
)  # fmt: skip
def test_what_the_loader_refuses_an_editor_underlines(kind: Kind, text: str) -> None:
    assert text not in (RECIPE, COMMAND, DEVICES)
    assert not valid(text, kind)


@pytest.mark.parametrize(("kind", "page"), [("nightly", "nightly.md"), ("batch", "queue.md")])
def test_plans_are_checked_as_labctl_checks_them(kind: Kind, page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    plan = re.findall(r"```yaml\n(name:.*?)```", text, re.DOTALL)[0]
    assert valid(plan, kind)
    assert f"labctl schema {kind}" in text
    for mistake in (
        plan.replace("name:", "nam:"),
        plan.replace("recipe", "recip"),
        plan + "tme: 8\n",
    ):
        assert not valid(mistake, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_described_and_none_unknown_is_allowed(kind: Kind) -> None:
    schema = json_schema(kind)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for owner, model in [(kind, schema), *schema["$defs"].items()]:
        if "properties" not in model:
            continue
        assert model["additionalProperties"] is False, owner
        for key, member in model["properties"].items():
            assert member.get("description"), f"{owner}.{key}"


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_prints_the_schema(kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["schema", kind]) == 0
    printed = json.loads(capsys.readouterr().out)
    # The names of figures are known above the floor that has the models.
    for part in ("Gate", "Precision", "LoadGate"):
        if found := printed.get("$defs", {}).get(part):
            assert {"tpot_ms", "tpot_p99_ms"} & {*found["properties"]["metric"].pop("enum")}
    assert printed == json_schema(kind)


def test_the_command_refuses_other_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["schema", "board"]) == 2
    assert (
        "'recipe', 'evaluation', 'load-test', 'devices', 'models', 'references', 'target',"
        " 'nightly', 'batch'" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k not in ("evaluation", "load-test", "nightly", "batch")]
)
def test_every_kind_has_a_model(kind: Kind) -> None:
    assert document_model(kind).model_config["extra"] == "forbid"
