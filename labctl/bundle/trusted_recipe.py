"""Take from a bundle's recipe only the parts that may run here.

A stranger's recipe names files and programs. These names are never used: models come from public
sources by their hash or from the user's files, prompt and files from the bundle itself, programs
from builds of this host.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from labctl.bundle import form
from labctl.bundle.form import ModelOrigin, ModelOrigins
from labctl.bundle.models import public_address
from labctl.bundle.reader import Bundle
from labctl.bundle.records import BundledRun
from labctl.config.lab import Board
from labctl.config.models import ModelSource
from labctl.config.recipe import Recipe
from labctl.config.references import known_references
from labctl.errors import ConfigError
from labctl.file_hashes import cached_sha256
from labctl.models.cache import cached
from labctl.suggestions import listed, unknown

#: Keys that are taken unchanged, after the recipe's model has checked them.
TAKEN = {
    *("name", "description", "engine", "parameters", "model", "matrix", "repeats", "warm_up"),
    *("repeats_until", "order", "order_seed", "conditions", "scheduling", "sampling_interval"),
    *("max_time", "min_tokens", "timeouts", "infra_retries", "gates", "tune"),
    "lora",  # its files are names in `files`
}
#: Keys that get another value here. `comparison` would apply the bundle's thresholds.
REPLACED = {"target", "models", "prompt", "prompt_file", "files", "references"}
LEFT = {"comparison"}
_LLAMA_KEYS = {"name", "task", "version"}
_PROGRAM_ENGINES = ("command", "nnrt", "mindspore_lite")


@dataclass(frozen=True)
class Missing:
    """A missing part, and advice to get it."""

    what: str
    cure: str


@dataclass
class TrustedRecipe:
    """A recipe that may run here. ``inputs``: entries of the bundle that it reads."""

    document: dict[str, Any]
    origins: tuple[ModelOrigin, ...]
    inputs: tuple[str, ...]
    missing: list[Missing] = field(default_factory=list)
    #: Changes of the board that the recipe asks for.
    cautions: list[str] = field(default_factory=list)


def trusted_recipe(
    bundle: Bundle,
    known: BundledRun,
    board: Board,
    *,
    folder: Path,
    files: Mapping[str, Path],
    inputs: Mapping[str, Path],
    program: Path | None,
    lab_root: Path | None,
) -> TrustedRecipe:
    """Return a bundle's recipe without its paths and programs.

    Args:
        bundle: has the prompt, the files and the models' sources.
        known: records of the bundle's run.
        board: runs the recipe; its target replaces the recipe's.
        folder: the caller puts the inputs into it before the run.
        files: the user's own files for models, by their keys.
        inputs: the user's own files for the recipe's `files`, by their keys.
        program: the user's own file for a program that labctl did not build.
        lab_root: folder with the references.yaml that applies.

    Raises NotABundle for a recipe that this labctl cannot read; ConfigError for a key that is not
    accepted from others, a program chosen by the recipe, and a user's file with another hash.
    """
    resolved = known.run.recipe_resolved
    if odd := sorted(set(resolved) - TAKEN - REPLACED - LEFT):
        raise _not_taken(bundle, f"the recipe's key {odd[0]!r}")
    document = {key: value for key, value in resolved.items() if key in TAKEN}
    document["target"] = board.target
    origins = _origins(bundle, known)
    trusted = TrustedRecipe(document, origins, tuple(_inputs(bundle)))
    document["engine"] = dict(_engine(bundle, known, program))
    document["models"] = {
        origin.key: source
        for origin in origins
        if (source := _model(origin, files, trusted.missing)) is not None
    }
    if odd := sorted(set(files) - {origin.key for origin in origins}):
        keys = listed([origin.key for origin in origins])
        raise ConfigError(f"--model {odd[0]}=…: no such model in the bundle; it has {keys}")
    _texts(bundle, known, trusted, folder, inputs)
    asked = resolved.get("references")
    if isinstance(asked, list) and asked:
        references = known_references(lab_root)
        document["references"] = [name for name in asked if name in references]
    _check_conditions(document, board, trusted.cautions)
    return trusted


def _origins(bundle: Bundle, known: BundledRun) -> tuple[ModelOrigin, ...]:
    """Return the models. Raises NotABundle unless they have the hashes of the run."""
    try:
        recipe = Recipe.model_validate(known.run.recipe_resolved)
        raw = bundle.read("models.json", most=form.MOST_MANIFEST_BYTES)
        origins = ModelOrigins.model_validate_json(raw, extra="ignore").models
        for origin in origins:
            ModelSource.model_validate_json(json.dumps(origin.source), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise bundle.refusal(f"its recipe or models.json: {where}: {first['msg']}") from error
    hashes = {origin.key: origin.sha256 for origin in origins}
    for model in known.run.models:
        if hashes.get(model.key) != model.sha256:
            raise bundle.refusal(f"models.json and the run have different hashes of {model.key}")
    if lost := [key for key in recipe.measured_models() if key not in hashes]:
        raise bundle.refusal(f"models.json has no source of {lost[0]}")
    return origins


def _engine(bundle: Bundle, known: BundledRun, program: Path | None) -> Iterator[tuple[str, Any]]:
    """Yield the engine's keys. Raises ConfigError for a key that starts a named program."""
    engine = known.run.recipe_resolved.get("engine")
    assert isinstance(engine, dict)  # the recipe's model has checked it
    name = engine.get("name")
    build = next((one for one in known.run.artifacts if one.product != "agent"), None)
    if name == "llama_cpp":
        if odd := sorted(set(engine) - _LLAMA_KEYS):
            raise _not_taken(bundle, f"engine.{odd[0]}")
        version = {} if build is None else {"version": build.version}
        yield from {**engine, **version}.items()
        return
    source = engine.get("program")
    if name not in _PROGRAM_ENGINES or not isinstance(source, dict):
        raise _not_taken(bundle, f"the engine {name!r}")
    if source.get("board") is not None:
        raise _not_taken(bundle, f"the program {source['board']} of a board")
    if source.get("file") is None:
        version = {} if build is None else {"version": build.version}
        yield from {**engine, **version}.items()
        return
    wanted = known.plan.program_sha256
    if program is None:
        raise ConfigError(
            f"the run used a program that labctl did not build: {source['file']}",
            hint=f"get the file with SHA-256 {wanted} from the bundle's author, then add"
            " --program FILE",
        )
    _require("--program", program, wanted)
    yield from {**engine, "program": {"file": str(program.resolve())}}.items()


