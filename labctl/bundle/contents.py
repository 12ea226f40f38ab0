"""Collect the content of a bundle: a run's files, and everything else that a stranger needs.

The programs that ran are described by their manifests, bills of materials, specs and patches.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from labctl.board.probe_files import all_probes, probe_path
from labctl.build.artifact import Artifact, list_artifacts
from labctl.build.plan import other_source
from labctl.build.source import find_patches
from labctl.build.spec import find_spec
from labctl.bundle.form import name_problem
from labctl.bundle.models import model_origins
from labctl.bundle.redact import Redactor
from labctl.config.lab import FILE_NAME
from labctl.config.recipe import Recipe
from labctl.config.references import REFERENCES_FILE
from labctl.errors import ConfigError
from labctl.files import host_writes
from labctl.records.probe import BoardProbe
from labctl.records.run import ArtifactIdentity, PlanRecord, RunRecord
from labctl.report.formats import result_text
from labctl.report.page.build import build_report
from labctl.report.page.html import html
from labctl.report.page.language import Language
from labctl.report.references import reference_rows
from labctl.report.status import run_status
from labctl.runs.record.directory import ANNOTATIONS, LINES, RECIPE, RECORD, TUNING, RunDirectory
from labctl.runs.record.disk import COMPRESSED, reading
from labctl.units import size


def _build_entries(
    identity: ArtifactIdentity, lab_root: Path, missing: list[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield the files of one build, below ``build/``; add unavailable ones to ``missing``.

    The current spec and patches are used: they are included only if a build would still use the
    same source.
    """
    artifact = next((a for a in list_artifacts() if a.manifest.key == identity.key), None)
    what = f"{identity.product} {identity.version} for {identity.target}"
    if artifact is None:
        missing.append(f"the manifest of {what} is no longer on the host that made the bundle")
        return
    below = f"build/{identity.product}"
    manifest = artifact.manifest
    yield f"{below}/manifest.json", manifest.model_dump_json(indent=2).encode()
    materials = [one.model_dump(mode="json") for one in manifest.materials]
    yield f"{below}/bill-of-materials.json", json.dumps({"materials": materials}).encode()
    try:
        if changed := other_source(artifact, lab_root):
            missing.append(f"{what} was built {changed}: its build spec is left out")
            return
        yield from _spec(below, artifact, lab_root)
    except ConfigError as error:
        missing.append(f"the build spec of {what} is left out: {error.message}")


def _spec(below: str, artifact: Artifact, lab_root: Path) -> Iterator[tuple[str, bytes]]:
    manifest = artifact.manifest
    _, path = find_spec(manifest.target, manifest.product, lab_root)
    yield f"{below}/spec.yaml", path.read_bytes()
    known = {patch.sha256 for patch in manifest.source.patches}
    for patch in find_patches(manifest.target, manifest.product, manifest.version, lab_root):
        if patch.sha256 in known:
            yield f"{below}/patches/{patch.sha256[:12]}-{patch.path.name}", patch.path.read_bytes()


#: Files of the run directory that are part of the run; other files belong to this host.
_RUN_FILES = ("run.json", "plan.json", TUNING, "end.json", "events.jsonl", "records.jsonl")
#: Files with positions and times in ns only: no identities.
_NUMBERS = ("timeline", "counters")
#: Larger files of a recipe are not included, only named with their hash.
_MOST_FILE_BYTES = 16 << 20
_README = """\
This is one measurement, made by labctl: what was measured, with what, on which board, and every raw
log. Nothing in here has to be executed to read it.

    labctl show FILE          what it is, whether it is whole, and who signed it
    labctl import FILE        beside your own runs, to report, show and compare
    labctl reproduce FILE     measure it again on a board of yours, and compare
"""


