"""Models of hubs and addresses, from servers on loopback that answer as the real ones do."""

import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clocks import skip_waits
from model_hub import COMMIT, Hub, model_hub
from tiny_gguf import write_tiny_gguf

from labctl.cli.root import run_cli
from labctl.config.models import ModelSource
from labctl.errors import ConfigError, HostError, IntegrityError
from labctl.models import hub
from labctl.models.cache import ModelFile
from labctl.models.lock import ModelsLock
from labctl.models.quantizer import Quantizer
from labctl.models.references import find_reference, parse_reference
from labctl.models.resolve import resolve
from labctl.progress import silent
from labctl.runs.inputs.bench import model_entries


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "state"))
    skip_waits(monkeypatch)
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "MODELSCOPE_API_TOKEN", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with model_hub(write_tiny_gguf(tmp_path / "made.gguf").read_bytes()) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        monkeypatch.setenv("MODELSCOPE_DOMAIN", server.address)
        yield server


def no_quantizer() -> Quantizer:
    raise AssertionError("nothing is to be derived")


def get(root: Path, source: dict[str, Any]) -> ModelFile:
    sources = {"tiny": ModelSource.model_validate(source)}
    lab = root / "lab"
    lab.mkdir(exist_ok=True)
    return resolve(sources, ["tiny"], root=lab, find_quantizer=no_quantizer)["tiny"]


HUGGING_FACE = {"hub": {"repository": "someone/tiny-GGUF", "file": "tiny-F32.gguf"}}
MODELSCOPE = {"hub": {**HUGGING_FACE["hub"], "site": "modelscope"}}


@pytest.mark.parametrize("source", [HUGGING_FACE, MODELSCOPE], ids=["huggingface", "modelscope"])
def test_a_hubs_file_is_fetched_once_and_locked(
    site: Hub, tmp_path: Path, source: dict[str, Any]
) -> None:
    model = get(tmp_path, source)
    assert model.path.read_bytes() == site.content
    assert model.path.name == "tiny-F32.gguf"
    asked = len(site.requests)
    assert get(tmp_path, source) == model
    assert len(site.requests) == asked  # what is locked and here needs no hub

    lock = (tmp_path / "lab" / "models.lock.yaml").read_text()
    assert site.sha256 in lock
    if source is HUGGING_FACE:
        assert site.requests[-1][1].startswith(f"/someone/tiny-GGUF/resolve/{COMMIT}/")
        assert f"commit: {COMMIT}" in lock


def test_a_recipe_that_names_other_bytes_than_the_lock_is_refused(
    site: Hub, tmp_path: Path
) -> None:
    get(tmp_path, HUGGING_FACE)
    get(tmp_path, {"hub": {**HUGGING_FACE["hub"], "sha256": site.sha256}})
    with pytest.raises(ConfigError, match=r"its sha256 is f+, but models.lock.yaml has"):
        get(tmp_path, {"hub": {**HUGGING_FACE["hub"], "sha256": "f" * 64}})


def test_a_hub_that_moved_on_is_refused_before_a_byte_is_fetched(site: Hub, tmp_path: Path) -> None:
    model = get(tmp_path, HUGGING_FACE)
    model.path.unlink()
    site.content += b"\0"
    site.requests.clear()
    with pytest.raises(ConfigError, match=r"differs from .*models.lock.yaml"):
        get(tmp_path, HUGGING_FACE)
    assert [method for method, _, _ in site.requests] == ["HEAD"]