def _model(
    origin: ModelOrigin, files: Mapping[str, Path], missing: list[Missing]
) -> dict[str, Any] | None:
    """Return the source of a model here, pinned to its hash; None if it is not available."""
    given = files.get(origin.key)
    if given is not None:
        _require(f"--model {origin.key}", given, origin.sha256)
        return {"file": str(given.resolve()), "lock": False}
    source = dict(origin.source)
    if hub := source.get("hub"):
        assert isinstance(hub, dict)
        pinned = {"sha256": origin.sha256} if origin.sha256 else {}
        return {"hub": {**hub, **({"revision": origin.commit} if origin.commit else {}), **pinned}}
    url = source.get("url")
    # A request to a machine in this network could trigger an action there.
    is_near = isinstance(url, dict) and public_address(str(url.get("address"))) is None
    if is_near or not origin.public:
        if origin.sha256 is not None and (present := cached(origin.sha256)) is not None:
            return {"file": str(present), "lock": False}
        if origin.sha256 is not None:  # without a hash, only a model made from it is needed
            missing.append(
                Missing(
                    f"the model {origin.key!r} ({origin.file or 'a file'}) has no public source",
                    f"get the file with SHA-256 {origin.sha256} from the bundle's author, then add"
                    f" --model {origin.key}=FILE",
                )
            )
        return None
    return source


def _require(option: str, path: Path, sha256: str | None) -> None:
    """Raise ConfigError unless a file of the user has the hash of the measured file."""
    if not path.is_file():
        raise ConfigError(f"{option}: no file {path}")
    found = cached_sha256(path)
    if found != sha256:
        raise ConfigError(
            f"{option}: {path} is not the measured file: its SHA-256 is {found}, not {sha256}",
            hint="another file gives other numbers, which cannot be compared",
        )


