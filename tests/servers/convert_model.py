"""Convert a GGUF file to Hugging Face's format, with transformers; a program of its own.

Arguments: MODEL.gguf FOLDER. The weights become float32.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

source, folder = Path(sys.argv[1]), sys.argv[2]
tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
read = AutoModelForCausalLM.from_pretrained(
    source.parent, gguf_file=source.name, dtype=torch.float32
)
# A model that was read from GGUF refuses to be saved; one of the same shape does not.
config = read.config
if hasattr(config, "quantization_config"):
    del config.quantization_config
model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
model.load_state_dict(read.state_dict(), strict=True)
model.generation_config = read.generation_config
model.save_pretrained(folder)
tokenizer.save_pretrained(folder)