def test_a_download_goes_on_where_it_broke_off(
    site: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.cut_after = 100_000
    model = get(tmp_path, {"url": {"address": f"{site.address}/t.gguf", "sha256": site.sha256}})
    assert model.path.read_bytes() == site.content
    ranges = [wanted for method, _, wanted in site.requests if method == "GET"]
    assert ranges[0] is None
    assert ranges[1] == "bytes=100000-"  # nothing that came is fetched twice
    assert not list(model.path.parent.glob(".*"))


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_server_that_sends_less_than_the_rest_is_asked_again(
    site: Hub, tmp_path: Path, *, is_listed: bool
) -> None:
    site.cut_after, site.most_bytes = 100_000, len(site.content) // 3
    url = {"url": {"address": f"{site.address}/t.gguf", "sha256": site.sha256}}
    assert get(tmp_path, HUGGING_FACE if is_listed else url).path.read_bytes() == site.content


def test_a_server_without_ranges_starts_again(site: Hub, tmp_path: Path) -> None:
    site.cut_after, site.ranges = 100_000, False
    source = {"url": {"address": f"{site.address}/t.gguf", "sha256": site.sha256}}
    assert get(tmp_path, source).path.read_bytes() == site.content


def test_another_range_than_asked_for_is_not_appended(site: Hub, tmp_path: Path) -> None:
    site.cut_after, site.begins = 100_000, 17
    source = {"url": {"address": f"{site.address}/t.gguf", "sha256": site.sha256}}
    with pytest.raises(HostError, match=r"sends 'bytes 17-"):
        get(tmp_path, source)
    site.begins = None
    assert get(tmp_path, source).path.read_bytes() == site.content


@pytest.mark.parametrize("tells_length", [True, False])
@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (b"<html>Please verify you are human</html>", "text/html; charset=utf-8"),
        (b'{"error": "gated"}', "application/json"),
        (b"<?xml version='1.0'?><Error/>", "application/xml"),
        (b"half a model", "application/octet-stream"),
    ],
)
def test_a_whole_answer_that_is_not_the_file_is_told_at_once(
    site: Hub, tmp_path: Path, *, page: bytes, kind: str, tells_length: bool
) -> None:
    site.page, site.tells_length = (page, kind), tells_length
    of_type = re.escape(kind.partition(";")[0])
    words = rf"sent a whole answer of {len(page)} bytes \({of_type}\), not the model 'tiny' of"
    with pytest.raises(HostError, match=words) as told:
        get(tmp_path, HUGGING_FACE)
    assert "proxy" in str(told.value.hint)
    assert [method for method, _, _ in site.requests].count("GET") == 1
    site.page = None
    assert get(tmp_path, HUGGING_FACE).path.read_bytes() == site.content


@pytest.mark.parametrize("tells_length", [True, False])
def test_a_page_leaves_what_came_of_the_file(
    site: Hub, tmp_path: Path, *, tells_length: bool
) -> None:
    part = tmp_path / "cache" / "models" / site.sha256 / ".tiny-F32.gguf.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(site.content[:90_000])
    site.page, site.tells_length = (b"<html></html>", "text/html"), tells_length
    with pytest.raises(HostError, match="text/html"):
        get(tmp_path, HUGGING_FACE)
    assert part.read_bytes() == site.content[:90_000]


def test_a_page_in_place_of_a_file_of_unknown_size_is_named_by_its_type(
    site: Hub, tmp_path: Path
) -> None:
    site.page = (b"<html></html>", "text/html")
    with pytest.raises(IntegrityError, match=r"not the requested file: 13 bytes \(text/html\)"):
        get(tmp_path, {"url": {"address": f"{site.address}/t.gguf", "sha256": site.sha256}})


def test_what_an_earlier_file_left_is_not_believed(site: Hub, tmp_path: Path) -> None:
    part = tmp_path / "cache" / "models" / site.sha256 / ".t.gguf.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"something else entirely")
    source = {"url": {"address": f"{site.address}/t.gguf", "sha256": site.sha256}}
    assert get(tmp_path, source).path.read_bytes() == site.content


def test_wrong_bytes_are_refused_and_leave_nothing(site: Hub, tmp_path: Path) -> None:
    source = {"url": {"address": f"{site.address}/t.gguf", "sha256": "0" * 64}}
    with pytest.raises(IntegrityError, match="is not the requested file"):
        get(tmp_path, source)
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.stat().st_size] == [
        tmp_path / "cache" / "models" / f".{'0' * 64}.lock"
    ]


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (404, ConfigError, "there is no"),
        (401, ConfigError, "no access"),
        (403, ConfigError, "no access"),
        (500, HostError, "answers with status 500"),
    ],
)
def test_refusals_say_whose_fault_it_is(
    site: Hub,
    tmp_path: Path,
    *,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    error: type[Exception],
    words: str,
) -> None:
    site.status = status
    monkeypatch.setenv("HF_ENDPOINT", site.address.replace("//", "//me:s3cret@"))
    for source in (HUGGING_FACE, MODELSCOPE):
        with pytest.raises(error, match=words) as refused:
            get(tmp_path, source)
        assert "s3cret" not in refused.value.message


