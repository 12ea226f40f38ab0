"""A random LLaMA model of half a megabyte that llama.cpp can run: it proves that a tool infers.

Two layers of 64 dimensions, and a SentencePiece vocabulary of 401 tokens. The tokens include all
bytes, so any prompt can be spelled. The same seed gives the same bytes. The generated text is
noise.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import gguf
    import numpy as np

VOCABULARY = 401
WIDTH = 64
LAYERS = 2
HEADS = 4
HEAD_WIDTH = WIDTH // HEADS
FEED_FORWARD = 128
CONTEXT = 256

_SPECIAL = ("<unk>", "<s>", "</s>")
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's mark for the beginning of a word


def write_tiny_gguf(
    path: Path,
    *,
    seed: int = 1,
    context: int = CONTEXT,
    name: str = "tiny",
    weights: bool = True,
    tensors_per_part: int = 0,
) -> Path:
    """Write the model in f32, or only its vocabulary, to ``path`` and return the path.

    With ``tensors_per_part``, it is split like llama-gguf-split does, into files named after
    ``path``.
    """
    import gguf  # imports numpy
    import numpy as np

    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=tensors_per_part)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(HEAD_WIDTH)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    _add_vocabulary(writer)
    if weights:
        _add_weights(writer, np.random.default_rng(seed))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def vocabulary() -> list[str]:
    """Return special tokens, one token per byte, then letters and pairs that begin a word."""
    words = [_SPACE, *(chr(c) for c in range(ord("a"), ord("z") + 1))]
    words += [_SPACE + chr(c) for c in range(ord("a"), ord("z") + 1)]
    words += [_SPACE + a + b for a in "bcdfghklmnprstv" for b in "aeiouy"]
    tokens = [*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    return tokens[:VOCABULARY]


def _add_vocabulary(writer: "gguf.GGUFWriter") -> None:
    import gguf

    tokens = vocabulary()
    types = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    types += [gguf.TokenType.BYTE] * 256
    types += [gguf.TokenType.NORMAL] * (VOCABULARY - len(types))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(index) for index in range(VOCABULARY)])
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _add_weights(writer: "gguf.GGUFWriter", rng: "np.random.Generator") -> None:
    import numpy as np

    def random(name: str, *shape: int) -> None:
        writer.add_tensor(name, (rng.standard_normal(shape) / WIDTH**0.5).astype(np.float32))

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(WIDTH, dtype=np.float32))

    random("token_embd.weight", VOCABULARY, WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        ones(f"{block}.attn_norm.weight")
        ones(f"{block}.ffn_norm.weight")
        for part in ("q", "k", "v", "output"):
            random(f"{block}.attn_{part}.weight", WIDTH, WIDTH)
        random(f"{block}.ffn_gate.weight", FEED_FORWARD, WIDTH)
        random(f"{block}.ffn_up.weight", FEED_FORWARD, WIDTH)
        random(f"{block}.ffn_down.weight", WIDTH, FEED_FORWARD)
    ones("output_norm.weight")
    random("output.weight", VOCABULARY, WIDTH)
