"""Models derived by a program that behaves as llama-quantize does, without its arithmetic."""

import hashlib
import sys
from pathlib import Path

import pytest
from tiny_gguf import write_tiny_gguf

from labctl.config.models import ModelSource
from labctl.errors import ConfigError, HostError, ProgramFailed
from labctl.models.cache import ModelFile
from labctl.models.lock import ModelsLock
from labctl.models.quantizer import Quantizer
from labctl.models.resolve import resolve

#: Copies the model with another ``general.file_type``, which is the fifth uint32 of the header.
PROGRAM = """
import sys
from pathlib import Path
*flags, source, target, kind = sys.argv[1:]
Path({log!r}).open("a").write(" ".join([*flags, kind]) + "\\n")
types = {{"Q8_0": 7, "Q2_K": 10, "Q4_0": 2}}
padding = {padding!r}
if kind == "Q4_0":
    sys.exit("main: failed to quantize: " + {complaint!r})
raw = bytearray(Path(source).read_bytes())
at = raw.index(b"general.file_type") + len(b"general.file_type") + 4
raw[at] = types[kind]
for number in range(1, 4):
    print(f"[{{number:4d}}/{{3:4d}}] blk.0.attn_q.weight - [64, 64, 1, 1], type = f32")
Path(target).write_bytes(raw + padding)
"""


class Bench:
    """A lab with a base model and a quantizer that notes its calls."""

    def __init__(self, root: Path):
        self.root = root
        self.log = root / "calls"
        self.complaint = "tensor is broken"
        self.steps: list[tuple[str, int, int | None]] = []
        self.sha256 = "1" * 64
        self.padding = b""  # what this quantizer does differently
        write_tiny_gguf(root / "tiny-F32.gguf")

    def quantizer(self) -> Quantizer:
        script = self.root / "quantize.py"
        script.write_text(
            PROGRAM.format(log=str(self.log), complaint=self.complaint, padding=self.padding)
        )
        return Quantizer((sys.executable, script), self.sha256)

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def resolve(self, *keys: str, **models: dict[str, object]) -> dict[str, ModelFile]:
        sources = {
            "base": ModelSource.model_validate({"file": "tiny-F32.gguf"}),
            **{key: ModelSource.model_validate(value) for key, value in models.items()},
        }
        return resolve(
            sources,
            keys,
            root=self.root,
            find_quantizer=self.quantizer,
            progress=lambda *step: self.steps.append(step),
        )


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    return Bench(tmp_path)


def derived(kind: str, base: str = "base", **more: object) -> dict[str, object]:
    return {"derive": {"from": base, "quantization": kind, **more}}


def test_a_file_is_found_beside_the_lab(bench: Bench) -> None:
    model = bench.resolve("base")["base"]
    assert model.path == bench.root / "tiny-F32.gguf"
    assert model.identity.key == "base"
    assert model.identity.requantized_from is None
    assert bench.calls == []


def test_a_derived_model_is_made_once(bench: Bench) -> None:
    first = bench.resolve("q8", q8=derived("Q8_0"))["q8"]
    assert first.path.name == "tiny.Q8_0.gguf"
    assert first.identity.quantization == "Q8_0"
    assert first.identity.requantized_from is None
    assert ("quantize tiny.Q8_0.gguf", 3, 3) in bench.steps
    assert bench.resolve("q8", q8=derived("Q8_0"))["q8"] == first
    assert bench.calls == ["Q8_0"]


def test_the_lock_keeps_what_the_first_quantizer_made(bench: Bench) -> None:
    first = bench.resolve("q8", q8=derived("Q8_0"))["q8"]
    bench.sha256 = "2" * 64
    assert bench.resolve("q8", q8=derived("Q8_0"))["q8"].path == first.path
    assert bench.calls == ["Q8_0"]


def test_other_bytes_than_the_lock_says_are_refused(bench: Bench) -> None:
    first = bench.resolve("q8", q8=derived("Q8_0"))["q8"]
    first.path.unlink()
    bench.sha256, bench.padding = "2" * 64, b"other"
    with pytest.raises(ConfigError, match=r"differs from .*models.lock.yaml") as refused:
        bench.resolve("q8", q8=derived("Q8_0"))
    base = hashlib.sha256((bench.root / "tiny-F32.gguf").read_bytes()).hexdigest()
    assert f"labctl models unlock 'derive:Q8_0 of {base}'" in (refused.value.hint or "")

    lock = ModelsLock(bench.root)
    assert lock.drop([f"derive:Q8_0 of {base}"])
    assert bench.resolve("q8", q8=derived("Q8_0"))["q8"].identity.sha256 != first.identity.sha256


def test_an_importance_matrix_is_given_and_makes_another_file(bench: Bench) -> None:
    matrix = bench.root / "calibration.dat"
    matrix.write_bytes(b"weights that matter")
    plain = bench.resolve("q8", q8=derived("Q8_0"))["q8"]
    careful = bench.resolve("q8", q8=derived("Q8_0", imatrix="calibration.dat"))["q8"]
    assert careful.path != plain.path
    assert bench.calls == ["Q8_0", f"--imatrix {matrix} Q8_0"]
    matrix.unlink()
    with pytest.raises(ConfigError, match="calibration"):
        bench.resolve("q8", q8=derived("Q8_0", imatrix="calibration.dat"))


def test_requantizing_has_to_be_asked_for_and_is_recorded(bench: Bench) -> None:
    models = {"q8": derived("Q8_0"), "q2": derived("Q2_K", "q8")}
    with pytest.raises(ConfigError, match="quantized already") as refused:
        bench.resolve("q2", **models)
    assert "requantize: true" in (refused.value.hint or "")

    models["q2"] = derived("Q2_K", "q8", requantize=True)
    made = bench.resolve("q2", **models)
    assert list(made) == ["q2"]
    assert made["q2"].identity.requantized_from == "Q8_0"
    assert bench.calls == ["Q8_0", "--allow-requantize Q2_K"]


def test_a_quantizer_that_fails_is_the_jobs_blame_and_leaves_nothing(bench: Bench) -> None:
    with pytest.raises(ProgramFailed, match="could not make Q4_0") as failed:
        bench.resolve("q4", q4=derived("Q4_0"))
    assert "tensor is broken" in (failed.value.details or "")
    assert list((bench.root / "cache").rglob("*.gguf")) == []


def test_a_full_disk_is_the_hosts_blame(bench: Bench) -> None:
    bench.complaint = "No space left on device"
    with pytest.raises(HostError, match="no space"):
        bench.resolve("q4", q4=derived("Q4_0"))


def test_missing_and_damaged_files_are_named(bench: Bench) -> None:
    with pytest.raises(ConfigError, match=r"no model file .*absent\.gguf"):
        bench.resolve("m", m={"file": "absent.gguf"})
    (bench.root / "empty.gguf").touch()
    with pytest.raises(ConfigError, match=r"the file of 'm' is empty: .*empty\.gguf"):
        bench.resolve("m", m={"file": "empty.gguf"})
    (bench.root / "page.gguf").write_text("<!doctype html>")
    with pytest.raises(ConfigError, match="not a GGUF file"):
        bench.resolve("m", m={"file": "page.gguf"})
