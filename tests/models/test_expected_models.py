"""What is known of models before they are here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clocks import skip_waits
from model_hub import Hub, model_hub
from tiny_gguf import write_tiny_gguf

from labctl.config.models import QUANTIZATIONS, ModelSource
from labctl.errors import ConfigError
from labctl.gguf.inspect import identify
from labctl.models.cache import Derivation, ModelFile
from labctl.models.expected import check_files, expect
from labctl.models.lock import LockedModel, ModelsLock
from labctl.models.quantizer import FindQuantizer, Quantizer
from labctl.progress import silent

MEBIBYTE = 1 << 20


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    content = write_tiny_gguf(tmp_path / "tiny-F32.gguf").read_bytes()
    with model_hub(content + bytes(4 * MEBIBYTE)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        yield server


def quantizer() -> Quantizer:
    return Quantizer(("/bin/false",), "1" * 64)  # nothing is made


def no_quantizer() -> Quantizer:
    raise ConfigError("no llama-quantize")


def expected(
    root: Path,
    sources: dict[str, dict[str, Any]],
    key: str,
    find_quantizer: FindQuantizer = quantizer,
) -> ModelFile | None:
    read = {name: ModelSource.model_validate(source) for name, source in sources.items()}
    found = expect(read, [key], root=root, find_quantizer=find_quantizer, progress=silent)
    return found.get(key)


def by_address(site: Hub) -> dict[str, Any]:
    return {"url": {"address": f"{site.address}/tiny-F32.gguf", "sha256": site.sha256}}


@pytest.mark.parametrize("hub", [False, True])
@pytest.mark.parametrize("ranges", [False, True])
def test_a_file_is_known_by_its_header_as_if_it_were_here(
    site: Hub, tmp_path: Path, hub: bool, ranges: bool
) -> None:
    site.ranges = ranges
    named = {"hub": {"repository": "someone/tiny-GGUF", "file": "tiny-F32.gguf"}}
    found = expected(tmp_path, {"t": named if hub else by_address(site)}, "t")
    whole = tmp_path / "whole" / "tiny-F32.gguf"
    whole.parent.mkdir()
    whole.write_bytes(site.content)
    assert found is not None
    assert found.identity == identify("t", whole)
    assert not found.estimated
    assert not (tmp_path / "cache" / "models").exists()
    if ranges:
        assert site.sent_bytes == MEBIBYTE


def test_more_is_asked_for_where_the_header_goes_on(site: Hub, tmp_path: Path) -> None:
    long = write_tiny_gguf(tmp_path / "long.gguf", name="n" * 2 * MEBIBYTE)
    site.content = long.read_bytes()
    found = expected(tmp_path, {"t": by_address(site)}, "t")
    assert found is not None
    assert found.identity.architecture == "llama"
    assert [wanted for _, _, wanted in site.requests] == [
        f"bytes=0-{MEBIBYTE - 1}",
        f"bytes=0-{8 * MEBIBYTE - 1}",
    ]


def test_of_what_is_no_gguf_the_size_is_known(site: Hub, tmp_path: Path) -> None:
    site.content = b"other" * 1000
    found = expected(tmp_path, {"t": by_address(site)}, "t")
    assert found is not None
    assert (found.identity.size_bytes, found.identity.architecture) == (5000, None)


def test_a_server_that_has_no_such_file_is_told(site: Hub, tmp_path: Path) -> None:
    site.status = 404
    with pytest.raises(ConfigError, match="there is no http"):
        expected(tmp_path, {"t": by_address(site)}, "t")


def test_a_server_in_trouble_is_left_to_the_fetch_which_waits_longer(
    site: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_waits(monkeypatch)
    site.status = 503
    assert expected(tmp_path, {"t": by_address(site)}, "t") is None
    known = LockedModel(sha256=site.sha256, size_bytes=123)
    ModelsLock(tmp_path).require("t", f"{site.address}/tiny-F32.gguf", known, unlock="")
    found = expected(tmp_path, {"t": by_address(site)}, "t")
    assert found is not None
    assert found.identity.size_bytes == 123


def test_of_a_package_the_size_is_known_once_it_was_had(site: Hub, tmp_path: Path) -> None:
    source = {"pypi": {"package": "tiny", "version": "1", "sha256": "a" * 64}}
    assert expected(tmp_path, {"t": source}, "t") is None
    entry = LockedModel(sha256="a" * 64, size_bytes=123)
    ModelsLock(tmp_path).require("t", "pypi:tiny==1/*.gguf", entry, unlock="")
    found = expected(tmp_path, {"t": source}, "t")
    assert found is not None
    assert found.identity.size_bytes == 123


@pytest.mark.parametrize(
    ("quantization", "kind", "bits"),
    [
        ("Q8_0", "Q8_0", 8.5),
        ("Q4_K_M", "Q4_K", 4.5),
        ("IQ2_M", "IQ2_S", 2.5625),
        ("IQ3_XXS", "IQ2_S", 2.5625),  # its queries and keys
        ("F16", "F16", 16),
    ],
)
def test_what_is_to_be_made_is_estimated_from_its_bases_weights(
    site: Hub, tmp_path: Path, quantization: str, kind: str, bits: float
) -> None:
    sources = {
        "base": by_address(site),
        "made": {"derive": {"from": "base", "quantization": quantization}},
    }
    base, made = expected(tmp_path, sources, "base"), expected(tmp_path, sources, "made")
    assert base is not None
    assert made is not None
    assert made.estimated
    assert made.path.name == f"tiny.{quantization}.gguf"
    assert base.identity.parameters is not None
    weights = int(base.identity.parameters * bits / 8)
    assert made.identity.tensor_bytes == weights
    assert base.identity.tensor_bytes is not None
    assert (
        made.identity.size_bytes == base.identity.size_bytes - base.identity.tensor_bytes + weights
    )
    assert [mix.type for mix in made.identity.tensors] == [kind]
    assert base.identity.reused_bytes is not None
    reused = base.identity.reused_bytes * weights / base.identity.tensor_bytes
    assert made.identity.reused_bytes == pytest.approx(reused, abs=8)
    assert made.identity.kv_bytes_per_position == base.identity.kv_bytes_per_position
    assert made.identity.sha256 != base.identity.sha256


def test_every_quantization_that_can_be_asked_for_is_estimated(site: Hub, tmp_path: Path) -> None:
    sources: dict[str, dict[str, Any]] = {"base": by_address(site)}
    sizes = {}
    for name in QUANTIZATIONS:
        sources[name] = {"derive": {"from": "base", "quantization": name}}
        found = expected(tmp_path, sources, name)
        assert found is not None
        sizes[name] = found.identity.tensor_bytes
    assert sizes["IQ1_S"] < sizes["Q4_0"] < sizes["Q8_0"] < sizes["F16"] < sizes["F32"]


def test_a_model_that_may_not_be_made_is_refused_before_its_base_is_fetched(
    site: Hub, tmp_path: Path
) -> None:
    sources = {
        "base": by_address(site),
        "half": {"derive": {"from": "base", "quantization": "Q8_0"}},
        "made": {"derive": {"from": "half", "quantization": "Q4_0"}},
    }
    with pytest.raises(ConfigError, match="would lose quality twice"):
        expected(tmp_path, sources, "made")


def test_nothing_is_fetched_for_a_quantizer_that_is_not_there(site: Hub, tmp_path: Path) -> None:
    sources = {
        "base": by_address(site),
        "made": {"derive": {"from": "base", "quantization": "Q8_0"}},
    }
    with pytest.raises(ConfigError, match="no llama-quantize"):
        expected(tmp_path, sources, "made", no_quantizer)
    assert site.requests == []


def test_what_was_made_once_has_the_size_that_is_locked(site: Hub, tmp_path: Path) -> None:
    package = {"pypi": {"package": "tiny", "version": "1", "sha256": "a" * 64}}
    sources = {"base": package, "made": {"derive": {"from": "base", "quantization": "Q8_0"}}}
    lock = ModelsLock(tmp_path)
    lock.require(
        "base", "pypi:tiny==1/*.gguf", LockedModel(sha256="a" * 64, size_bytes=123), unlock=""
    )
    made = Derivation("a" * 64, "Q8_0", None)
    entry = LockedModel(sha256="b" * 64, size_bytes=45, quantizer="1" * 64)
    lock.require("made", made.reference, entry, unlock="")
    found = expected(tmp_path, sources, "made")
    assert found is not None
    assert (found.identity.sha256, found.identity.size_bytes) == ("b" * 64, 45)
    assert not found.estimated


def test_a_model_that_is_a_device_is_refused(tmp_path: Path) -> None:
    source = {"m": ModelSource(file="/dev/null")}
    with pytest.raises(ConfigError, match="cannot read /dev/null: not a regular file"):
        check_files(source, ["m"], root=tmp_path, gguf_only=False)