def _inputs(bundle: Bundle) -> Iterator[str]:
    yield from (name for name in bundle.names if name.startswith("inputs/"))


def _texts(
    bundle: Bundle,
    known: BundledRun,
    trusted: TrustedRecipe,
    folder: Path,
    inputs: Mapping[str, Path],
) -> None:
    """Set the prompt and the files, from the recipe itself, from the bundle or from the user."""
    resolved, document = known.run.recipe_resolved, trusted.document
    if resolved.get("prompt") is not None:
        document["prompt"] = prompt = str(resolved["prompt"])
        if hashlib.sha256(prompt.encode()).hexdigest() != known.plan.prompt_sha256:
            what = "the prompt is not the measured one: a name or path was left out"
            trusted.missing.append(Missing(what, "ask for a bundle made with --with-identity"))
    elif resolved.get("prompt_file") is not None:
        name = "inputs/prompt.txt"
        _same(bundle, name, known.plan.prompt_sha256, trusted.missing)
        document["prompt_file"] = str(folder / name)
    files = resolved.get("files") or {}
    assert isinstance(files, dict)  # the recipe's model has checked it
    if unknown_keys := sorted(set(inputs) - set(files)):
        raise ConfigError(
            f"--file {unknown('file', unknown_keys[0], files, where=' in the recipe')}"
        )
    found = {}
    for key in files:
        name, sha256 = f"inputs/files/{key}", known.plan.files_sha256.get(key)
        if (given := inputs.get(key)) is not None:
            _require(f"--file {key}", given, sha256)
            found[key] = str(given.resolve())
            continue
        _same(bundle, name, sha256, trusted.missing, f", then add --file {key}=FILE")
        found[key] = str(folder / name)
    document["files"] = found


def _same(
    bundle: Bundle, name: str, sha256: str | None, missing: list[Missing], way: str = ""
) -> None:
    """Note a missing input. Raises NotABundle if it is not the measured one."""
    entry = bundle.manifest.entries.get(name)
    if entry is None:
        what = f"{name} is not in the bundle"
        missing.append(Missing(what, f"ask its author for the file with SHA-256 {sha256}{way}"))
    elif entry.sha256 != sha256:
        raise bundle.refusal(f"{name} is not the file that the run read")


def _check_conditions(document: Mapping[str, Any], board: Board, cautions: list[str]) -> None:
    """Note changes of the board. Raises ConfigError if this host would be changed."""
    conditions = document.get("conditions") or {}
    scheduling = document.get("scheduling") or {}
    changes = []
    if stopped := conditions.get("stop_processes"):
        changes.append(f"stops while it measures: {', '.join(map(str, stopped))}")
    keys = ("governor", "frequency_mhz", "memory_governor", "screen_off", "drop_caches")
    changes += [f"sets {key}: {conditions[key]}" for key in keys if conditions.get(key)]
    if (nice := scheduling.get("nice")) is not None and nice < 0:
        changes.append(f"runs before other programs, nice {nice}")
    space = (document.get("tune") or {}).get("space") or {}
    axes = document.get("matrix") or {}, space
    values = [(document.get("parameters") or {}).get("prio"), *(axis.get("prio") for axis in axes)]
    prios = [one for value in values for one in (value if isinstance(value, list) else [value])]
    if raised := sorted({one for one in prios if one not in (None, 0)}, key=str):
        changes.append(f"runs before other programs, prio {listed(map(repr, raised))}")
    if changes and board.transport.is_this_host:
        raise ConfigError(
            f"board {board.name} is this host, and the recipe {changes[0]}",
            hint="reproduce it on a board other than this host",
        )
    cautions += changes


def _not_taken(bundle: Bundle, what: str) -> ConfigError:
    return ConfigError(
        f"{what} is refused: it could start a program chosen by the bundle",
        hint=(
            f"read it with labctl show {bundle.path}/recipe.resolved.yaml, copy the"
            " parts that you trust into your own recipe, then `labctl run` it"
        ),
    )
