from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_gguf import HEAD_WIDTH, HEADS, LAYERS, VOCABULARY, WIDTH, write_tiny_gguf

from labctl.errors import ConfigError
from labctl.gguf import identify, inspect


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


def damaged(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        inspect(path)
    assert str(path) in str(refused.value)
    return str(refused.value)


def small_model(path: Path, **tensors: tuple[tuple[int, ...], gguf.GGMLQuantizationType]) -> Path:
    """A header with tensors of those shapes (rows last as in GGUF) and types, zeros inside."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_head_count(8)
    writer.add_head_count_kv(2)
    writer.add_expert_count(8)
    writer.add_expert_used_count(2)
    for name, (shape, kind) in tensors.items():
        block, size = gguf.GGML_QUANT_SIZES[kind]
        data = np.zeros((*reversed(shape[1:]), shape[0] // block * size), dtype=np.uint8)
        writer.add_tensor(name.replace("__", "."), data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


Q8, F16 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F16


def test_a_model_is_described_from_its_header(tiny: Path) -> None:
    info = inspect(tiny)
    reader = gguf.GGUFReader(tiny)
    assert info.architecture == "llama"
    assert info.name == "tiny"
    assert info.quantization == "F32"
    assert info.context_length == 256
    assert info.size_bytes == tiny.stat().st_size
    assert info.parameters == sum(t.n_elements for t in reader.tensors)
    assert info.tensor_bytes == sum(int(t.n_bytes) for t in reader.tensors)
    assert [(m.type, m.count) for m in info.tensors] == [("F32", len(reader.tensors))]
    assert info.kv_bytes_per_position == LAYERS * HEADS * HEAD_WIDTH * 2 * 2


def test_one_token_reads_one_row_of_the_embedding(tiny: Path) -> None:
    info = inspect(tiny)
    embedding = VOCABULARY * WIDTH * 4
    assert info.bytes_per_token == info.tensor_bytes - embedding + WIDTH * 4


def test_a_tied_embedding_is_read_whole_as_output_matrix(tmp_path: Path) -> None:
    path = small_model(
        tmp_path / "tied.gguf",
        token_embd__weight=((64, 100), Q8),
        blk__0__attn_q__weight=((64, 64), F16),
    )
    info = inspect(path)
    assert info.bytes_per_token == info.tensor_bytes == 100 * 68 + 64 * 64 * 2
    assert info.quantization == "F16"  # no file type: the type with most bytes
    assert info.kv_bytes_per_position == 2 * 2 * (8 + 8) * 2


def test_a_token_uses_its_share_of_the_experts(tmp_path: Path) -> None:
    path = small_model(
        tmp_path / "experts.gguf",
        token_embd__weight=((64, 100), Q8),
        output__weight=((64, 100), Q8),
        blk__0__ffn_up_exps__weight=((64, 32, 8), Q8),
    )
    assert inspect(path).bytes_per_token == 68 + 100 * 68 + 32 * 68 * 8 * 2 // 8


def test_missing_file(tmp_path: Path) -> None:
    assert "no model file" in refusal(tmp_path / "absent.gguf")


def test_directory(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path)


def test_empty_file(tmp_path: Path) -> None:
    assert "empty" in refusal(damaged(tmp_path / "m.gguf", b""))


def test_web_page_instead_of_a_model(tmp_path: Path) -> None:
    assert "not a GGUF file" in refusal(damaged(tmp_path / "m.gguf", b"<!doctype html>"))


def test_cut_in_the_tensor_data(tmp_path: Path, tiny: Path) -> None:
    whole = tiny.read_bytes()
    message = refusal(damaged(tmp_path / "m.gguf", whole[: len(whole) // 2]))
    assert "cut short" in message
    assert f"has {len(whole) // 2}" in message


def test_cut_in_the_header(tmp_path: Path, tiny: Path) -> None:
    assert "cut short" in refusal(damaged(tmp_path / "m.gguf", tiny.read_bytes()[:3000]))


def test_big_endian_and_unknown_versions(tmp_path: Path, tiny: Path) -> None:
    whole = tiny.read_bytes()
    big = damaged(tmp_path / "b.gguf", whole[:4] + b"\0\0\0\3" + whole[8:])
    assert "big-endian" in refusal(big)
    new = damaged(tmp_path / "n.gguf", whole[:4] + b"\4\0\0\0" + whole[8:])
    assert "version 4" in refusal(new)


def test_vocabulary_only(tmp_path: Path) -> None:
    assert "vocabulary without weights" in refusal(small_model(tmp_path / "vocab.gguf"))


def test_projector_is_no_language_model(tmp_path: Path) -> None:
    path = small_model(tmp_path / "mmproj.gguf", v__patch_embd__weight=((64, 64), F16))
    assert "no language model" in refusal(path)


def test_unknown_tensor_type(tmp_path: Path) -> None:
    path = small_model(tmp_path / "m.gguf", token_embd__weight=((64, 100), F16))
    raw = path.read_bytes()
    at = raw.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 2 * 8
    assert raw[at : at + 4] == b"\1\0\0\0"
    path.write_bytes(raw[:at] + b"\xe7\3\0\0" + raw[at + 4 :])
    assert "unknown type 999" in refusal(path)


@settings(
    max_examples=150, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damage_is_told_or_harmless(tmp_path: Path, tiny: Path, data: st.DataObject) -> None:
    """Any damage to the header ends in a ConfigError or in a description, and soon."""
    raw = bytearray(tiny.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, 9000))
        patch = data.draw(st.binary(min_size=1, max_size=8))
        raw[place : place + len(patch)] = patch
    path = damaged(tmp_path / "m.gguf", bytes(raw))
    try:
        info = inspect(path)
    except ConfigError as error:
        told = str(error)
    else:
        told = f"{path}: {info.parameters} weights"
    assert told.startswith((str(path), f"the model {path}"))


def test_a_split_model_is_one_model_but_no_run_takes_it(tmp_path: Path) -> None:
    whole = inspect(write_tiny_gguf(tmp_path / "whole.gguf"))
    write_tiny_gguf(tmp_path / "split.gguf", tensors_per_part=8)
    first = tmp_path / "split-00001-of-00003.gguf"
    info = inspect(first)
    assert len(info.parts) == 3
    assert (info.parameters, info.tensor_bytes) == (whole.parameters, whole.tensor_bytes)
    assert info.size_bytes == sum(part.stat().st_size for part in info.parts)
    assert (info.tokenizer, info.vocabulary) == (whole.tokenizer, 401)
    with pytest.raises(ConfigError, match="one of 3 parts") as refused:
        identify("split", first)
    assert "llama-gguf-split --merge" in (refused.value.hint or "")

    second = tmp_path / "split-00002-of-00003.gguf"
    with pytest.raises(ConfigError, match="part 2 of 3"):
        inspect(second)
    second.unlink()
    with pytest.raises(ConfigError, match=r"there is no split-00002-of-00003\.gguf"):
        inspect(first)
