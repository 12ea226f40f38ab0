"""A random low-rank adapter (LoRA) for the model of :mod:`tiny_gguf`."""

from pathlib import Path

from tiny_gguf import LAYERS, WIDTH

RANK = 4


def write_tiny_lora(path: Path, *, seed: int = 1, kind: str = "adapter") -> Path:
    """Write the adapter, strong enough to change the text, to ``path`` and return the path."""
    import gguf
    import numpy as np

    chance = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type(kind)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", RANK)
    for layer in range(LAYERS):
        name = f"blk.{layer}.attn_q.weight"
        for end, shape in (("lora_a", (RANK, WIDTH)), ("lora_b", (WIDTH, RANK))):
            values = chance.normal(size=shape).astype(np.float32)
            writer.add_tensor(f"{name}.{end}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
