"""Llama-3.1-8B as llama-quantize writes it, without its data: a real header on a file of holes.

The shapes are those of Meta's model; which tensor gets which type is ``llama_tensor_get_type`` in
llama.cpp's ``src/llama-quant.cpp``, for a model of eight heads to two.
"""

from pathlib import Path

import gguf
import numpy as np

LAYERS, WIDTH, FEED_FORWARD, VOCABULARY = 32, 4096, 14336, 128_256
HEADS, KV_HEADS, HEAD_WIDTH = 32, 8, 128
_KV_WIDTH = KV_HEADS * HEAD_WIDTH
Q2_K, Q3_K, Q4_K, Q6_K, Q8_0, F32 = (
    gguf.GGMLQuantizationType[name] for name in ("Q2_K", "Q3_K", "Q4_K", "Q6_K", "Q8_0", "F32")
)
#: Rows, columns, and the type in a Q2_K file.
_OF_LAYER = {
    "attn_norm": (1, WIDTH, F32),
    "attn_q": (WIDTH, WIDTH, Q2_K),
    "attn_k": (_KV_WIDTH, WIDTH, Q2_K),
    "attn_v": (_KV_WIDTH, WIDTH, Q4_K),
    "attn_output": (WIDTH, WIDTH, Q3_K),
    "ffn_norm": (1, WIDTH, F32),
    "ffn_gate": (FEED_FORWARD, WIDTH, Q2_K),
    "ffn_up": (FEED_FORWARD, WIDTH, Q2_K),
    "ffn_down": (WIDTH, FEED_FORWARD, Q3_K),
}
_OF_MODEL = {
    "token_embd": (VOCABULARY, WIDTH, Q2_K),
    "output": (VOCABULARY, WIDTH, Q6_K),
    "output_norm": (1, WIDTH, F32),
}


def write_llama_8b(path: Path, quantization: str) -> Path:
    """Write it as ``Q2_K`` or ``Q8_0``; it takes some kilobytes of disk."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(gguf.LlamaFileType["MOSTLY_" + quantization])
    writer.add_context_length(131_072)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_vocab_size(VOCABULARY)
    tensors = dict(_OF_MODEL)
    for layer in range(LAYERS):
        tensors |= {f"blk.{layer}.{name}": shape for name, shape in _OF_LAYER.items()}
    total = 0
    for name, (rows, columns, of_q2_k) in tensors.items():
        kind = Q8_0 if quantization == "Q8_0" and of_q2_k is not F32 else of_q2_k
        block, size = gguf.GGML_QUANT_SIZES[kind]
        row_bytes = columns // block * size
        shape = (columns,) if rows == 1 else (rows, row_bytes if kind is not F32 else columns)
        dtype = np.dtype(np.float32 if kind is F32 else np.uint8)
        writer.add_tensor_info(f"{name}.weight", shape, dtype, rows * row_bytes, kind)
        total += rows * row_bytes  # each a multiple of the alignment
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        header = -(-path.stat().st_size // writer.data_alignment) * writer.data_alignment
        file.truncate(header + total)
    return path
