"""What is advised about a model file that is not what the lock says."""

from pathlib import Path

import pytest

from labctl.config.models import ModelSource
from labctl.errors import ConfigError
from labctl.models.lock import LockedModel, ModelState

CAN_BE_HAD_AGAIN = {
    "hub": {"hub": {"repository": "a/b", "file": "c.gguf"}},
    "url": {"url": {"address": "https://example.com/c.gguf", "sha256": "1" * 64}},
    "pypi": {"pypi": {"package": "p", "version": "1", "sha256": "1" * 64}},
}


def advice(tmp_path: Path, source: dict[str, object]) -> str:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"damaged")
    lock = LockedModel(sha256="1" * 64, size_bytes=7)
    state = ModelState("m", ModelSource.model_validate(source), "reference", lock, path)
    with pytest.raises(ConfigError, match="differs from the lock file") as refused:
        state.verify()
    return refused.value.hint or ""


def test_the_only_copy_of_the_owners_file_stays(tmp_path: Path) -> None:
    said = advice(tmp_path, {"file": "model.gguf"})
    assert "remove" not in said
    assert "copy the file from its origin" in said
    assert "labctl models unlock m" in said


@pytest.mark.parametrize("kind", CAN_BE_HAD_AGAIN)
def test_what_was_fetched_is_fetched_again(tmp_path: Path, kind: str) -> None:
    said = advice(tmp_path, CAN_BE_HAD_AGAIN[kind])
    assert said == f"remove {tmp_path}/model.gguf and fetch it again: labctl models fetch m"


def test_what_was_made_is_made_again(tmp_path: Path) -> None:
    said = advice(tmp_path, {"derive": {"from": "base", "quantization": "Q8_0"}})
    assert said == (
        f"remove {tmp_path}/model.gguf and make it again from 'base': labctl models fetch m"
    )