def test_offline_says_what_to_do(
    site: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HostError, match=r"cannot reach 127\.0\.0\.1") as refused:
        get(tmp_path, HUGGING_FACE)
    assert "offline" in (refused.value.hint or "")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HostError, match="HF_HUB_OFFLINE"):
        get(tmp_path, HUGGING_FACE)


def test_a_token_read_from_a_file_may_end_with_a_line_break(
    site: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret\n")
    assert get(tmp_path, HUGGING_FACE).path.read_bytes() == site.content


def test_a_renamed_repository_is_followed_on_the_hub(site: Hub, tmp_path: Path) -> None:
    site.renamed = True
    model = get(tmp_path, {"hub": {"repository": "old/tiny", "file": "tiny-F32.gguf"}})
    assert model.path.read_bytes() == site.content
    assert [path.split("/")[1] for method, path, _ in site.requests if method == "HEAD"] == [
        "old",
        "new",
    ]


def test_a_file_that_does_not_end_fills_no_disk(site: Hub, tmp_path: Path) -> None:
    """The hub says how long it is; what comes behind that is not even read."""
    found = hub.HubFile(f"{site.address}/t.gguf", "0" * 64, 70_000, None, {})
    source = ModelSource.model_validate(HUGGING_FACE).hub
    assert source is not None
    with pytest.raises(IntegrityError, match=r"not the requested file: (\d+) bytes") as refused:
        hub.fetch("tiny", source, found, silent)
    read = int(refused.value.message.partition("requested file: ")[2].split()[0])
    assert 70_000 < read <= 70_000 + (1 << 16) < len(site.content)


def test_what_does_not_fit_on_this_host_is_told_before_the_first_byte(
    site: Hub, tmp_path: Path
) -> None:
    found = hub.HubFile(f"{site.address}/t.gguf", "0" * 64, 1 << 60, None, {})
    source = ModelSource.model_validate(HUGGING_FACE).hub
    assert source is not None
    with pytest.raises(HostError, match=r"no space for the model 'tiny': 1152921505 GB must be"):
        hub.fetch("tiny", source, found, silent)
    assert site.requests == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a%00b%1b%5B31m%0A.gguf", "a_b_31m_.gguf"),
        ("/%2e%2e", "model.gguf"),
        ("/.hidden.gguf", "hidden.gguf"),
        ("/" + "long" * 100 + ".gguf", ("long" * 100 + ".gguf")[-120:]),
        ("/", "model.gguf"),
    ],
)
def test_hostile_names_of_files_become_harmless(
    site: Hub, tmp_path: Path, path: str, name: str
) -> None:
    source = {"url": {"address": f"{site.address}{path}", "sha256": site.sha256}}
    model = get(tmp_path, source)
    assert model.path.name == name
    asked = len(site.requests)
    assert get(tmp_path, source) == model
    assert len(site.requests) == asked


def test_a_lock_file_that_was_edited_by_hand(site: Hub, tmp_path: Path) -> None:
    get(tmp_path, HUGGING_FACE)
    lock = tmp_path / "lab" / "models.lock.yaml"
    whole = lock.read_text()
    lock.write_text(whole.replace(f"size_bytes: {len(site.content)}", "size_bytes: 7"))
    with pytest.raises(ConfigError, match=r"has 7 bytes for hf:.* the file has"):
        get(tmp_path, HUGGING_FACE)
    for wrong, words in (
        (whole.replace(site.sha256, "no hash"), "models.lock.yaml"),
        ("<<<<<<< ours\n" + whole, "models.lock.yaml"),
        (whole.replace(site.sha256, "f" * 64), "differs from"),
    ):
        lock.write_text(wrong)
        with pytest.raises(ConfigError, match=words):
            get(tmp_path, HUGGING_FACE)


def test_a_file_that_modelscope_does_not_have_names_what_it_has(site: Hub, tmp_path: Path) -> None:
    source = {"hub": {**MODELSCOPE["hub"], "file": "tiny-F3.gguf"}}
    with pytest.raises(ConfigError, match=r"did you mean 'tiny-F32\.gguf'"):
        get(tmp_path, source)