@dataclass
class Contents:
    """The files of one bundle. ``missing``: files that could not be included, with reasons."""

    directory: RunDirectory
    lab_root: Path
    #: None: nothing is left out.
    redactor: Redactor | None
    missing: list[str] = field(default_factory=list)

    def entries(self) -> Iterator[tuple[str, bytes]]:
        """Yield every entry. Raises ConfigError, HostError."""
        with tempfile.TemporaryDirectory(prefix="labctl-bundle-") as folder:
            yield from self._entries(Path(folder))

    def _entries(self, published: Path) -> Iterator[tuple[str, bytes]]:
        """Yield every entry; fill ``published`` as a lab that has only the bundle's data."""
        run = self.directory.run()
        recipe = Recipe.of_run(run)
        yield "README.txt", _README.encode()
        for name, text in self._written(run):
            yield name, self._text(name, text)
        origins = model_origins(run, recipe, self.lab_root)
        yield "models.json", self._json("models.json", origins.model_dump_json().encode())
        if (probe := nearest_probe(self.lab_root, run)) is not None:
            document = self._json("probe.json", probe.model_dump_json().encode())
            written = BoardProbe.model_validate_json(document)
            _write(probe_path(published, written), document)
            yield "probe.json", document
        else:
            self.missing.append(f"board {run.board} was never probed: its ceilings are unknown")
        yield from self._inputs(recipe, self.directory.plan())
        for artifact in run.artifacts:
            for name, content in _build_entries(artifact, self.lab_root, self.missing):
                is_json = name.endswith(".json")
                yield name, self._json(name, content) if is_json else self._raw_text(name, content)
        below = published / "runs" / run.id
        for name, content in self._run_files():
            _write(below / name.removeprefix("run/"), content)
            yield name, content
        yield from self._report(published, RunDirectory(below))

    def _written(self, run: RunRecord) -> Iterator[tuple[str, str]]:
        """Yield the recipe as written and as run."""
        path = self.directory.path / RECIPE
        if path.is_file():
            yield "recipe.yaml", path.read_text(encoding="utf-8")
        else:
            self.missing.append("the recipe as written: the run did not keep it")
        resolved = yaml.safe_dump(run.recipe_resolved, sort_keys=False, allow_unicode=True)
        changed = "".join(f"# {setting}\n" for setting in run.settings)
        yield "recipe.resolved.yaml", changed + resolved

    def _inputs(self, recipe: Recipe, plan: PlanRecord) -> Iterator[tuple[str, bytes]]:
        """Yield the prompt and the files of the recipe, if unchanged since the run.

        They were measured in this form, so no identities are removed.
        """
        if recipe.prompt_file is not None:
            prompt = self._same(recipe.prompt_file, plan.prompt_sha256, "the prompt_file")
            if prompt is not None:
                yield "inputs/prompt.txt", prompt
        for key, path in sorted(recipe.files.items()):
            content = self._same(path, plan.files_sha256.get(key), f"the file {key!r}")
            if content is not None:
                yield f"inputs/files/{key}", content

    def _same(self, path: str, sha256: str | None, what: str) -> bytes | None:
        """Return a file of the recipe; None if it is missing, changed or large."""
        file = self.lab_root / path
        try:
            large = file.stat().st_size > _MOST_FILE_BYTES
            content = b"" if large else file.read_bytes()
        except OSError as error:
            self.missing.append(f"{what} of the recipe: {error.strerror}")
            return None
        if large:
            self.missing.append(
                f"{what} of the recipe: more than {size(_MOST_FILE_BYTES)}; its SHA-256 is {sha256}"
            )
        elif hashlib.sha256(content).hexdigest() != sha256:
            self.missing.append(f"{what} of the recipe: it was changed since the run")
        else:
            return content
        return None

    def _run_files(self) -> Iterator[tuple[str, bytes]]:
        root = self.directory.path
        for name in _RUN_FILES:
            for path in (root / name, root / f"{name}{COMPRESSED}"):
                if path.is_file():
                    yield f"run/{name}", self._json(f"run/{name}", _plain_file(path)[1])
                    break
        if (root / ANNOTATIONS).is_file():
            yield f"run/{ANNOTATIONS}", self._annotations()
        for path in sorted((root / "trials").rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            file, content = _plain_file(path)  # compressed files cannot be searched for identities
            name = f"run/{path.parent.relative_to(root)}/{file}"
            if problem := name_problem(name):
                self.missing.append(f"a file of the run directory has {problem}")
                continue
            if file.endswith(".json"):
                yield name, self._json(name, content)
            elif self.redactor is None or path.name in _NUMBERS:
                yield name, content
            else:
                yield name, self.redactor.raw(name, content)

    def _annotations(self) -> bytes:
        """Return the tags, without the note, which is internal to the lab."""
        annotations = self.directory.annotations()
        if self.redactor is not None and annotations.note:
            self.missing.append("the note on the run is left out")
            annotations = annotations.model_copy(update={"note": None})
        return self._json(f"run/{ANNOTATIONS}", annotations.model_dump_json().encode())

    def _report(self, published: Path, directory: RunDirectory) -> Iterator[tuple[str, bytes]]:
        """Yield the report and the tables, made from the bundle's data only."""
        _write(published / FILE_NAME, b"boards: {}\n")
        if (own := self.lab_root / REFERENCES_FILE).is_file():
            text = own.read_text(encoding="utf-8")
            _write(published / REFERENCES_FILE, self._text(REFERENCES_FILE, text))
        words = Language("en")
        page = html(build_report([directory], words), words)
        yield "report.html", page.encode()
        run, trials, end = directory.run(), directory.trials(), directory.end()
        quoted = reference_rows(run, published)
        gates = end.gates if end else ()
        for form, name in (("md", "report.md"), ("wide", "report.txt")):
            text = result_text(
                form, run, trials, gates, Path(), references=quoted, status=run_status(directory)
            )
            yield name, text.encode()

    def _json(self, name: str, content: bytes) -> bytes:
        redactor = self.redactor or Redactor(())
        is_lines = name.endswith(".jsonl")
        return content if self.redactor is None else redactor.json(name, content, lines=is_lines)

    def _text(self, name: str, text: str) -> bytes:
        return (text if self.redactor is None else self.redactor.text(name, text)).encode()

    def _raw_text(self, name: str, content: bytes) -> bytes:
        return self._text(name, content.decode(errors="surrogateescape"))


def nearest_probe(lab_root: Path, run: RunRecord) -> BoardProbe | None:
    """Return the board's last probe before the run, or else the first probe after it."""
    probes = all_probes(lab_root, run.board, run.facts.execution)
    earlier = [probe for probe in probes if probe.taken <= run.started]
    return earlier[0] if earlier else (probes[-1] if probes else None)


def _write(path: Path, content: bytes) -> None:
    """Write a temporary file, read it back and remove it. Raises HostError."""
    with host_writes(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _plain_file(path: Path) -> tuple[str, bytes]:
    """Return name and content of a file, uncompressed (see :meth:`RunDirectory.compress`).

    Raises OSError, and ConfigError if it is damaged.
    """
    name = path.name
    if name not in (f"{RECORD}{COMPRESSED}", f"{LINES}{COMPRESSED}"):
        return name, path.read_bytes()
    return name.removesuffix(COMPRESSED), reading(path, lambda content, _: content)
