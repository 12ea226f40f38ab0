"""Data sets by name, from a server on loopback that answers as Hugging Face does."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clocks import skip_waits
from model_hub import COMMIT, Hub, model_hub

from labctl.errors import ConfigError, HostError, IntegrityError
from labctl.evaluation.datasets.load import load_dataset
from labctl.evaluation.datasets.source import DatasetSource
from labctl.evaluation.question import Dataset

QUESTIONS = "".join(
    json.dumps({"question": f"{n} + 1?", "answer": f"sum\n#### {n + 1}"}) + "\n" for n in range(4)
).encode()
GSM8K = {"repository": "someone/sums", "config": "main", "split": "test"}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    skip_waits(monkeypatch)
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with model_hub(QUESTIONS) as server:
        server.names = ["main/train-00000.jsonl", "main/test-00000.jsonl", "other/test-0.jsonl"]
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        yield server


def load(tmp_path: Path, **keys: Any) -> Dataset:
    source = {"hub": {**GSM8K, **keys}, "format": "gsm8k"}
    return load_dataset(DatasetSource.model_validate(source), tmp_path)


def test_a_split_is_fetched_once_at_its_commit(
    site: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = load(tmp_path)
    way = f"/datasets/someone/sums/resolve/{COMMIT}/main/test-00000.jsonl"
    assert dataset.source == site.address + way
    assert (dataset.sha256, dataset.split, dataset.size) == (site.sha256, "test", 4)
    assert [one.answer for one in dataset.questions] == ["1", "2", "3", "4"]
    assert [way for _, way, _ in site.requests][-1] == way
    asked = len(site.requests)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert load(tmp_path) == dataset
    assert len(site.requests) == asked


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (b"<html>Please log in</html>", "text/html"),
        (b"\xef\xbb\xbf \n<?xml version='1.0'?><Error/>", "application/xml"),
        (b'{"error": "gated"}', "application/json"),
    ],
)
def test_a_page_in_place_of_questions_is_told_and_not_kept(
    site: Hub, tmp_path: Path, page: bytes, kind: str
) -> None:
    site.page = (page, kind)
    with pytest.raises(HostError, match=rf"sent a whole answer of {len(page)} bytes \({kind}\)"):
        load(tmp_path)
    site.page = None
    assert load(tmp_path).size == 4


def test_a_kept_file_that_was_changed_is_fetched_again(site: Hub, tmp_path: Path) -> None:
    dataset = load(tmp_path)
    (kept,) = (tmp_path / "cache").rglob("questions.jsonl")
    kept.write_bytes(b"torn")
    assert load(tmp_path) == dataset


def test_the_token_goes_to_the_hub_and_nowhere_else(
    site: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert "hf_secret" not in repr(load(tmp_path))
    assert set(site.logins) == {"Bearer hf_secret"}
    kept = (path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert not any(b"hf_secret" in path.read_bytes() for path in kept)


def test_offline_there_is_one_clear_error(
    site: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HostError) as caught:
        load(tmp_path)
    assert caught.value.message == (
        "the data set someone/sums is not on this host: cannot reach 127.0.0.1: Connection refused"
    )
    assert "dataset: {file: questions.jsonl}" in (caught.value.hint or "")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HostError, match="HF_HUB_OFFLINE forbids"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("keys", "says", "hint"),
    [
        ({"config": None}, "2 files of someone/sums fit test", "main/test-00000.jsonl, other/"),
        ({"split": "tset"}, "no .jsonl or .parquet file for main and tset (did you mean", "main/"),
    ],
)
def test_a_split_that_is_not_one_file(
    site: Hub, tmp_path: Path, keys: dict[str, Any], says: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, **keys)
    assert says in caught.value.message
    assert hint in (caught.value.hint or "")


def test_another_hash_is_refused(site: Hub, tmp_path: Path) -> None:
    assert load(tmp_path, sha256=site.sha256).size == 4
    with pytest.raises(IntegrityError, match="has SHA-256"):
        load(tmp_path, sha256="0" * 64)


@pytest.mark.parametrize(
    ("status", "error", "says"),
    [
        (401, ConfigError, "no access to .* for the (model|data set)"),
        (404, ConfigError, "there is no repository someone/sums"),
        (503, HostError, "answers with status 503"),
    ],
)
def test_refusals_of_the_hub(
    site: Hub, tmp_path: Path, status: int, error: type[Exception], says: str
) -> None:
    site.status = status
    with pytest.raises(error, match=says):
        load(tmp_path)


def test_a_download_that_breaks_off_is_made_again(site: Hub, tmp_path: Path) -> None:
    load(tmp_path, file="main/train-00000.jsonl")
    site.cut_after = 20
    assert load(tmp_path, file="main/test-00000.jsonl").size == 4
