"""Identity of a model: its bytes, and the contents of its GGUF header."""

from pydantic import Field

from labctl.records.base import Record


class TensorMix(Record):
    """The tensors of one GGML type."""

    type: str
    count: int
    bytes: int


class ModelIdentity(Record):
    """A model file; of one that is not GGUF nothing is known but its bytes."""

    key: str = Field(description="name of the model in the recipe")
    file: str = Field(description="base name of the file")
    sha256: str = Field(description="of the file; empty where an imported file does not say it")
    size_bytes: int | None = Field(description="None where an imported file does not say it")
    architecture: str | None = None
    name: str | None = None
    quantization: str | None = Field(
        None, description="from general.file_type, e.g. Q8_0; else the main type"
    )
    parameters: int | None = Field(None, description="number of weights")
    bits_per_weight: float | None = Field(None, description="tensor bytes x 8 / parameters")
    tensor_bytes: int | None = None
    bytes_per_token: int | None = Field(
        None,
        description="weight bytes read for one generated token; of the embedding only one row",
    )
    kv_bytes_per_position: int | None = Field(
        None, description="f16 KV cache for each position of the context"
    )
    context_length: int | None = None
    embedding_length: int | None = Field(None, description="width of the hidden state")
    vocabulary: int | None = Field(None, description="number of tokens the tokenizer knows")
    tensors: tuple[TensorMix, ...] = ()
    cold_tensors: tuple[TensorMix, ...] = Field(
        (),
        description="part of `tensors` that generation hardly reads: tables of which a token needs"
        " one row",
    )
    experts: int | None = Field(
        None, description="number of experts in each layer of a mixture of experts"
    )
    experts_per_token: int | None = None
    requantized_from: str | None = Field(
        None, description="quantization it was derived from, when not from full precision"
    )

    @property
    def reused_bytes(self) -> int | None:
        """Weights that a generation reads again and again; None where they are not known."""
        if self.tensor_bytes is None:
            return None
        return self.tensor_bytes - sum(mix.bytes for mix in self.cold_tensors)