def test_a_file_that_changed_is_not_the_model_any_more(site: Hub, tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    lab.mkdir()
    (lab / "m.gguf").write_bytes(site.content)
    get(tmp_path, {"file": "m.gguf"})
    write_tiny_gguf(lab / "m.gguf", seed=2)
    with pytest.raises(ConfigError, match=r"\(file:m.gguf\) differs from"):
        get(tmp_path, {"file": "m.gguf"})
    assert ModelsLock(lab).drop(["file:m.gguf"])
    get(tmp_path, {"file": "m.gguf"})


def test_references() -> None:
    assert parse_reference("hf:a/b/dir/c.gguf@main") == {
        "hub": {
            "site": "huggingface",
            "repository": "a/b",
            "file": "dir/c.gguf",
            "revision": "main",
        }
    }
    assert parse_reference("models/x.gguf") == {"file": "models/x.gguf"}
    digest = "a" * 64
    assert parse_reference(f"pypi:p==1.0/d/x.gguf#sha256={digest}") == {
        "pypi": {"package": "p", "version": "1.0", "member": "d/x.gguf", "sha256": digest}
    }
    for bad in ("hf:a", "hf:a/b:", "https://example.org/x.gguf", "pypi:p==1.0", "https://[x/a/b"):
        with pytest.raises(ConfigError):
            parse_reference(bad)


@pytest.mark.parametrize(
    "reference",
    [
        "hf:a/b@v1:Q8_0",
        "hf:a/b/c.gguf@v1:Q8_0",
        "hf:../..",
        "ms:a/..",
        "hf:a/b c:Q8_0",
        "https://huggingface.co/a%2F../b",
        "https://huggingface.co/a/b%0A",
    ],
)
def test_no_hub_is_asked_for_what_has_no_name(site: Hub, reference: str) -> None:
    with pytest.raises(ConfigError, match="of a hub: ") as refused:
        find_reference(reference)
    assert "OWNER/NAME:Q4_K_M" in (refused.value.hint or "")
    assert site.requests == []


QUANTIZED = ["m-Q2_K.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m-Q4_K_M.gguf"]
SPLIT = [f"BF16/m-BF16-0000{n}-of-00002.gguf" for n in (1, 2)]


@pytest.mark.parametrize("prefix", ["hf", "ms"])
@pytest.mark.parametrize(
    ("names", "asked", "chosen"),
    [
        (QUANTIZED, "", "m-Q4_K_M.gguf"),
        (QUANTIZED, ":q2_k", "m-Q2_K.gguf"),
        (["m-Q2_K.gguf", "m.Q8_0.gguf"], "", "m.Q8_0.gguf"),
        (["sub/only-F16.gguf"], "", "sub/only-F16.gguf"),
        (QUANTIZED, ":Q8_0@v1", "m-Q8_0.gguf"),
    ],
)
def test_a_repository_gives_the_file_of_a_quantization(
    site: Hub, prefix: str, names: list[str], asked: str, chosen: str
) -> None:
    """As llama.cpp's -hf: Q4_K_M, then Q8_0; projectors of pictures are no models."""
    site.names = names
    hub_entry = find_reference(f"{prefix}:someone/m-GGUF{asked}")["hub"]
    assert (hub_entry["repository"], hub_entry["file"]) == ("someone/m-GGUF", chosen)
    assert hub_entry.get("revision") == ("v1" if "@" in asked else None)


@pytest.mark.parametrize(
    ("names", "asked", "message", "hint"),
    [
        (QUANTIZED, ":Q5_K_M", "no GGUF file of a/b has Q5_K_M in its name", "it has m-Q2_K.gguf"),
        (QUANTIZED, ":Q4", "no GGUF file of a/b has Q4 in its name", "m-Q8_0.gguf"),
        (
            ["m-Q2_K.gguf", "n-Q2_K.gguf"], ":Q2_K", "2 models of a/b have Q2_K in their names",
            "name the file: m-Q2_K.gguf, n-Q2_K.gguf",
        ),
        (["m-F16.gguf", "m-Q2_K.gguf"], "", "2 models of a/b are none in Q4_K_M or Q8_0", "m-F16"),
        (SPLIT, ":BF16", "is the first of 2 parts", "llama-gguf-split --merge"),
        (["README.md"], "", "a/b has no model in GGUF", "another repository"),
    ],
)  # fmt: skip
def test_what_no_file_or_several_fit_is_refused_with_the_list(
    site: Hub, names: list[str], asked: str, message: str, hint: str
) -> None:
    site.names = names
    with pytest.raises(ConfigError) as refused:
        find_reference(f"hf:a/b{asked}")
    assert message in refused.value.message
    assert hint in (refused.value.hint or "")


def test_a_repository_that_is_not_there(site: Hub) -> None:
    site.status = 404
    with pytest.raises(ConfigError, match="there is no repository a/b"):
        find_reference("hf:a/b")


@pytest.mark.parametrize("way", ["a link", "a redirect"])
def test_the_token_stays_with_the_hub_that_it_is_for(
    site: Hub, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with model_hub(site.content) as other:
        if way == "a link":
            site.next_page = f"{other.address}/api/models/a/b/tree/main?cursor=2"
        else:
            site.redirect = other.address
            other.next_page = "/api/models/a/b/tree/main?cursor=2"
        with pytest.raises(HostError, match="lists its next page at another address"):
            find_reference("hf:a/b")
        assert set(site.logins) == {"Bearer hf_secret"}
        assert set(other.logins) <= {None}


@pytest.mark.parametrize("address", ["file:///etc/passwd", "http://[::1", "https://127.0.0.1/x"])
def test_a_next_page_elsewhere_is_the_hubs_fault(site: Hub, address: str) -> None:
    site.next_page = address
    with pytest.raises(HostError, match="lists its next page at another address"):
        find_reference("hf:a/b")


def test_a_list_without_end_is_not_kept(site: Hub) -> None:
    site.listing = b"[" + b" " * 8_000_000 + b"]"
    site.next_page = f"{site.address}/api/models/a/b/tree/main?cursor=2"
    with pytest.raises(HostError, match="answers without end"):
        find_reference("hf:a/b")
    assert len({path for _, path, _ in site.requests}) == 2
    site.next_page, site.listing = None, b"[" + b" " * 20_000_000 + b"]"
    for prefix in ("hf", "ms"):
        with pytest.raises(HostError, match="answers without end"):
            find_reference(f"{prefix}:a/b")


def test_a_list_has_a_time_for_all_its_pages(site: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    minutes = count(step=61)
    monkeypatch.setattr("labctl.http.time", SimpleNamespace(monotonic=lambda: next(minutes)))
    for prefix in ("hf", "ms"):
        with pytest.raises(HostError, match="did not finish its answer"):
            find_reference(f"{prefix}:a/b")


def listed(path: object = "a.gguf", size: object = 9) -> bytes:
    known = {"type": "file", "path": path, "size": size, "Path": path, "Size": size}
    return json.dumps([known]).encode()


@pytest.mark.parametrize(
    "listing",
    [
        b"[" * 100_000,
        b"[" + b"9" * 5000 + b"]",
        listed("../../x.gguf"),
        listed("/x.gguf"),
        listed("a//x.gguf"),
        listed("a\nb.gguf"),
        listed("\ud800.gguf"),
        listed("a\u202eb.gguf"),
        listed(size=-5),
        listed(size=True),
        listed(size="9"),
        listed(path=3),
    ],
)
def test_what_a_hub_lists_wrongly_is_not_the_users_fault(site: Hub, listing: bytes) -> None:
    site.listing = listing
    with pytest.raises(HostError, match=r"^http://127.0.0.1:\d+/api/models/a/b/tree/") as refused:
        find_reference("hf:a/b")
    assert refused.value.message.isprintable()
    entries = b"".join((b'{"Data": {"Files": ', listing, b"}}"))
    site.listing = entries
    with pytest.raises(HostError, match=r"^http://127.0.0.1:\d+/api/v1/models/a/b/repo/files"):
        find_reference("ms:a/b")


@pytest.mark.parametrize("size", ["²", "9" * 5000, "-5", ""])
def test_a_size_that_is_no_number_is_the_hubs_fault(site: Hub, tmp_path: Path, size: str) -> None:
    site.head = {"X-Linked-Etag": "a" * 64, "X-Linked-Size": size}
    with pytest.raises(HostError, match="comes without the SHA-256"):
        get(tmp_path, HUGGING_FACE)


def test_other_files_of_a_repository_may_be_called_anything(site: Hub) -> None:
    site.names = ["Screenshot 3.01\u202fPM.png", "m.gguf"]
    assert find_reference("hf:a/b")["hub"]["file"] == "m.gguf"


@pytest.mark.parametrize("prefix", ["hf", "ms"])
@pytest.mark.parametrize("why", ["forbidden", "cut off"])
def test_without_a_hub_what_is_locked_and_here_is_taken(
    site: Hub, tmp_path: Path, *, monkeypatch: pytest.MonkeyPatch, prefix: str, why: str
) -> None:
    model = get(tmp_path, HUGGING_FACE if prefix == "hf" else MODELSCOPE)
    repository, lab = f"{prefix}:someone/tiny-GGUF", tmp_path / "lab"
    if why == "forbidden":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    else:
        for name in ("HF_ENDPOINT", "MODELSCOPE_DOMAIN"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
    for asked in ("", ":f32"):
        (entry,) = model_entries([repository + asked], lab).values()
        assert entry["hub"]["file"] == "tiny-F32.gguf"
        assert get(tmp_path, entry) == model
    for other in (f"{repository}:Q8_0", f"{repository}:F32@v1", f"{prefix}:else/tiny-GGUF"):
        with pytest.raises(HostError, match=r"HF_HUB_OFFLINE|cannot reach"):
            find_reference(other, lab)
    model.path.unlink()
    with pytest.raises(HostError, match=r"HF_HUB_OFFLINE|cannot reach"):
        find_reference(repository, lab)


HF = "https://huggingface.co/a/b-GGUF"
MS = "https://www.modelscope.cn/models/a/b-GGUF"


@pytest.mark.parametrize(
    ("address", "entry"),
    [
        (f"{HF}/blob/main/dir/c-Q8_0.gguf", {"file": "dir/c-Q8_0.gguf"}),
        (f"{HF}/resolve/v1/c%20d.gguf?download=true", {"file": "c d.gguf", "revision": "v1"}),
        (f"{HF}/blob/refs%2Fpr%2F1/a.gguf", {"file": "a.gguf", "revision": "refs/pr/1"}),
        ("https://hf.co/a/b-GGUF", {}),
        (f"{HF}/tree/main", {}),
        (f"{MS}/file/view/master/c-Q8_0.gguf?status=1", {"file": "c-Q8_0.gguf"}),
        (f"{MS}/resolve/v1/c.gguf", {"file": "c.gguf", "revision": "v1"}),
        (f"{MS}/files", {}),
        (f"{MS}/summary", {}),
    ],
)
def test_pages_of_hubs_are_read_as_the_file_that_they_show(
    address: str, entry: dict[str, str]
) -> None:
    site = "modelscope" if "modelscope" in address else "huggingface"
    known = {"site": site, "repository": "a/b-GGUF"}
    assert parse_reference(address) == {"hub": {**known, **entry}}


def test_a_page_of_a_mirror_is_one_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://hf-mirror.com")
    page = "https://hf-mirror.com/a/b/blob/main/c.gguf"
    assert parse_reference(page)["hub"]["file"] == "c.gguf"


@pytest.mark.parametrize("mirror", ["", "hf-mirror.com", "https://[x"])
def test_an_address_without_a_host_is_no_page(monkeypatch: pytest.MonkeyPatch, mirror: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", mirror)
    with pytest.raises(ConfigError, match="https:///a/b has no SHA-256"):
        parse_reference("https:///a/b")


def test_the_models_of_a_repository_are_listed(
    site: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    site.names = [*QUANTIZED, *SPLIT]
    assert run_cli(["models", "list", "hf:a/b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == [SPLIT[0], *QUANTIZED[:3]]
    assert lines[0].endswith("first of 2 parts")
    assert run_cli(["models", "list", "hf:a/b", "--json"]) == 0
    (first, *_) = json.loads(capsys.readouterr().out)
    assert first == {"path": SPLIT[0], "size_bytes": len(site.content), "sha256": site.sha256}
