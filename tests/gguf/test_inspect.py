import os
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_gguf import HEAD_WIDTH, HEADS, LAYERS, VOCABULARY, WIDTH, write_tiny_gguf

from labctl.errors import ConfigError
from labctl.gguf.inspect import identify, inspect


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


def small_model(
    path: Path,
    extra_layers: int = 0,
    **tensors: tuple[tuple[int, ...], gguf.GGMLQuantizationType],
) -> Path:
    """A header with tensors of those shapes (rows last as in GGUF) and types, zeros inside."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_nextn_predict_layers(extra_layers)
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
    assert [(m.type, m.count, m.bytes) for m in info.cold_tensors] == [("F32", 1, embedding)]
    assert (info.experts, info.experts_per_token) == (None, None)


def test_a_tied_embedding_is_read_whole_as_output_matrix(tmp_path: Path) -> None:
    path = small_model(
        tmp_path / "tied.gguf",
        token_embd__weight=((64, 100), Q8),
        blk__0__attn_q__weight=((64, 64), F16),
    )
    info = inspect(path)
    assert info.bytes_per_token == info.tensor_bytes == 100 * 68 + 64 * 64 * 2
    assert info.cold_tensors == ()
    assert info.quantization == "F16"  # no file type: the type with most bytes
    assert info.kv_bytes_per_position == 2 * 2 * (8 + 8) * 2


def test_a_token_uses_its_share_of_the_experts(tmp_path: Path) -> None:
    path = small_model(
        tmp_path / "experts.gguf",
        token_embd__weight=((64, 100), Q8),
        output__weight=((64, 100), Q8),
        blk__0__ffn_up_exps__weight=((64, 32, 8), Q8),
    )
    info = inspect(path)
    assert info.bytes_per_token == 68 + 100 * 68 + 32 * 68 * 8 * 2 // 8
    assert (info.experts, info.experts_per_token) == (8, 2)
    # Another token uses others: only the embedding is hardly read.
    assert sum(mix.bytes for mix in info.cold_tensors) == 100 * 68


def test_what_plain_generation_leaves_out_is_not_read(tmp_path: Path) -> None:
    """An encoder reads the prompt once; the last layer foretells further tokens."""
    path = small_model(
        tmp_path / "extra.gguf",
        extra_layers=1,
        token_embd__weight=((64, 100), Q8),
        output__weight=((64, 100), Q8),
        enc__blk__0__ffn_up__weight=((64, 32), Q8),
        blk__0__ffn_up__weight=((64, 32), Q8),
        blk__1__ffn_up__weight=((64, 32), Q8),
        blk__1__nextn__eh_proj__weight=((64, 32), Q8),
    )
    info = inspect(path)
    assert info.bytes_per_token == 68 + 100 * 68 + 32 * 68
    assert sum(mix.bytes for mix in info.cold_tensors) == 100 * 68 + 3 * 32 * 68


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
    assert f"truncated: {len(whole) // 2} of {len(whole)} bytes" in message


def test_cut_in_the_header(tmp_path: Path, tiny: Path) -> None:
    assert "truncated" in refusal(damaged(tmp_path / "m.gguf", tiny.read_bytes()[:3000]))


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
    assert inspect(second) == info
    second.unlink()
    with pytest.raises(ConfigError, match=r"1 of 3 parts missing: split-00002-of-00003\.gguf"):
        inspect(first)


def text(raw: bytes) -> bytes:
    return len(raw).to_bytes(8, "little") + raw


def header(tensors: int = 0, values: int = 0, rest: bytes = b"") -> bytes:
    counts = tensors.to_bytes(8, "little") + values.to_bytes(8, "little")
    return b"GGUF" + (3).to_bytes(4, "little") + counts + rest


U32, ARRAY, TEXT = b"\4\0\0\0", b"\x09\0\0\0", b"\x08\0\0\0"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("head", "words"),
    [
        (header(values=1 << 60), "announces 1152921504606846976 key-value pairs"),
        (header(tensors=1 << 60), "announces 1152921504606846976 tensors"),
        (header(values=1, rest=text(b"k") + ARRAY + TEXT + b"\xff" * 8), "texts in one list"),
        (header(values=1, rest=(1 << 32).to_bytes(8, "little")), "bytes of one text"),
        (header(values=1, rest=b"\xff" * 8), "truncated"),
        (header(values=1, rest=text(b"k") + ARRAY + U32 + b"\xff" * 8), "truncated"),
        (header(values=2, rest=2 * (text(b"k") + U32 + bytes(4))), "the key 'k' comes twice"),
        (
            header(
                tensors=1,
                rest=text(b"t") + b"\4\0\0\0" + b"\xff" * 32 + bytes(4) + bytes(8),
            ),
            "truncated",
        ),
    ],
)
def test_hostile_headers_cost_neither_time_nor_memory(
    tmp_path: Path, head: bytes, words: str
) -> None:
    """In a sparse file of 8 GB, whose zeros would go on as empty texts for ever."""
    path = damaged(tmp_path / "m.gguf", head)
    with path.open("r+b") as file:
        file.truncate(8_000_000_000)
    assert words in refusal(path)


def test_tensors_that_lie_over_each_other_are_refused(tmp_path: Path) -> None:
    path = small_model(
        tmp_path / "m.gguf",
        token_embd__weight=((64, 100), F16),
        output__weight=((64, 100), F16),
    )
    raw = path.read_bytes()
    at = raw.index(b"output.weight") + len(b"output.weight") + 4 + 2 * 8 + 4
    path.write_bytes(raw[:at] + bytes(8) + raw[at + 8 :])
    assert "begins at 0 of the data, not behind the one before it" in refusal(path)
    raw = raw.replace(text(b"output.weight"), text(b"token_embd.we"))
    path.write_bytes(raw.replace(text(b"token_embd.weight"), text(b"token_embd.we") + b"ight"))
    assert str(path) in refusal(path)


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    assert "is no file" in refusal(tmp_path / "m.gguf")


def test_numbers_that_cannot_be_true_are_absent(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_int32("llama.context_length", -1)
    writer.add_uint64("llama.embedding_length", (1 << 64) - 1)
    writer.add_block_count(2)
    writer.add_array("llama.attention.head_count", [float("nan"), float("inf")])
    writer.add_int32("llama.attention.head_count_kv", -5)
    writer.add_tensor("token_embd.weight", np.zeros((4, 4), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    info = inspect(tmp_path / "m.gguf")
    assert (info.context_length, info.embedding_length) == (None, None)
    assert info.kv_bytes_per_position is None


def test_parts_of_different_models_are_no_model(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "split.gguf", tensors_per_part=8)
    second, third = (tmp_path / f"split-0000{number}-of-00003.gguf" for number in (2, 3))
    good = second.read_bytes()
    second.write_bytes(third.read_bytes())
    assert "its part 2 is not that part of a model" in refusal(
        tmp_path / "split-00001-of-00003.gguf"
    )
    second.write_bytes(good)
    (tmp_path / "other").mkdir()
    write_tiny_gguf(tmp_path / "other" / "split.gguf", tensors_per_part=10)
    third.write_bytes((tmp_path / "other" / third.name).read_bytes())
    assert "tensors together, not 21" in refusal(tmp_path / "split-00001-of-00003.gguf")


@pytest.mark.parametrize(
    ("number", "words", "hint"),
    [
        (4, "type Q4_2 (4), which llama.cpp removed", "Q4_K_M"),
        (31, "type Q4_0_4_4 (31), which llama.cpp removed", "again, to Q4_0,"),
        (33, "type Q4_0_8_8 (33), which llama.cpp removed", "again, to Q4_0,"),
        (36, "type IQ4_NL_4_4 (36), which llama.cpp removed", "again, to IQ4_NL,"),
        (38, "type IQ4_NL_8_8 (38), which llama.cpp removed", "again, to IQ4_NL,"),
        (999, "unknown type 999", "newer than labctl"),
    ],
)
def test_a_removed_type_is_named(tmp_path: Path, number: int, words: str, hint: str) -> None:
    tensor = text(b"a") + struct.pack("<IQIQ", 1, 32, number, 0)
    with pytest.raises(ConfigError) as refused:
        inspect(damaged(tmp_path / "x.gguf", header(tensors=1, rest=tensor)))
    assert words in refused.value.message
    assert hint in str(refused.value.hint)


def test_a_newer_version_asks_for_a_newer_labctl(tmp_path: Path, tiny: Path) -> None:
    data = bytearray(tiny.read_bytes())
    data[4] = 4
    with pytest.raises(ConfigError, match="version 4 is newer than this labctl") as refused:
        inspect(damaged(tmp_path / "x.gguf", bytes(data)))
    assert "update labctl" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("m.gguf-split-a", "m.gguf-split-*"),
        ("m.gguf-split-b", "m.gguf-split-*"),
        ("m.gguf.part1of2", "m.gguf.part1of2 {}/m.gguf.part2of2"),
        ("m.gguf.part2of2", "m.gguf.part1of2 {}/m.gguf.part2of2"),
        ("m.part1of2", "m.part1of2 {}/m.part2of2"),
        ("m.gguf.aa", "m.gguf.*"),
    ],
)
def test_a_raw_piece_of_a_file_is_to_be_joined(
    tmp_path: Path, tiny: Path, name: str, pieces: str
) -> None:
    data = tiny.read_bytes()
    is_first = name.endswith(("a", "1of2"))
    path = damaged(tmp_path / name, data[:5000] if is_first else data[5000:])
    with pytest.raises(ConfigError, match="one of several raw pieces") as refused:
        inspect(path)
    joined = f"cat {tmp_path}/{pieces.format(tmp_path)} > {tmp_path}/m.gguf"
    assert joined in str(refused.value.hint)
    path.write_bytes(data)  # joined under the name of a piece
    assert inspect(path).parameters


def test_a_tensor_in_two_parts_is_an_error(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "split.gguf", tensors_per_part=8)
    second = tmp_path / "split-00002-of-00003.gguf"
    data = second.read_bytes()
    assert b"blk.1.attn_q.weight" in data
    second.write_bytes(data.replace(b"blk.1.attn_q.weight", b"blk.0.attn_q.weight"))
    said = refusal(tmp_path / "split-00001-of-00003.gguf")
    assert "the tensor 'blk.0.attn_q.weight' is in two parts of the model" in said
