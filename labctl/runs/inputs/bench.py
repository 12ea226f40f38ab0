"""``labctl bench``: a recipe from model files, otherwise equal to the shipped q8_latency."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from labctl import package_data
from labctl.config.models import load_catalogue
from labctl.config.yaml.document import Document
from labctl.config.yaml.loader import Value, plain_kind
from labctl.errors import ConfigError
from labctl.files import host_reads
from labctl.models.references import find_reference
from labctl.suggestions import did_you_mean
from labctl.text_types import LONGEST_NAME, plain_name

BASE = "q8_latency.yaml"
_NAME = "bench"
_REMOTE = re.compile(r"(hf|ms|pypi|https?):")


#: Entries of a recipe's ``models``, by key.
Entries = dict[str, dict[str, Any]]


def model_entries(models: Sequence[str], lab_root: Path) -> Entries:
    """Return the recipe's entries for models named by a person, in the same order.

    Args:
        models: paths of GGUF files, references (``hf:…``) or names of the lab's models.
        lab_root: base folder of the recipe's relative paths.

    Raises ConfigError for a name that is neither a file nor a model of the lab; for a repository of
    a hub, the errors of :func:`labctl.models.references.find_reference`.
    """
    entries: Entries = {}
    for text in models:
        entry = _entry(text, lab_root)
        if entry in entries.values():
            raise ConfigError(f"the model {text} is given twice")
        named = entry["hub"]["file"] if "hub" in entry else text
        if _REMOTE.match(text):
            named = re.split(r"[#@]", named)[0]
        entries[_key(named, entries)] = entry
    return entries


def bench_document(entries: Entries, target: str) -> Document:
    """Return the recipe that measures models with q8_latency's prompt, parameters and repeats.

    Several models become variants of one run.
    """
    document = Document.read(package_data.RECIPES / BASE)
    changes: dict[str, Value] = {
        "name": _NAME,
        "description": f"Time per token of {len(entries)} model{'s' * (len(entries) > 1)}",
        "target": target,
        "models": dict(entries),
    }
    document.text = ""  # the rest was not written by a person
    if len(entries) > 1:
        changes["matrix"] = {"model": list(entries)}
        document.remove(("model",), "labctl bench")
    else:
        changes["model"] = next(iter(entries))
    for key, value in changes.items():
        document.override((key,), value, "labctl bench")
    return document


def recipe_text(document: Document) -> str:
    """Write a document as a recipe file that is read back with the same values."""
    body = yaml.dump(document.value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return f"# Made by labctl bench --print-recipe. Run it with: labctl run FILE\n{body}"


class _Dumper(yaml.SafeDumper):
    """Quotes each text that YAML 1.1 or labctl's loader (YAML 1.2) reads as another type.

    Aliases are written out: a recipe is read by people.
    """

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Write each value in place, also if it occurs several times."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quote a text with unusual line breaks: only escapes are read back unchanged."""
    plain = plain_kind(text) == "str" and all(c.isprintable() or c == "\n" for c in text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if plain else '"')


_Dumper.add_representer(str, _represent_text)


def _entry(text: str, lab_root: Path) -> dict[str, Any]:
    """Return the recipe's entry for a model named by a person."""
    if _REMOTE.match(text):
        return find_reference(text, lab_root)
    path = Path(text)
    with host_reads(text):
        if path.is_file():
            whole = path.resolve()
            within = whole.is_relative_to(lab_root)
            # Not locked: people usually quantize a file in place and measure it again.
            return {"file": str(whole.relative_to(lab_root) if within else whole), "lock": False}
    known = load_catalogue(lab_root).models
    if text in known:
        return {"lab": text}
    raise ConfigError(
        f"no file {text}, and no model of the lab has this name{did_you_mean(text, known)}",
        hint="name a GGUF file, hf:OWNER/NAME/FILE.gguf, or a model of `labctl models list`",
    )


def _key(text: str, taken: Entries) -> str:
    """Return a model's name in recipe and result, from its file's name."""
    name = text.rstrip("/").rpartition("/")[2].lower()
    key = plain = plain_name(name.removesuffix(".gguf")) or "model"
    number = 2
    while key in taken:
        suffix = f"-{number}"
        key, number = plain[: LONGEST_NAME - len(suffix)] + suffix, number + 1
    return key
